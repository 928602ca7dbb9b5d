//! The `Authorization` header as clients write it, taken apart without a copy.

/// What `Authorization: AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Authorization<'a> {
    pub(super) access_key: &'a str,
    /// `YYYYMMDD`.
    pub(super) day: &'a str,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    /// Names, divided by semicolons.
    pub(super) signed_headers: &'a str,
    /// In hexadecimal digits.
    pub(super) signature: &'a str,
}

impl<'a> Authorization<'a> {
    /// Takes it apart; nothing when it is written in another way than the SDKs do, which is for s3s to judge.
    pub(super) fn parse(header: &'a str) -> Option<Self> {
        Self::of_any_region(header).filter(|parsed| !parsed.region.is_empty())
    }

    /// The same, where the region may be nothing: global services have none.
    pub(super) fn of_any_region(header: &'a str) -> Option<Self> {
        let rest = header.strip_prefix("AWS4-HMAC-SHA256 Credential=")?;
        let (credential, rest) = cut(rest, b',')?;
        let (signed_headers, rest) = cut(rest.trim_ascii_start().strip_prefix("SignedHeaders=")?, b',')?;
        let signature = rest.trim_ascii_start().strip_prefix("Signature=")?;
        let (access_key, scope) = cut(credential, b'/')?;
        let (day, scope) = cut(scope, b'/')?;
        let (region, scope) = cut(scope, b'/')?;
        let (service, end) = cut(scope, b'/')?;
        (end == "aws4_request" && ![access_key, day, service].contains(&"")).then_some(Self {
            access_key,
            day,
            region,
            service,
            signed_headers,
            signature,
        })
    }
}

/// What stands before the first such byte, which is ASCII, and behind it. The search of `str`, made for long texts, takes twice as long for these.
fn cut(text: &str, at: u8) -> Option<(&str, &str)> {
    let place = text.bytes().position(|byte| byte == at)?;
    Some((&text[..place], &text[place + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_as_the_sdks_write_it() {
        let parsed = Authorization {
            access_key: "AK",
            day: "20260101",
            region: "eu-lab",
            service: "s3",
            signed_headers: "host;x-amz-date",
            signature: "00ff",
        };
        for space in ["", " ", "  "] {
            let header = format!(
                "AWS4-HMAC-SHA256 Credential=AK/20260101/eu-lab/s3/aws4_request,{space}SignedHeaders=host;x-amz-date,\
                 {space}Signature=00ff"
            );
            assert_eq!(Authorization::parse(&header).as_ref(), Some(&parsed), "{header}");
        }
        for header in [
            "",
            "AWS AK:sig",
            "AWS4-HMAC-SHA256 Credential=AK/20260101/eu-lab/s3/aws4_request",
            "AWS4-HMAC-SHA256 Credential=AK/20260101/eu-lab/s3/aws4_request, Signature=00, SignedHeaders=host",
            "AWS4-HMAC-SHA256 Credential=AK/20260101/eu-lab/s3/aws4_request/, SignedHeaders=host, Signature=00",
            "AWS4-HMAC-SHA256 Credential=AK/20260101/eu-lab/s3/aws4_request/x, SignedHeaders=host, Signature=00",
            "AWS4-HMAC-SHA256 Credential=A/K/20260101/eu-lab/s3/aws4_request, SignedHeaders=host, Signature=00",
            "AWS4-HMAC-SHA256 Credential=AK/20260101//s3/aws4_request, SignedHeaders=host, Signature=00",
            "AWS4-HMAC-SHA256 Credential=AK/20260101/eu-lab/s3, SignedHeaders=host, Signature=00",
            "AWS4-ECDSA-P256-SHA256 Credential=AK/20260101/eu-lab/s3/aws4_request, SignedHeaders=host, Signature=00",
        ] {
            assert_eq!(Authorization::parse(header), None, "{header}");
        }
    }
}
