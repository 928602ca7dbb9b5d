//! Policies of browser forms: until when a form holds, and what its fields must say.
//!
//! A policy was signed by who may write; it can only narrow what its form may do. Pure: text and fields in, verdict out.
//! Source: AWS, "Creating a POST policy"; the texts of refusals are AWS's.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::Fields;
use crate::error::{S3Code, S3Error};
use crate::s3::date;

/// What is said of a policy in which something is of another type than it should be.
const NO_JSON: &str = "Invalid JSON.";
/// Fields that a policy needs not name.
const EXEMPT: &[&str] = &["awsaccesskeyid", "signature", "x-amz-signature", "policy", "file"];
/// The same for all that begin so: what is for others than the server, and what only makes sure that the file arrived whole.
const EXEMPT_PREFIXES: &[&str] = &["x-ignore-", "x-amz-checksum-"];

/// A policy.
#[derive(Debug)]
pub(super) struct Policy {
    expires_ms: u64,
    conditions: Vec<Condition>,
    /// Least and most bytes of the file.
    length: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Condition {
    /// In lower case.
    field: String,
    test: Test,
    /// As it stands in the policy, for who reads the refusal.
    text: String,
}

#[derive(Debug)]
enum Test {
    Equals(String),
    StartsWith(String),
    Never,
}

fn invalid(text: impl std::fmt::Display) -> S3Error {
    S3Error::with(S3Code::InvalidPolicyDocument, format!("Invalid Policy: {text}"))
}

fn denied(text: impl std::fmt::Display) -> S3Error {
    S3Error::with(S3Code::AccessDenied, format!("Invalid according to Policy: {text}"))
}

impl Policy {
    /// Reads the value of the field `policy`.
    ///
    /// # Errors
    /// `InvalidPolicyDocument`.
    pub(super) fn parse(field: &str) -> Result<Self, S3Error> {
        let bytes = BASE64_STANDARD.decode(field.trim()).map_err(|_| invalid("invalid Base64 encoding."))?;
        if bytes.is_empty() {
            return Err(invalid("Expecting '{' but found End-of-Input"));
        }
        let Ok(Value::Object(policy)) = serde_json::from_slice(&bytes) else { return Err(invalid(NO_JSON)) };
        if let Some(name) = policy.keys().find(|name| !["expiration", "conditions"].contains(&name.as_str())) {
            return Err(invalid(format_args!("Unexpected: \"{name}\"")));
        }
        let expires_ms = match policy.get("expiration") {
            None => return Err(invalid("Policy missing expiration.")),
            Some(value) => {
                let text = value.as_str().ok_or_else(|| invalid(NO_JSON))?;
                moment_ms(text).ok_or_else(|| invalid(format_args!("Invalid 'expiration' value: '{text}'")))?
            }
        };
        let mut parsed = Self { expires_ms, conditions: Vec::new(), length: None };
        match policy.get("conditions") {
            None => return Err(invalid("Policy missing conditions.")),
            Some(Value::Array(conditions)) if !conditions.is_empty() => {
                conditions.iter().try_for_each(|condition| parsed.add(condition))?;
            }
            Some(_) => return Err(invalid("Invalid 'conditions' value: must be a List.")),
        }
        Ok(parsed)
    }

    fn add(&mut self, condition: &Value) -> Result<(), S3Error> {
        let (field, test) = match condition {
            Value::Object(pair) => {
                let mut pairs = pair.iter();
                let (Some((field, value)), None) = (pairs.next(), pairs.next()) else {
                    let text = "Invalid Simple-Condition: Simple-Conditions must have exactly one property specified.";
                    return Err(invalid(text));
                };
                let value =
                    value.as_str().ok_or_else(|| invalid("Invalid Simple-Condition: value must be a string."))?;
                (field.clone(), Test::Equals(value.to_owned()))
            }
            Value::Array(list) => {
                let Some(operation) = list.first().and_then(Value::as_str) else {
                    return Err(invalid("Invalid Condition: missing operation identifier."));
                };
                let wrong = || invalid(format_args!("Invalid {operation}: wrong number of arguments."));
                let [_, first, second] = &list[..] else { return Err(wrong()) };
                if operation.eq_ignore_ascii_case("content-length-range") {
                    let range = bytes(first).zip(bytes(second)).ok_or_else(|| invalid(NO_JSON))?;
                    // All of several must hold.
                    let (least, most) = self.length.unwrap_or((0, u64::MAX));
                    self.length = Some((least.max(range.0), most.min(range.1)));
                    return Ok(());
                }
                let (Some(field), Some(value)) = (first.as_str(), second.as_str()) else {
                    return Err(invalid(NO_JSON));
                };
                let test = match operation.to_ascii_lowercase().as_str() {
                    "eq" => Test::Equals(value.to_owned()),
                    "starts-with" => Test::StartsWith(value.to_owned()),
                    _ => return Err(invalid(format_args!("Invalid Condition: unknown operation '{operation}'."))),
                };
                match field.strip_prefix('$') {
                    Some(field) => (field.to_owned(), test),
                    // What names no field holds of none.
                    None => (String::new(), Test::Never),
                }
            }
            _ => return Err(invalid("Invalid condition test: must be a List or Object.")),
        };
        let text = match (condition, &test) {
            (Value::Object(_), Test::Equals(value)) => format!("[\"eq\", \"${field}\", \"{value}\"]"),
            _ => condition.to_string(),
        };
        self.conditions.push(Condition { field: field.to_ascii_lowercase(), test, text });
        Ok(())
    }

    /// Whether a form may do what its fields say. `bucket` is the one that the request names.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(super) fn check(&self, fields: &Fields, bucket: &str, now_ms: u64) -> Result<(), S3Error> {
        if now_ms >= self.expires_ms {
            return Err(denied("Policy expired."));
        }
        let is_named = |name: &str| self.conditions.iter().any(|condition| condition.field == name);
        let is_free = |name: &str| {
            EXEMPT.contains(&name) || EXEMPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || is_named(name)
        };
        if let Some((name, _)) = fields.iter().find(|(name, _)| !is_free(name)) {
            return Err(denied(format_args!("Extra input fields: {name}")));
        }
        if !is_named("bucket") {
            return Err(denied("Extra input fields: bucket"));
        }
        for condition in &self.conditions {
            let value = if condition.field == "bucket" { Some(bucket) } else { fields.get(&condition.field) };
            // Where any value would do, none does as well.
            let any = matches!(&condition.test, Test::StartsWith(prefix) if prefix.is_empty());
            let holds = value.map_or(any, |value| match &condition.test {
                Test::Equals(expected) => value == expected,
                // A list of types: each of them.
                Test::StartsWith(prefix) if condition.field == "content-type" => {
                    value.split(',').all(|entry| entry.trim().starts_with(prefix.as_str()))
                }
                Test::StartsWith(prefix) => value.starts_with(prefix.as_str()),
                Test::Never => false,
            });
            if !holds {
                return Err(denied(format_args!("Policy Condition failed: {}", condition.text)));
            }
        }
        Ok(())
    }

    /// Least and most bytes of the file, if the policy says so.
    pub(super) fn length(&self) -> Option<(u64, u64)> {
        self.length
    }
}

/// A number of bytes, which some clients write as a text.
fn bytes(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Unix time in milliseconds of `2026-01-01T00:00:00[.000]Z`.
fn moment_ms(text: &str) -> Option<u64> {
    // No other zone.
    date::parse_iso(text).filter(|_| text.ends_with('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_767_225_600_000;

    fn parse(text: &str) -> Result<Policy, S3Error> {
        Policy::parse(&BASE64_STANDARD.encode(text))
    }

    fn with(conditions: &str) -> String {
        format!("{{\"expiration\": \"2026-01-02T00:00:00.000Z\", \"conditions\": [{conditions}]}}")
    }

    #[test]
    fn policies_are_read_strictly() {
        let good = with("{\"bucket\": \"b\"}, [\"starts-with\", \"$Key\", \"\"], [\"content-length-range\", 1, \"9\"]");
        assert_eq!(parse(&good).unwrap().length(), Some((1, 9)));
        for (text, message) in [
            ("", "Expecting '{' but found End-of-Input"),
            ("{", "Invalid JSON."),
            ("[]", "Invalid JSON."),
            ("{\"conditions\": [{\"bucket\": \"b\"}]}", "Policy missing expiration."),
            ("{\"expiration\": \"2026-01-02T00:00:00Z\"}", "Policy missing conditions."),
            ("{\"EXPIRATION\": \"2026-01-02T00:00:00Z\", \"conditions\": []}", "Unexpected: \"EXPIRATION\""),
            (
                "{\"expiration\": \"2026-01-02 00:00:00Z\", \"conditions\": []}",
                "Invalid 'expiration' value: '2026-01-02 00:00:00Z'",
            ),
            ("{\"expiration\": 1, \"conditions\": []}", "Invalid JSON."),
            (&with(""), "Invalid 'conditions' value: must be a List."),
            (&with("1"), "Invalid condition test: must be a List or Object."),
            (
                &with("{\"a\": \"b\", \"c\": \"d\"}"),
                "Invalid Simple-Condition: Simple-Conditions must have exactly one property specified.",
            ),
            (&with("{\"a\": 1}"), "Invalid Simple-Condition: value must be a string."),
            (&with("[]"), "Invalid Condition: missing operation identifier."),
            (&with("[\"eq\", \"$a\"]"), "Invalid eq: wrong number of arguments."),
            (&with("[\"content-length-range\", 0]"), "Invalid content-length-range: wrong number of arguments."),
            (&with("[\"content-length-range\", -1, 0]"), "Invalid JSON."),
            (&with("[\"eq\", \"$a\", true]"), "Invalid JSON."),
            (&with("[\"like\", \"$a\", \"b\"]"), "Invalid Condition: unknown operation 'like'."),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(
                (error.code, &*error.message),
                (S3Code::InvalidPolicyDocument, &*format!("Invalid Policy: {message}")),
                "{text}"
            );
        }
        assert_eq!(Policy::parse("{").unwrap_err().message, "Invalid Policy: invalid Base64 encoding.");
    }

    #[test]
    fn fields_must_be_named_and_meet_their_conditions() {
        let policy = parse(&with(
            "{\"bucket\": \"b\"}, [\"starts-with\", \"$key\", \"user/\"], {\"ACL\": \"private\"}, \
             [\"starts-with\", \"$Content-Type\", \"image/\"]",
        ))
        .unwrap();
        let good = [("key", "user/a"), ("acl", "private"), ("content-type", "image/png, image/gif")];
        let more: &[(&str, &str)] = &[("x-ignore-a", "1"), ("signature", "s"), ("policy", "p")];
        let check = |fields: &[(&str, &str)], bucket, now_ms| {
            policy.check(&Fields::of(fields), bucket, now_ms).map_err(|error| error.message.into_owned())
        };
        assert_eq!(check(&[&good[..], more].concat(), "b", NOW_MS), Ok(()));
        let with = |name: &'static str, value: &'static str| {
            let mut fields: Vec<_> = good.into_iter().filter(|(other, _)| *other != name).collect();
            fields.push((name, value));
            fields
        };
        let failed = |text: &str| Err(format!("Invalid according to Policy: {text}"));
        assert_eq!(check(&with("x-amz-meta-a", "1"), "b", NOW_MS), failed("Extra input fields: x-amz-meta-a"));
        assert_eq!(check(&good, "c", NOW_MS), failed("Policy Condition failed: [\"eq\", \"$bucket\", \"b\"]"));
        assert_eq!(
            check(&with("key", "other/a"), "b", NOW_MS),
            failed("Policy Condition failed: [\"starts-with\",\"$key\",\"user/\"]")
        );
        assert!(check(&with("acl", "public-read"), "b", NOW_MS).is_err());
        assert!(check(&with("content-type", "image/png,text/plain"), "b", NOW_MS).is_err());
        assert!(check(&good[..2], "b", NOW_MS).is_err(), "a field with a condition must be there");
        let any = parse(&super::tests::with("{\"bucket\": \"b\"}, [\"starts-with\", \"$x-amz-a\", \"\"]")).unwrap();
        assert!(any.check(&Fields::of(&[("key", "k")]), "b", NOW_MS).is_err(), "the key has no condition");
        assert!(any.check(&Fields::of(&[]), "b", NOW_MS).is_ok(), "where any value would do, none does as well");
        assert_eq!(check(&good, "b", NOW_MS + 86_400_000), failed("Policy expired."));
        let nameless =
            parse(&super::tests::with("{\"bucket\": \"b\"}, [\"eq\", \"key\", \"k\"], [\"eq\", \"$key\", \"k\"]"));
        let error = nameless.unwrap().check(&Fields::of(&[("key", "k")]), "b", NOW_MS).unwrap_err();
        assert_eq!(error.message, "Invalid according to Policy: Policy Condition failed: [\"eq\",\"key\",\"k\"]");
        let anywhere = parse(&super::tests::with("[\"starts-with\", \"$key\", \"\"]")).unwrap();
        let error = anywhere.check(&Fields::of(&[("key", "k")]), "b", NOW_MS).unwrap_err();
        assert_eq!(error.message, "Invalid according to Policy: Extra input fields: bucket");
    }
}
