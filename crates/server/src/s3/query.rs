//! The query of a request, decoded.

use percent_encoding::percent_decode;

use crate::error::{S3Code, S3Error};

/// Names and values in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes a query as forms are encoded: `+` is a space.
    ///
    /// # Errors
    /// `InvalidURI` when it is not UTF-8.
    pub(crate) fn parse(query: &str) -> Result<Self, S3Error> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        });
        pairs.collect::<Result<_, S3Error>>().map(Self)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is such a name, with or without a value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(present, _)| present == name)
    }

    /// The value of a name.
    ///
    /// # Errors
    /// `InvalidArgument` when it is there more than once.
    pub(crate) fn get(&self, name: &str) -> Result<Option<&str>, S3Error> {
        let mut values = self.0.iter().filter(|(present, _)| present == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (Some(value), Some(_)) => Err(S3Error::argument(name, value, "The parameter is there more than once.")),
            (value, _) => Ok(value),
        }
    }

    /// The value of a name, or an empty one.
    ///
    /// # Errors
    /// See [`Query::get`].
    pub(crate) fn text(&self, name: &str) -> Result<&str, S3Error> {
        Ok(self.get(name)?.unwrap_or_default())
    }

    /// A number of entries: not negative; nothing when it is not given.
    ///
    /// # Errors
    /// `InvalidArgument` when it is not an integer between 0 and 2147483647.
    pub(crate) fn count(&self, name: &str) -> Result<Option<usize>, S3Error> {
        count(name, self.get(name)?)
    }

    /// What of it has names that are wanted.
    pub(crate) fn only(&self, wanted: impl Fn(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|(name, _)| wanted(name)).cloned().collect())
    }

    /// All names and values, as a slice.
    pub(crate) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// All names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// See [`Query::count`]; for values that come in headers too.
pub(crate) fn count(name: &str, value: Option<&str>) -> Result<Option<usize>, S3Error> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse::<i32>().ok().filter(|_| is_number).and_then(|value| usize::try_from(value).ok()) {
        Some(value) => Ok(Some(value)),
        None => {
            let message = format!("Argument {name} must be an integer between 0 and 2147483647");
            Err(S3Error::argument(name, value, message))
        }
    }
}

/// Whether every percent sign begins an encoded byte.
pub(super) fn is_encoded(text: &str) -> bool {
    let is_byte = |rest: &str| rest.len() >= 2 && rest.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
    text.split('%').skip(1).all(is_byte)
}

fn decode(text: &str) -> Result<String, S3Error> {
    let spaced = text.replace('+', " ");
    match percent_decode(spaced.as_bytes()).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(S3Error::new(S3Code::InvalidURI)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("a=1&b=x%2Fy+z&uploads&&c=").unwrap();
        assert_eq!(query.get("a").unwrap(), Some("1"));
        assert_eq!(query.get("b").unwrap(), Some("x/y z"));
        assert_eq!(query.get("uploads").unwrap(), Some(""));
        assert_eq!(query.get("missing").unwrap(), None);
        assert!(query.has("c") && !query.has("C"));
        assert!(Query::parse("a=%ff").is_err());
        assert!(Query::parse("a=1&a=2").unwrap().get("a").is_err());
    }

    #[test]
    fn percent_signs_begin_bytes() {
        for (text, expected) in [
            ("", true),
            ("a%2Fb%2f", true),
            ("%", false),
            ("a%2", false),
            ("%zz", false),
            ("%2Fü%", false),
            ("%ü", false),
        ] {
            assert_eq!(is_encoded(text), expected, "{text}");
        }
    }

    #[test]
    fn counts_are_not_negative_integers() {
        let table = [
            ("n=0", Ok(Some(0))),
            ("n=5000", Ok(Some(5000))),
            ("n=2147483647", Ok(Some(2_147_483_647))),
            ("n=", Ok(None)),
            ("m=1", Ok(None)),
            ("n=-1", Err(S3Code::InvalidArgument)),
            ("n=2147483648", Err(S3Code::InvalidArgument)),
            ("n=abc", Err(S3Code::InvalidArgument)),
            ("n=1.5", Err(S3Code::InvalidArgument)),
        ];
        for (query, expected) in table {
            assert_eq!(Query::parse(query).unwrap().count("n").map_err(|error| error.code), expected, "{query}");
        }
    }
}
