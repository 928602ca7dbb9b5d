//! Names, paths and documents: what AWS takes for one.

use gabion_policy::Policy;

use super::super::error::IamError;

/// Longest policy document that is looked at, in characters (AWS's bound on the parameter).
const DOCUMENT_CHARACTERS_MAX: usize = 131_072;

/// Checks a name of at most `max` letters, digits or `_+=,.@-`.
///
/// # Errors
/// `ValidationError`.
pub(in crate::iam) fn check(parameter: &str, name: &str, max: usize) -> Result<(), IamError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
    if (1..=max).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(IamError::validation(format!(
        "The specified value for {parameter} is invalid. It must contain only alphanumeric characters and/or the following: +=,.@_- \
         and have a length of 1 to {max}"
    )))
}

/// Checks a path; it is `/` unless one is given.
///
/// # Errors
/// `ValidationError`.
pub(in crate::iam) fn path(path: Option<&str>) -> Result<String, IamError> {
    let path = path.unwrap_or("/");
    let printable = path.bytes().all(|byte| (0x21..=0x7f).contains(&byte));
    if path.len() <= 512 && printable && path.starts_with('/') && path.ends_with('/') {
        return Ok(path.to_owned());
    }
    Err(IamError::validation(
        "The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.",
    ))
}

/// What a document is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::iam) enum Kind {
    /// To be attached to somebody.
    Identity,
    /// To say who may take on a role.
    Trust,
}

/// Checks a policy document, of at most `max` characters that are not white space.
///
/// # Errors
/// `ValidationError`, `MalformedPolicyDocument`, `LimitExceeded`.
pub(in crate::iam) fn check_document(document: &str, kind: Kind, max: usize) -> Result<(), IamError> {
    if document.chars().count() > DOCUMENT_CHARACTERS_MAX {
        return Err(IamError::validation("The policy document is too long."));
    }
    let policy =
        Policy::parse(document.as_bytes()).map_err(|error| IamError::malformed_policy(error.message().to_owned()))?;
    let checked = match kind {
        Kind::Identity => policy.check_identity(),
        Kind::Trust => policy.check_trust(),
    };
    checked.map_err(|error| IamError::malformed_policy(error.message().to_owned()))?;
    if weight(document) > max {
        return Err(IamError::limit(format!("Maximum policy size of {max} bytes exceeded.")));
    }
    Ok(())
}

/// How much of a document counts: AWS leaves white space out.
pub(super) fn weight(document: &str) -> usize {
    document.chars().filter(|character| !character.is_whitespace()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_awss() {
        for (name, good) in
            [("a", true), ("A_+=,.@-9", true), ("", false), ("a b", false), ("a/b", false), ("\u{e4}", false)]
        {
            assert_eq!(check("UserName", name, 64).is_ok(), good, "{name}");
        }
        assert!(check("UserName", &"a".repeat(64), 64).is_ok() && check("UserName", &"a".repeat(65), 64).is_err());
        for (given, good) in [
            (None, true),
            (Some("/"), true),
            (Some("/a/b/"), true),
            (Some("a/"), false),
            (Some("/a"), false),
            (Some("/a b/"), false),
        ] {
            assert_eq!(path(given).is_ok(), good, "{given:?}");
        }
    }

    #[test]
    fn a_document_is_of_its_kind() {
        let identity = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:*","Resource":"*"}}"#;
        let trust = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}}"#;
        assert!(
            check_document(identity, Kind::Identity, 100).is_ok() && check_document(trust, Kind::Trust, 200).is_ok()
        );
        assert_eq!(check_document(identity, Kind::Trust, 200).unwrap_err().code, "MalformedPolicyDocument");
        assert_eq!(check_document(trust, Kind::Identity, 200).unwrap_err().code, "MalformedPolicyDocument");
        assert_eq!(check_document("{", Kind::Identity, 200).unwrap_err().code, "MalformedPolicyDocument");
        assert_eq!(check_document(identity, Kind::Identity, 50).unwrap_err().code, "LimitExceeded");
        assert_eq!(check_document(&"a".repeat(200_000), Kind::Identity, 50).unwrap_err().code, "ValidationError");
    }
}
