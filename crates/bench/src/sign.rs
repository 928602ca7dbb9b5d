//! AWS Signature Version 4 in the `Authorization` header.
//!
//! Source: AWS, "Create a signed AWS API request". The signing key changes once a day and is kept, with the state of the HMAC that begins with it; what is
//! signed is put together in buffers that are kept.

use std::fmt::Write;

use hmac::{Hmac, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

/// Everything but the unreserved characters of RFC 3986 is encoded in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// A path keeps its slashes.
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// SHA-256 of nothing.
pub(crate) const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Who signs, for which region. Neither the secret nor the token is shown by `Debug`.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    /// Goes with temporary keys, as a header that is signed.
    pub(crate) session_token: Option<String>,
    pub(crate) region: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// What is signed.
pub(crate) struct Unsigned<'a> {
    pub(crate) method: &'a str,
    /// Encoded path, as it is sent.
    pub(crate) path: &'a str,
    /// Encoded query, sorted by name, without `?`.
    pub(crate) query: &'a str,
    /// Lower-case names and trimmed values, sorted; all of them are signed.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// Value of `x-amz-content-sha256`.
    pub(crate) payload_hash: &'a str,
}

/// A date as a signature wants it: `20260131T235959Z`.
pub(crate) fn amz_date(unix_seconds: u64) -> String {
    let (year, month, day) = civil_date(unix_seconds / 86_400);
    let second = unix_seconds % 86_400;
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day from days since 1970 (H. Hinnant, "chrono-compatible low-level date algorithms").
pub(crate) fn civil_date(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Adds an encoded path, for the request line and the signature.
pub(crate) fn encode_path(out: &mut String, path: &str) {
    out.extend(utf8_percent_encode(path, PATH));
}

/// Adds an encoded name or value of a query.
pub(crate) fn encode_query(out: &mut String, text: &str) {
    out.extend(utf8_percent_encode(text, QUERY));
}

/// Hex SHA-256.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(HASH_DIGITS);
    push_hex(&mut out, &Sha256::digest(bytes).into());
    out
}

/// Digits of a SHA-256, and of a signature, which is one.
pub(crate) const HASH_DIGITS: usize = 64;

/// A SHA-256 as lower-case hexadecimal digits.
fn hex(bytes: &[u8; 32]) -> [u8; HASH_DIGITS] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = [0; HASH_DIGITS];
    for (digits, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *digits = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    out
}

/// Adds a SHA-256 as lower-case hexadecimal digits.
pub(crate) fn push_hex(out: &mut String, bytes: &[u8; 32]) {
    out.push_str(str::from_utf8(&hex(bytes)).expect("digits are ASCII"));
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = keyed(key);
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// Signs requests of one identity; keeps the key of the day.
#[derive(Clone)]
pub(crate) struct Signer {
    identity: Identity,
    day: String,
    /// `DAY/REGION/s3/aws4_request`.
    scope: String,
    keyed: Hmac<Sha256>,
    canonical: String,
    to_sign: String,
}

impl Signer {
    pub(crate) fn new(identity: Identity) -> Self {
        Self {
            identity,
            day: String::new(),
            scope: String::new(),
            keyed: keyed(&[]),
            canonical: String::new(),
            to_sign: String::new(),
        }
    }

    /// Adds the value of `Authorization`, which ends with the signature; `date` is the value of `x-amz-date`, which must be among the headers.
    pub(crate) fn authorize(&mut self, out: &mut String, date: &str, request: &Unsigned<'_>) {
        let day = &date[..8];
        if self.day != day {
            self.begin_day(day);
        }
        let canonical = &mut self.canonical;
        canonical.clear();
        for part in [request.method, "\n", request.path, "\n", request.query, "\n"] {
            canonical.push_str(part);
        }
        for (name, value) in request.headers {
            for part in [name, ":", value, "\n"] {
                canonical.push_str(part);
            }
        }
        canonical.push('\n');
        let names_begin = canonical.len();
        for (index, (name, _)) in request.headers.iter().enumerate() {
            canonical.push_str(if index == 0 { "" } else { ";" });
            canonical.push_str(name);
        }
        let names_end = canonical.len();
        canonical.push('\n');
        canonical.push_str(request.payload_hash);
        let to_sign = &mut self.to_sign;
        to_sign.clear();
        for part in ["AWS4-HMAC-SHA256\n", date, "\n", &self.scope, "\n"] {
            to_sign.push_str(part);
        }
        push_hex(to_sign, &Sha256::digest(canonical.as_bytes()).into());
        let mut mac = self.keyed.clone();
        mac.update(to_sign.as_bytes());
        let signed_headers = &canonical[names_begin..names_end];
        for part in ["AWS4-HMAC-SHA256 Credential=", &self.identity.access_key, "/", &self.scope] {
            out.push_str(part);
        }
        for part in [",SignedHeaders=", signed_headers, ",Signature="] {
            out.push_str(part);
        }
        push_hex(out, &mac.finalize().into_bytes().into());
    }

    /// Signs the chunks of the body of the request that was signed last, `date` with it and `seed` its signature.
    pub(crate) fn chunks<'a>(&'a self, date: &'a str, seed: &str) -> ChunkSigner<'a> {
        let previous = seed.as_bytes().try_into().expect("a signature has 64 digits");
        ChunkSigner { signer: self, date, previous }
    }

    pub(super) fn begin_day(&mut self, day: &str) {
        let secret = format!("AWS4{}", self.identity.secret_key);
        let key = hmac(secret.as_bytes(), day.as_bytes());
        let key = hmac(&key, self.identity.region.as_bytes());
        self.keyed = keyed(&hmac(&hmac(&key, b"s3"), b"aws4_request"));
        self.scope.clear();
        write!(self.scope, "{day}/{}/s3/aws4_request", self.identity.region).expect("writing to a string succeeds");
        day.clone_into(&mut self.day);
    }
}

/// Signs chunks, each with the signature before it.
pub(crate) struct ChunkSigner<'a> {
    signer: &'a Signer,
    date: &'a str,
    previous: [u8; HASH_DIGITS],
}

impl ChunkSigner<'_> {
    /// Adds the signature of the next chunk, which has this SHA-256; the last one is empty.
    pub(crate) fn sign(&mut self, out: &mut String, sha256: Option<&[u8; 32]>) {
        let mut mac = self.signer.keyed.clone();
        for part in ["AWS4-HMAC-SHA256-PAYLOAD\n", self.date, "\n", &self.signer.scope, "\n"] {
            mac.update(part.as_bytes());
        }
        mac.update(&self.previous);
        for part in ["\n", EMPTY_SHA256, "\n"] {
            mac.update(part.as_bytes());
        }
        match sha256 {
            Some(sha256) => mac.update(&hex(sha256)),
            None => mac.update(EMPTY_SHA256.as_bytes()),
        }
        let signature = mac.finalize().into_bytes().into();
        self.previous = hex(&signature);
        push_hex(out, &signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_369_353_600, "20130524T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
            (4_102_444_800, "21000101T000000Z"),
        ] {
            assert_eq!(amz_date(seconds), text);
        }
    }

    #[test]
    fn encoding_is_that_of_s3() {
        let mut out = String::new();
        encode_path(&mut out, "/b/a b+ü~(1).txt");
        encode_query(&mut out, "a/b=c");
        assert_eq!(out, "/b/a%20b%2B%C3%BC~%281%29.txta%2Fb%3Dc");
    }

    /// The examples of AWS's page "Signature Calculations for the Authorization Header".
    #[test]
    fn the_examples_of_aws() {
        let identity = Identity {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
            region: "us-east-1".into(),
        };
        let date = "20130524T000000Z";
        let host = ("host", "examplebucket.s3.amazonaws.com");
        let hash = ("x-amz-content-sha256", EMPTY_SHA256);
        let stamp = ("x-amz-date", date);
        let ranged = [host, ("range", "bytes=0-9"), hash, stamp];
        let plain = [host, hash, stamp];
        type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str);
        let rows: [Row<'_>; 3] = [
            ("/test.txt", "", &ranged, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
            ("/", "lifecycle=", &plain, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            ("/", "max-keys=2&prefix=J", &plain, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ];
        let mut signer = Signer::new(identity);
        for (path, query, headers, signature) in rows {
            let request = Unsigned { method: "GET", path, query, headers, payload_hash: EMPTY_SHA256 };
            let mut authorization = String::new();
            signer.authorize(&mut authorization, date, &request);
            assert!(authorization.ends_with(&format!("Signature={signature}")), "{path}?{query}: {authorization}");
            assert!(authorization.contains(&format!(
                "SignedHeaders={}",
                if headers.len() == 4 { "host;range;" } else { "host;x-amz-content" }
            )));
        }
    }
}
