//! Headers that ask for what is not served: refused, never silently ignored.

use http::HeaderMap;

use super::call::Call;
use super::route::Operation;
use crate::error::{S3Code, S3Error};

/// Headers that are refused whatever they say.
const REFUSED: &[&str] = &["x-amz-annotation-directive", "x-amz-bucket-namespace", "x-amz-mfa"];
/// Headers that one operation alone knows.
const OF_ONE: &[(&str, Operation)] = &[
    ("x-amz-if-match-initiated-time", Operation::AbortMultipartUpload),
    ("x-amz-rename-source", Operation::RenameObject),
    ("x-amz-write-offset-bytes", Operation::PutObject),
];

/// Checks the headers, storage class and version of any request.
///
/// # Errors
/// `NotImplemented`, `InvalidStorageClass`, `InvalidArgument`.
pub(super) fn check(call: &Call) -> Result<(), S3Error> {
    if call.has.extensions {
        check_headers(call.headers(), call.routed.operation.as_ref().ok().copied())?;
    }
    let takes_version = call.routed.operation.as_ref().is_ok_and(|operation| operation.takes_version());
    if takes_version { Ok(()) } else { check_version(call.query().get("versionId")?) }
}

/// Of an operation that is about no version.
fn check_version(version: Option<&str>) -> Result<(), S3Error> {
    match version {
        None => Ok(()),
        Some(version) => Err(S3Error::argument("versionId", version, "This operation does not accept a version-id.")),
    }
}

fn check_headers(headers: &HeaderMap, operation: Option<Operation>) -> Result<(), S3Error> {
    for (name, value) in headers {
        let name = name.as_str();
        if !name.starts_with("x-amz-") || value.is_empty() {
            continue;
        }
        let is_anothers = OF_ONE.iter().any(|(known, of)| *known == name && Some(*of) != operation);
        if is_anothers || REFUSED.contains(&name) {
            return Err(S3Error::unsupported(name));
        }
        // Who appends makes no object, or one that can be given tags on its own: no policy sees them otherwise.
        if name == "x-amz-tagging" && headers.contains_key("x-amz-write-offset-bytes") {
            return Err(S3Error::unsupported(name));
        }
        if name == "x-amz-storage-class" && value != "STANDARD" {
            return Err(S3Code::InvalidStorageClass.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn what_is_not_served_is_refused() {
        let not_implemented = Some(S3Code::NotImplemented);
        let table = [
            ("x-amz-tagging", "a=b", None),
            ("x-amz-tagging-directive", "REPLACE", None),
            ("x-amz-mfa", "1 2", not_implemented),
            ("x-amz-website-redirect-location", "/x", None),
            ("x-amz-write-offset-bytes", "0", None),
            ("x-amz-rename-source", "k", not_implemented),
            ("x-amz-checksum-sha512", "x", None),
            ("x-amz-storage-class", "STANDARD", None),
            ("x-amz-storage-class", "GLACIER", Some(S3Code::InvalidStorageClass)),
            ("x-amz-meta-anything", "x", None),
            ("x-amz-user-agent", "x", None),
            ("x-amz-tagging", "", None),
            ("tagging", "x", None),
        ];
        for (name, value, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            assert_eq!(
                check_headers(&headers, Some(Operation::PutObject)).err().map(|error| error.code),
                expected,
                "{name}: {value}"
            );
        }
    }

    #[test]
    fn versions_are_refused_where_there_are_none() {
        assert!(check_version(None).is_ok());
        assert_eq!(check_version(Some("3")).unwrap_err().code, S3Code::InvalidArgument);
    }
}
