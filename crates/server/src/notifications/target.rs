//! The targets that the operator names: where notifications go.

use std::collections::BTreeSet;

use crate::address::{check_web_address, host_and_port};
use crate::credentials::SecretKey;

/// Longest name of a target.
const NAME_BYTES_MAX: usize = 64;
const NATS_PORT: u16 = 4222;

/// Somebody who is notified.
#[derive(Clone, Debug)]
pub struct NotificationTarget {
    /// What ARNs end with that mean it: letters, digits, `-` and `_`.
    pub name: String,
    /// Where it is.
    pub destination: Destination,
    /// What it knows the server by: for a webhook the token of `Authorization: Bearer`; for NATS a token, a user and a password (two lines),
    /// or the content of a file of credentials.
    pub secret: Option<SecretKey>,
    /// The accounts whose buckets may mean it, by their ids of 12 digits; those of any account when none is named.
    pub accounts: BTreeSet<String>,
}

/// Where a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Messages are posted there.
    Webhook {
        /// `http://` or `https://`.
        url: String,
    },
    /// Messages are published to a stream of JetStream.
    Nats {
        /// Addresses of servers of one cluster.
        servers: Vec<String>,
        /// The subject, which a stream must keep.
        subject: String,
        /// Whether the connection must be encrypted.
        tls: bool,
    },
}

impl NotificationTarget {
    /// Reads `NAME=URL`: `http://` or `https://` for a webhook, `nats://` or `tls://HOST[:PORT][+HOST…]/SUBJECT` for NATS. (A comma
    /// is between targets where several are given in one text.)
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
        // What is said of an address is logged, and a password may hold whatever ends a host.
        if rest.contains('@') {
            return Err(format!(
                "the address of {name} holds a user: that belongs into a file (notifications.token_files)"
            ));
        }
        let destination = match scheme {
            "http" | "https" => {
                check_web_address(url)?;
                Destination::Webhook { url: url.to_owned() }
            }
            "nats" | "tls" => nats(url, scheme, rest)?,
            _ => return Err(format!("{url:?} must begin with http://, https://, nats:// or tls://")),
        };
        Ok(Self { name: name.to_owned(), destination, secret: None, accounts: BTreeSet::new() })
    }
}

fn nats(url: &str, scheme: &str, rest: &str) -> Result<Destination, String> {
    let (hosts, subject) =
        rest.split_once('/').ok_or_else(|| format!("{url:?} names no subject: {scheme}://HOST/SUBJECT"))?;
    let is_token = |token: &str| {
        !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic() && !b"*>/?#".contains(&byte))
    };
    if !subject.split('.').all(is_token) {
        return Err(format!("{subject:?} is no subject to publish to"));
    }
    let server = |server: &str| {
        let (host, port) = host_and_port(server, NATS_PORT).map_err(|error| format!("{url:?}: {error}"))?;
        Ok::<_, String>(format!("{scheme}://{host}:{port}"))
    };
    let servers = hosts.split('+').map(server).collect::<Result<_, _>>()?;
    Ok(Destination::Nats { servers, subject: subject.to_owned(), tls: scheme == "tls" })
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
        let bus = |servers: &[&str], tls| Destination::Nats {
            servers: servers.iter().map(|server| (*server).to_owned()).collect(),
            subject: "s3.events".into(),
            tls,
        };
        assert_eq!(read("b=nats://h/s3.events"), Ok(("b".into(), bus(&["nats://h:4222"], false))));
        let two = bus(&["tls://h:1", "tls://i:4222"], true);
        assert_eq!(read("b=tls://h:1+i/s3.events"), Ok(("b".into(), two)));
        for text in [
            "",
            "http://h/",
            "a b=http://h/",
            "=http://h/",
            "a=ftp://h/",
            "a=http://",
            "a=http://user:secret@h/",
            "a=http://user:se/secret@h/",
            "a=nats://user:se/secret@h/x",
            "a=http://h:/",
            "a=https://h:99999/",
            "a=nats://h:0/x",
            "a=nats://h:1+i:99999/x",
            "a=nats://h",
            "a=nats://h/",
            "a=nats://h/a.*",
            "a=nats://h/a..b",
            "a=nats:///x",
            "a=nats://user:secret@h/x",
            "a=nats://g+user:secret@h/x",
            "a=amqp://user:secret@h/x",
        ] {
            let error = read(text).unwrap_err();
            assert!(!error.contains("secret"), "{text}: {error}");
        }
    }
}
