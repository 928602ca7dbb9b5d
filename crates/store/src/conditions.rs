//! Conditional requests, as pure functions of a request and the current object.
//!
//! Sources: RFC 9110 §13.2.2 (order of evaluation), AWS S3 "Conditional requests", "Conditional writes", "Conditional
//! deletes". `If-Match` wins over `If-Unmodified-Since`, `If-None-Match` over `If-Modified-Since`. Dates are compared by
//! whole seconds, as HTTP dates have no more.

use gabion_metadata::rows::{Attributes, Etag};

use crate::{StoreError, Unmodified};

/// A list of entity tags, or any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtagMatch {
    /// `*`: any current object.
    Any,
    /// One of these, without quotes.
    OneOf(Vec<String>),
}

impl EtagMatch {
    /// Reads the value of `If-Match` or `If-None-Match`: `*`, or tags separated by commas, with or without quotes and
    /// `W/` (S3's tags are strong; clients that mark them weak mean the same bytes).
    #[must_use]
    pub fn parse(value: &str) -> Self {
        let value = value.trim();
        if value == "*" {
            return EtagMatch::Any;
        }
        EtagMatch::OneOf(value.split(',').map(bare_etag).filter(|tag| !tag.is_empty()).map(str::to_owned).collect())
    }

    /// Whether any current object is meant, though the tag stands between quotes or among others: who wants to overwrite nothing must not overwrite
    /// something by a slip.
    #[must_use]
    pub fn names_any(&self) -> bool {
        match self {
            EtagMatch::Any => true,
            EtagMatch::OneOf(tags) => tags.iter().any(|tag| tag == "*"),
        }
    }

    /// Whether `etag` is one of the tags.
    #[must_use]
    pub fn matches(&self, etag: &Etag) -> bool {
        match self {
            EtagMatch::Any => true,
            EtagMatch::OneOf(tags) => {
                let etag = etag.to_string();
                tags.contains(&etag)
            }
        }
    }
}

/// A tag without `W/`, quotes and white space.
#[must_use]
pub fn bare_etag(tag: &str) -> &str {
    let tag = tag.trim();
    let tag = tag.strip_prefix("W/").unwrap_or(tag);
    tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag)
}

/// Conditions of GetObject and HeadObject, and of the source of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadConditions {
    /// `If-Match`.
    pub if_match: Option<EtagMatch>,
    /// `If-None-Match`.
    pub if_none_match: Option<EtagMatch>,
    /// `If-Modified-Since`, Unix time in milliseconds.
    pub if_modified_since_ms: Option<u64>,
    /// `If-Unmodified-Since`, Unix time in milliseconds.
    pub if_unmodified_since_ms: Option<u64>,
}

impl ReadConditions {
    /// Checks the conditions of a read against the current object.
    ///
    /// # Errors
    /// `PreconditionFailed`, `NotModified`.
    pub fn check(&self, etag: &Etag, modified_ms: u64, attributes: &Attributes) -> Result<(), StoreError> {
        self.check_positive(etag, modified_ms)?;
        match self.unchanged(etag, modified_ms) {
            Some(_) => Err(StoreError::NotModified(Box::new(Unmodified {
                etag: etag.clone(),
                modified_ms,
                cache_control: attributes.cache_control.clone(),
                expires: attributes.expires.clone(),
            }))),
            None => Ok(()),
        }
    }

    /// Checks the conditions of a copy on its source: nothing is "not modified" there, it is a failed precondition.
    ///
    /// # Errors
    /// `PreconditionFailed`.
    pub fn check_copy(&self, etag: &Etag, modified_ms: u64) -> Result<(), StoreError> {
        self.check_positive(etag, modified_ms)?;
        match self.unchanged(etag, modified_ms) {
            Some(header) => Err(StoreError::PreconditionFailed(header)),
            None => Ok(()),
        }
    }

    fn check_positive(&self, etag: &Etag, modified_ms: u64) -> Result<(), StoreError> {
        match (&self.if_match, self.if_unmodified_since_ms) {
            (Some(tags), _) if !tags.matches(etag) => Err(StoreError::PreconditionFailed("If-Match")),
            (None, Some(since)) if modified_ms / 1000 > since / 1000 => {
                Err(StoreError::PreconditionFailed("If-Unmodified-Since"))
            }
            _ => Ok(()),
        }
    }

    /// The header by which the client has the object already.
    fn unchanged(&self, etag: &Etag, modified_ms: u64) -> Option<&'static str> {
        match (&self.if_none_match, self.if_modified_since_ms) {
            (Some(tags), _) => tags.matches(etag).then_some("If-None-Match"),
            (None, Some(since)) => (modified_ms / 1000 <= since / 1000).then_some("If-Modified-Since"),
            (None, None) => None,
        }
    }
}

/// Conditions of PutObject, CopyObject (destination), CompleteMultipartUpload and DeleteObject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteConditions {
    /// `If-None-Match`: there must be no current object, or none that has this tag.
    pub if_none_match: Option<EtagMatch>,
    /// `If-Match`: there must be a current object, with this tag.
    pub if_match: Option<EtagMatch>,
}

impl WriteConditions {
    /// Checks the conditions of a write against the tag of the current object, if there is one.
    ///
    /// # Errors
    /// `PreconditionFailed`; `NoSuchKey` when an object is asked for and there is none (as AWS).
    pub fn check(&self, current: Option<&Etag>) -> Result<(), StoreError> {
        match (&self.if_match, current) {
            (Some(_), None) => return Err(StoreError::NoSuchKey),
            (Some(tags), Some(etag)) if !tags.matches(etag) => {
                return Err(StoreError::PreconditionFailed("If-Match"));
            }
            _ => {}
        }
        match (&self.if_none_match, current) {
            (Some(tags), Some(etag)) if tags.matches(etag) => Err(StoreError::PreconditionFailed("If-None-Match")),
            _ => Ok(()),
        }
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.if_none_match.is_some() || self.if_match.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0a0000000000000000000000000000ff";
    const B: &str = "0b0000000000000000000000000000ff";

    fn tag(text: &str) -> Etag {
        Etag::Md5(u128::from_str_radix(text, 16).unwrap().to_be_bytes())
    }

    #[test]
    fn tags_are_read_with_and_without_quotes() {
        for (value, matches_a) in [
            ("*", true),
            (A, true),
            (B, false),
            (&format!("\"{A}\""), true),
            (&format!("W/\"{A}\""), true),
            (&format!("\"{B}\", \"{A}\""), true),
            (&format!("{B},{A}"), true),
            ("", false),
            ("\"", false),
        ] {
            assert_eq!(EtagMatch::parse(value).matches(&tag(A)), matches_a, "{value}");
        }
    }

    #[test]
    fn reads_are_judged_in_the_order_of_rfc_9110() {
        // The object has tag A and was modified at 10.5 s. Columns: If-Match, If-Unmodified-Since, If-None-Match,
        // If-Modified-Since, outcome of a read, outcome of a copy.
        type Row = (Option<&'static str>, Option<u64>, Option<&'static str>, Option<u64>, &'static str, &'static str);
        let table: [Row; 16] = [
            (None, None, None, None, "ok", "ok"),
            (Some(A), None, None, None, "ok", "ok"),
            (Some(B), None, None, None, "412 If-Match", "412 If-Match"),
            (Some("*"), None, None, None, "ok", "ok"),
            (None, Some(10_000), None, None, "ok", "ok"),
            (None, Some(9_000), None, None, "412 If-Unmodified-Since", "412 If-Unmodified-Since"),
            (Some(A), Some(9_000), None, None, "ok", "ok"),
            (Some(B), Some(11_000), None, None, "412 If-Match", "412 If-Match"),
            (None, None, Some(A), None, "304", "412 If-None-Match"),
            (None, None, Some(B), None, "ok", "ok"),
            (None, None, Some("*"), None, "304", "412 If-None-Match"),
            (None, None, None, Some(10_000), "304", "412 If-Modified-Since"),
            (None, None, None, Some(9_000), "ok", "ok"),
            (None, None, Some(B), Some(11_000), "ok", "ok"),
            (None, None, Some(A), Some(9_000), "304", "412 If-None-Match"),
            (Some(B), None, Some(A), None, "412 If-Match", "412 If-Match"),
        ];
        for (if_match, unmodified, if_none_match, modified, read, copy) in table {
            let conditions = ReadConditions {
                if_match: if_match.map(EtagMatch::parse),
                if_none_match: if_none_match.map(EtagMatch::parse),
                if_modified_since_ms: modified,
                if_unmodified_since_ms: unmodified,
            };
            assert_eq!(outcome(conditions.check(&tag(A), 10_500, &Attributes::default())), read, "{conditions:?}");
            assert_eq!(outcome(conditions.check_copy(&tag(A), 10_500)), copy, "{conditions:?}");
        }
    }

    #[test]
    fn writes_are_judged_by_the_current_object() {
        let table = [
            (None, None, None, "ok"),
            (None, None, Some(A), "ok"),
            (Some("*"), None, None, "ok"),
            (Some("*"), None, Some(A), "412 If-None-Match"),
            (Some(A), None, Some(A), "412 If-None-Match"),
            (Some(B), None, Some(A), "ok"),
            (Some(A), None, None, "ok"),
            (None, Some(A), Some(A), "ok"),
            (None, Some(B), Some(A), "412 If-Match"),
            (None, Some(A), None, "404"),
            (None, Some("*"), Some(A), "ok"),
            (None, Some("*"), None, "404"),
            (Some("*"), Some(A), Some(A), "412 If-None-Match"),
            (Some("*"), Some(A), None, "404"),
        ];
        for (none, if_match, current, expected) in table {
            let [if_none_match, if_match] = [none, if_match].map(|tags| tags.map(EtagMatch::parse));
            let conditions = WriteConditions { if_none_match, if_match };
            let current = current.map(tag);
            assert_eq!(outcome(conditions.check(current.as_ref())), expected, "{conditions:?} {current:?}");
        }
    }

    fn outcome(result: Result<(), StoreError>) -> String {
        match result {
            Ok(()) => "ok".into(),
            Err(StoreError::PreconditionFailed(header)) => format!("412 {header}"),
            Err(StoreError::NotModified(_)) => "304".into(),
            Err(StoreError::NoSuchKey) => "404".into(),
            Err(error) => format!("{error}"),
        }
    }
}
