//! Digests in headers and trailers, both ways.
//!
//! Source: AWS, "Checking object integrity in Amazon S3"; the texts of refusals are AWS's.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gabion_store::{BodyError, BodyTrailers, Checksum, ChecksumAlgorithm, ChecksumKind};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::call::Call;
use super::content::TakeTrailers;
use crate::error::{S3Code, S3Error};
use crate::ops::checksums::ShownChecksum;

/// Elements in documents, in the order in which AWS writes them.
const ELEMENTS: [(ChecksumAlgorithm, &str, &str); 10] = [
    (ChecksumAlgorithm::Crc32, "ChecksumCRC32", "x-amz-checksum-crc32"),
    (ChecksumAlgorithm::Crc32c, "ChecksumCRC32C", "x-amz-checksum-crc32c"),
    (ChecksumAlgorithm::Crc64Nvme, "ChecksumCRC64NVME", "x-amz-checksum-crc64nvme"),
    (ChecksumAlgorithm::Sha1, "ChecksumSHA1", "x-amz-checksum-sha1"),
    (ChecksumAlgorithm::Sha256, "ChecksumSHA256", "x-amz-checksum-sha256"),
    (ChecksumAlgorithm::Sha512, "ChecksumSHA512", "x-amz-checksum-sha512"),
    (ChecksumAlgorithm::Md5, "ChecksumMD5", "x-amz-checksum-md5"),
    (ChecksumAlgorithm::XxHash64, "ChecksumXXHASH64", "x-amz-checksum-xxhash64"),
    (ChecksumAlgorithm::XxHash3, "ChecksumXXHASH3", "x-amz-checksum-xxhash3"),
    (ChecksumAlgorithm::XxHash128, "ChecksumXXHASH128", "x-amz-checksum-xxhash128"),
];

/// What the names of all their headers begin with.
const HEADER_PREFIX: &str = "x-amz-checksum-";

/// Headers that begin so, too, and are about something else.
const NO_VALUES: [&str; 3] = ["x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"];

const ONE_CHECKSUM: &str = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";
const NO_VALUE: &str = "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer \
    headers were found.";
const SDK_ALGORITHM: &str = "Value for x-amz-sdk-checksum-algorithm header is invalid.";

/// The header of an algorithm.
pub(super) fn header_name(algorithm: ChecksumAlgorithm) -> &'static str {
    ELEMENTS[usize::from(algorithm.index())].2
}

/// The element of an algorithm.
pub(super) fn element_name(algorithm: ChecksumAlgorithm) -> &'static str {
    ELEMENTS[usize::from(algorithm.index())].1
}

/// What a request says about its body.
#[derive(Default)]
pub(super) struct BodyDigests {
    pub(super) md5: Option<[u8; 16]>,
    pub(super) checksum: Option<Checksum>,
    /// The algorithm whose value comes in a trailer.
    pub(super) trailer: Option<ChecksumAlgorithm>,
}

impl BodyDigests {
    /// Reads `Content-MD5`, `x-amz-checksum-*`, `x-amz-trailer` and `x-amz-sdk-checksum-algorithm`.
    ///
    /// # Errors
    /// `InvalidDigest`, `InvalidRequest`.
    pub(super) fn of(call: &Call) -> Result<Self, S3Error> {
        let md5 = content_md5(call)?;
        let checksum = match value(call)? {
            Some((algorithm, text)) => Some(parse(algorithm, text)?),
            None => None,
        };
        let trailer = trailer(call.header("x-amz-trailer")?)?;
        match (&checksum, trailer) {
            (Some(_), Some(_)) => return Err(S3Error::request(ONE_CHECKSUM)),
            (None, Some(_)) if call.trailers.is_none() => {
                let message = "x-amz-trailer is given, but the payload is not one with trailers.";
                return Err(S3Error::request(message));
            }
            _ => {}
        }
        if let Some(name) = call.header("x-amz-sdk-checksum-algorithm")? {
            let algorithm: ChecksumAlgorithm = name.parse().map_err(|_| S3Error::request(SDK_ALGORITHM))?;
            match checksum.map(|checksum| checksum.algorithm()).or(trailer) {
                None => return Err(S3Error::request(NO_VALUE)),
                Some(given) if given != algorithm => return Err(S3Error::request(SDK_ALGORITHM)),
                Some(_) => {}
            }
        }
        Ok(Self { md5, checksum, trailer })
    }
}

/// The one `x-amz-checksum-*` header that carries a value, with its text; an empty one is there as well, and is no checksum.
pub(super) fn value(call: &Call) -> Result<Option<(ChecksumAlgorithm, &str)>, S3Error> {
    let mut found = None;
    if !call.has.extensions {
        return Ok(None);
    }
    for name in call.headers().keys().map(HeaderName::as_str).filter(|name| name.starts_with(HEADER_PREFIX)) {
        let Some((algorithm, ..)) = ELEMENTS.into_iter().find(|(.., header)| *header == name) else {
            if NO_VALUES.contains(&name) {
                continue;
            }
            return Err(S3Error::request("The algorithm type you specified in x-amz-checksum- header is invalid."));
        };
        if let Some(text) = call.present(name)?
            && found.replace((algorithm, text)).is_some()
        {
            return Err(S3Error::request(ONE_CHECKSUM));
        }
    }
    Ok(found)
}

/// The value of a header of CompleteMultipartUpload, and the number of parts that a composite one may come with.
///
/// # Errors
/// `InvalidRequest` when it is none.
pub(super) fn parse_whole(algorithm: ChecksumAlgorithm, text: &str) -> Result<(Checksum, Option<usize>), S3Error> {
    let Some((bare, parts)) = text.split_once('-') else { return Ok((parse(algorithm, text)?, None)) };
    let is_number = !parts.is_empty() && parts.bytes().all(|byte| byte.is_ascii_digit());
    match parts.parse() {
        Ok(parts) if is_number => Ok((parse(algorithm, bare)?, Some(parts))),
        _ => Err(invalid(algorithm)),
    }
}

/// The value of a header.
///
/// # Errors
/// `InvalidRequest` when it is none.
pub(super) fn parse(algorithm: ChecksumAlgorithm, text: &str) -> Result<Checksum, S3Error> {
    Checksum::from_base64(algorithm, text).map_err(|_| invalid(algorithm))
}

fn invalid(algorithm: ChecksumAlgorithm) -> S3Error {
    S3Error::request(format!("Value for {} header is invalid.", header_name(algorithm)))
}

/// Reads `Content-MD5`.
///
/// # Errors
/// `InvalidDigest`.
pub(super) fn content_md5(call: &Call) -> Result<Option<[u8; 16]>, S3Error> {
    parse_md5(call.present("content-md5")?)
}

pub(super) fn parse_md5(value: Option<&str>) -> Result<Option<[u8; 16]>, S3Error> {
    let Some(value) = value else { return Ok(None) };
    match BASE64_STANDARD.decode(value).ok().and_then(|digest| digest.try_into().ok()) {
        Some(digest) => Ok(Some(digest)),
        None => {
            Err(S3Error::new(S3Code::InvalidDigest).detail("Content-MD5", value.chars().take(64).collect::<String>()))
        }
    }
}

fn trailer(value: Option<&str>) -> Result<Option<ChecksumAlgorithm>, S3Error> {
    let mut found = None;
    for name in value.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let Some((algorithm, ..)) = ELEMENTS.into_iter().find(|(.., header)| header.eq_ignore_ascii_case(name)) else {
            return Err(S3Error::request("The value specified in the x-amz-trailer header is not supported"));
        };
        if found.replace(algorithm).is_some() {
            return Err(S3Error::request(ONE_CHECKSUM));
        }
    }
    Ok(found)
}

/// Reads the trailers when the body has ended: exactly the checksum that was announced, if one was.
pub(super) fn expected_trailers(announced: Option<ChecksumAlgorithm>, take: TakeTrailers) -> BodyTrailers {
    Box::new(move || read_trailers(announced, &take().unwrap_or_default()))
}

fn read_trailers(announced: Option<ChecksumAlgorithm>, trailers: &HeaderMap) -> Result<Vec<Checksum>, BodyError> {
    let malformed = |text: String| Err(BodyError::MalformedTrailer(text));
    let unannounced =
        trailers.keys().find(|name| announced.is_none_or(|algorithm| name.as_str() != header_name(algorithm)));
    if let Some(name) = unannounced {
        return malformed(format!("The trailer {name} was not announced in x-amz-trailer."));
    }
    let Some(algorithm) = announced else { return Ok(Vec::new()) };
    let name = header_name(algorithm);
    let mut values = trailers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return malformed(format!("The trailer {name} was announced in x-amz-trailer, but did not come once."));
    };
    match value.to_str().ok().and_then(|text| Checksum::from_base64(algorithm, text).ok()) {
        Some(checksum) => Ok(vec![checksum]),
        None => Err(BodyError::InvalidTrailer(name)),
    }
}

/// The algorithm of a header that names one (`x-amz-checksum-algorithm`).
///
/// # Errors
/// `InvalidRequest`.
pub(super) fn algorithm(call: &Call, header: &'static str) -> Result<Option<ChecksumAlgorithm>, S3Error> {
    let Some(name) = call.header(header)? else { return Ok(None) };
    match name.parse() {
        Ok(algorithm) => Ok(Some(algorithm)),
        Err(_) => {
            let message = "Checksum algorithm provided is unsupported. Please try again with any of the valid types: \
                [CRC32, CRC32C, CRC64NVME, MD5, SHA1, SHA256, SHA512, XXHASH128, XXHASH3, XXHASH64]";
            Err(S3Error::request(message))
        }
    }
}

/// The kind of checksum in `x-amz-checksum-type`.
///
/// # Errors
/// `InvalidRequest`.
pub(super) fn kind(call: &Call) -> Result<Option<ChecksumKind>, S3Error> {
    let Some(name) = call.header("x-amz-checksum-type")? else { return Ok(None) };
    let kinds = [ChecksumKind::Composite, ChecksumKind::FullObject];
    match kinds.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name)) {
        Some(kind) => Ok(Some(kind)),
        None => Err(S3Error::request("Value for x-amz-checksum-type header is invalid.")),
    }
}

/// Puts checksums into the headers of an answer.
pub(super) fn show_headers(checksums: &[ShownChecksum], headers: &mut HeaderMap) {
    for checksum in checksums {
        // The text is base64 and digits.
        if let Ok(value) = HeaderValue::from_str(&checksum.text) {
            headers.insert(HeaderName::from_static(header_name(checksum.algorithm)), value);
        }
    }
    if let Some(first) = checksums.first() {
        let kind = HeaderValue::from_static(first.kind.name());
        headers.insert(HeaderName::from_static("x-amz-checksum-type"), kind);
    }
}

/// Puts checksums into a document of an answer.
pub(super) fn show_elements(checksums: &[ShownChecksum], xml: &mut super::xml::Xml) {
    for checksum in checksums {
        xml.text(element_name(checksum.algorithm), &checksum.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_stand_at_the_index_of_their_algorithm() {
        for algorithm in ChecksumAlgorithm::ALL {
            assert_eq!(ELEMENTS[usize::from(algorithm.index())].0, algorithm);
        }
    }

    #[test]
    fn composite_checksums_may_say_of_how_many_parts() {
        let crc32 = ChecksumAlgorithm::Crc32;
        for (text, parts) in [("AAAAAA==", None), ("AAAAAA==-3", Some(3)), ("AAAAAA==-03", Some(3))] {
            assert_eq!(parse_whole(crc32, text).unwrap().1, parts, "{text}");
        }
        for bad in ["", "-3", "AAAA-3", "AAAAAA==-", "AAAAAA==-x", "AAAAAA==-+3", "AAAAAA==--3", "AAAAAA==-1-2"] {
            assert_eq!(parse_whole(crc32, bad).unwrap_err().code, S3Code::InvalidRequest, "{bad}");
        }
    }

    #[test]
    fn content_md5_is_sixteen_bytes() {
        assert_eq!(parse_md5(None).unwrap(), None);
        assert!(parse_md5(Some("1B2M2Y8AsgTpgAmY7PhCfg==")).unwrap().is_some());
        for bad in ["", "x", "AAAA", "1B2M2Y8AsgTpgAmY7PhCfg", "d41d8cd98f00b204e9800998ecf8427e"] {
            assert_eq!(parse_md5(Some(bad)).unwrap_err().code, S3Code::InvalidDigest, "{bad}");
        }
    }

    #[test]
    fn a_trailer_is_one_checksum() {
        assert_eq!(trailer(None).unwrap(), None);
        assert_eq!(trailer(Some("X-Amz-Checksum-Crc32")).unwrap(), Some(ChecksumAlgorithm::Crc32));
        for bad in ["x-amz-meta-a", "x-amz-checksum-md4", "x-amz-checksum-crc32,x-amz-checksum-sha1"] {
            assert_eq!(trailer(Some(bad)).unwrap_err().code, S3Code::InvalidRequest, "{bad}");
        }
    }

    #[test]
    fn trailers_are_what_was_announced() {
        let crc32 = Some(ChecksumAlgorithm::Crc32);
        type Row = (Option<ChecksumAlgorithm>, &'static [(&'static str, &'static str)], Option<usize>);
        let table: &[Row] = &[
            (None, &[], Some(0)),
            (crc32, &[("x-amz-checksum-crc32", "AAAAAA==")], Some(1)),
            (crc32, &[], None),
            (crc32, &[("x-amz-checksum-crc32", "AAAA")], None),
            (crc32, &[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-crc32", "AAAAAA==")], None),
            (crc32, &[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-meta-a", "b")], None),
            (crc32, &[("x-amz-checksum-sha1", "AAAAAA==")], None),
            (None, &[("x-amz-checksum-crc32", "AAAAAA==")], None),
        ];
        for (announced, trailers, expected) in table {
            let mut map = HeaderMap::new();
            for (name, value) in *trailers {
                map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let got = read_trailers(*announced, &map).map(|checksums| checksums.len()).ok();
            assert_eq!(got, *expected, "{announced:?} {trailers:?}");
        }
    }
}
