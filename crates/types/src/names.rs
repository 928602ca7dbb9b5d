//! Names that a client gives: buckets and object keys.

use std::{fmt, sync::Arc};

use crate::limits::{BUCKET_NAME_BYTES, KEY_BYTES_MAX};

/// Why a bucket name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bucket name: {0}")]
pub struct BucketNameError(&'static str);

/// Why an object key was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ObjectKeyError {
    /// The key has no bytes.
    #[error("the key is empty")]
    Empty,
    /// The key is longer than 1024 bytes.
    #[error("the key is longer than {KEY_BYTES_MAX} bytes")]
    TooLong,
}

/// A valid bucket name by the rules of AWS S3 for general-purpose buckets. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketName(Arc<str>);

/// A valid object key: 1 to 1024 bytes of UTF-8. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(Arc<str>);

impl BucketName {
    /// Checks the rules: 3–63 bytes of `a-z 0-9 . -`, a letter or digit at both ends, no `..`, `.-` or `-.`,
    /// not an IPv4 address, none of AWS's reserved prefixes and suffixes.
    ///
    /// Source: AWS, "General purpose bucket naming rules".
    ///
    /// # Errors
    /// With the rule that was broken.
    pub fn new(name: &str) -> Result<Self, BucketNameError> {
        let refuse = |reason| Err(BucketNameError(reason));
        let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = name.as_bytes();
        if !BUCKET_NAME_BYTES.contains(&bytes.len()) {
            return refuse("it must have 3 to 63 characters");
        }
        if !bytes.iter().all(|&b| alnum(b) || b == b'.' || b == b'-') {
            return refuse("only lower-case letters, digits, dots and hyphens are allowed");
        }
        if !alnum(bytes[0]) || !alnum(bytes[bytes.len() - 1]) {
            return refuse("it must begin and end with a letter or a digit");
        }
        if bytes.iter().all(|&b| alnum(b)) {
            // All other rules are about dots and hyphens.
            return Ok(Self(name.into()));
        }
        if bytes.windows(2).any(|pair| matches!(pair, b".." | b".-" | b"-.")) {
            return refuse("a dot must stand between letters or digits");
        }
        if name.parse::<std::net::Ipv4Addr>().is_ok() {
            return refuse("it must not look like an IP address");
        }
        if ["xn--", "sthree-", "amzn-s3-demo-"].iter().any(|prefix| name.starts_with(prefix)) {
            return refuse("the prefix is reserved");
        }
        if ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"].iter().any(|suffix| name.ends_with(suffix)) {
            return refuse("the suffix is reserved");
        }
        Ok(Self(name.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ObjectKey {
    /// Checks the length.
    ///
    /// # Errors
    /// When the key is empty or longer than 1024 bytes.
    pub fn new(key: &str) -> Result<Self, ObjectKeyError> {
        match key.len() {
            0 => Err(ObjectKeyError::Empty),
            1..=KEY_BYTES_MAX => Ok(Self(key.into())),
            _ => Err(ObjectKeyError::TooLong),
        }
    }

    /// The key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! show {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}
show!(BucketName);
show!(ObjectKey);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names_follow_the_rules_of_aws() {
        for name in ["abc", "my-bucket", "my.bucket.1", "0ab", "a--b", &"a".repeat(63)] {
            assert!(BucketName::new(name).is_ok(), "{name}");
        }
        let bad = [
            "",
            "ab",
            "Abc",
            "a_b",
            "-ab",
            "ab-",
            ".ab",
            "a..b",
            "a.-b",
            "a-.b",
            "192.168.5.4",
            "xn--abc",
            "sthree-x",
            "abc-s3alias",
            "abc--ol-s3",
            "ab/c",
            "büc",
            &"a".repeat(64),
        ];
        for name in bad {
            assert!(BucketName::new(name).is_err(), "{name}");
        }
    }

    #[test]
    fn keys_have_1_to_1024_bytes() {
        assert!(ObjectKey::new("a/b c\u{0}ü").is_ok());
        assert!(ObjectKey::new(&"a".repeat(1024)).is_ok());
        assert_eq!(ObjectKey::new("").unwrap_err(), ObjectKeyError::Empty);
        assert_eq!(ObjectKey::new(&"ü".repeat(513)).unwrap_err(), ObjectKeyError::TooLong);
    }
}
