//! The targets that the operator names: where notifications go.

use crate::credentials::SecretKey;

/// Longest name of a target.
const NAME_BYTES_MAX: usize = 64;

/// Somebody who is notified.
#[derive(Clone, Debug)]
pub struct NotificationTarget {
    /// What ARNs end with that mean it: letters, digits, `-` and `_`.
    pub name: String,
    /// Where it is.
    pub destination: Destination,
    /// What it knows the server by: for a webhook the token of `Authorization: Bearer`.
    pub secret: Option<SecretKey>,
}

/// Where a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Messages are posted there.
    Webhook {
        /// `http://` or `https://`.
        url: String,
    },
}

impl NotificationTarget {
    /// Reads `NAME=URL`: `http://` or `https://` for a webhook.
    ///
    /// # Errors
    /// With a sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, url) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=URL"))?;
        let is_named = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_named) {
            return Err(format!("{name:?} is no name of a target: up to {NAME_BYTES_MAX} letters, digits, '-' or '_'"));
        }
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let destination = match scheme {
            "http" | "https" => {
                let uri: http::Uri = url.parse().map_err(|error| format!("{url:?}: {error}"))?;
                if uri.host().is_none_or(str::is_empty) || rest.contains('@') {
                    return Err(format!("{url:?} is no address of a webhook"));
                }
                Destination::Webhook { url: url.to_owned() }
            }
            _ => return Err(format!("{url:?} must begin with http:// or https://")),
        };
        Ok(Self { name: name.to_owned(), destination, secret: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_a_name_and_an_address() {
        let read = |text: &str| NotificationTarget::parse(text).map(|target| (target.name, target.destination));
        let webhook = |url: &str| Destination::Webhook { url: url.into() };
        assert_eq!(read("a-1=https://h.example/x?y=z"), Ok(("a-1".into(), webhook("https://h.example/x?y=z"))));
        assert_eq!(read("a=http://[::1]:80/"), Ok(("a".into(), webhook("http://[::1]:80/"))));
        for text in
            ["", "http://h/", "a b=http://h/", "=http://h/", "a=ftp://h/", "a=http://", "a=http://user:secret@h/"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
