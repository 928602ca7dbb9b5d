//! The parameters of a request of AWS's query protocol: a form, lists as `Name.member.1`, structures as `Name.member.1.Key`.

use std::collections::BTreeMap;

use super::super::error::IamError;
use crate::credentials::Tags;
use crate::s3::Query;

/// Most parameters of a request.
const PARAMETERS_MAX: usize = 1000;
/// Most members of a list that are looked at.
const MEMBERS_MAX: usize = 200;

/// Names and values.
#[derive(Debug, Default)]
pub(crate) struct Form(BTreeMap<String, String>);

impl Form {
    /// Reads a form, and what stands in the query beside it.
    ///
    /// # Errors
    /// `MalformedQueryString`.
    pub(crate) fn parse(form: &[u8], query: &Query) -> Result<Self, IamError> {
        let malformed = || IamError::sender("MalformedQueryString", "The query string contains a syntax error.");
        let text = std::str::from_utf8(form).map_err(|_| malformed())?;
        let parsed = Query::parse(text.trim_ascii()).map_err(|_| malformed())?;
        let mut all = BTreeMap::new();
        for (name, value) in parsed.iter().chain(query.iter()) {
            if all.len() >= PARAMETERS_MAX || all.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(malformed());
            }
        }
        Ok(Self(all))
    }

    /// A parameter; an empty one counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.present(name).filter(|value| !value.is_empty())
    }

    /// A parameter, also an empty one.
    pub(crate) fn present(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A parameter that must be there.
    ///
    /// # Errors
    /// `ValidationError`.
    pub(crate) fn required(&self, name: &str) -> Result<&str, IamError> {
        self.get(name).ok_or_else(|| IamError::missing(name))
    }

    /// A number within bounds.
    ///
    /// # Errors
    /// `ValidationError`.
    pub(crate) fn number(&self, name: &str, from: u64, to: u64) -> Result<Option<u64>, IamError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) if (from..=to).contains(&number) => Ok(Some(number)),
            _ => Err(IamError::validation(format!("{name} must be a number from {from} to {to}."))),
        }
    }

    /// The members of a list.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let member = |at: usize| self.0.get(&format!("{name}.member.{at}")).cloned();
        (1..=MEMBERS_MAX).map_while(member).collect()
    }

    /// The members of a list of tags.
    ///
    /// # Errors
    /// `ValidationError`, `InvalidInput`, `LimitExceeded`.
    pub(crate) fn tags(&self, name: &str) -> Result<Tags, IamError> {
        let mut tags = Tags::new();
        for at in 1..=MEMBERS_MAX {
            let of = |part: &str| self.0.get(&format!("{name}.member.{at}.{part}"));
            let (Some(key), value) = (of("Key"), of("Value")) else { break };
            let value = value.map_or("", String::as_str);
            check_tag(key, value)?;
            if tags.iter().any(|(known, _): &(String, String)| known.eq_ignore_ascii_case(key)) {
                return Err(IamError::sender(
                    "InvalidInput",
                    "Duplicate tag keys found. Please note that Tag keys are case insensitive.",
                ));
            }
            tags.push((key.clone(), value.to_owned()));
        }
        if tags.len() > TAGS_MAX {
            return Err(IamError::limit(format!("There may be at most {TAGS_MAX} tags.")));
        }
        Ok(tags)
    }
}

/// Most tags of one entity.
pub(crate) const TAGS_MAX: usize = 50;

fn check_tag(key: &str, value: &str) -> Result<(), IamError> {
    let plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || "_.:/=+-@".contains(c));
    let fits = (1..=128).contains(&key.chars().count()) && value.chars().count() <= 256;
    if fits && plain(key) && plain(value) && !key.to_ascii_lowercase().starts_with("aws:") {
        return Ok(());
    }
    Err(IamError::validation(
        "A tag has a key of 1 to 128 and a value of up to 256 letters, digits, spaces or _.:/=+-@.",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Form {
        Form::parse(text.as_bytes(), &Query::default()).unwrap()
    }

    #[test]
    fn lists_and_tags_are_read_as_far_as_they_go() {
        let form = form("A=x+y%26&L.member.1=a&L.member.2=b&L.member.4=d&T.member.1.Key=k&T.member.1.Value=v&E=");
        assert_eq!((form.get("A"), form.get("E"), form.present("E")), (Some("x y&"), None, Some("")));
        assert_eq!(form.list("L"), ["a", "b"]);
        assert_eq!(form.tags("T").unwrap(), [("k".to_owned(), "v".to_owned())]);
        assert!(form.required("E").is_err() && form.number("A", 1, 2).is_err());
    }

    #[test]
    fn what_is_twice_or_no_text_is_refused() {
        for bad in [&b"A=1&A=2"[..], b"\xff", b"A=%ff"] {
            assert!(Form::parse(bad, &Query::default()).is_err(), "{bad:?}");
        }
        assert!(Form::parse(b"A=1", &Query::parse("A=2").unwrap()).is_err());
        assert!(form("T.member.1.Key=aws:x").tags("T").is_err());
        assert!(form("T.member.1.Key=a&T.member.2.Key=A").tags("T").is_err());
    }
}
