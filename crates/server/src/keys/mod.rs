//! The keys that wrap the data keys of encrypted objects: of a local file, of a transit engine (HashiCorp Vault, OpenBao), and the site's own.
//!
//! A key is looked for in the file first. Nothing of a key is ever logged; what holds one is wiped when it is dropped.

mod cache;
mod file;
mod site;
mod transit;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use gabion_platform::Clock;
use gabion_store::{Encryption, EncryptionScheme, KeyError, KeyKeeper, SecretKey, WrappingKey};

pub use file::{KeyFile, KeyFileError};
pub use site::site_key;
pub use transit::{TransitError, TransitOptions};

use transit::Transit;

/// Where keys come from, and which of them are the usual ones.
pub struct KeyRing {
    file: KeyFile,
    transit: Option<Transit>,
    /// The site's own; found behind all others.
    site: Option<SecretKey>,
    master: Option<String>,
    usual: Option<String>,
}

/// Where keys come from.
#[derive(Debug, Default)]
pub struct KeySources {
    /// Keys that are at hand.
    pub file: KeyFile,
    /// A transit engine.
    pub transit: Option<TransitOptions>,
    /// The key of SSE-S3; the first of the file, if none is named.
    pub master: Option<String>,
    /// The key of SSE-KMS where a request names none; without it such a request is refused, unless there is no key but the site's own.
    pub usual: Option<String>,
}

impl KeyRing {
    /// Of these sources.
    ///
    /// # Errors
    /// When the transit engine can not be spoken to as it is configured. It is not asked yet.
    pub fn new(sources: KeySources, clock: Arc<dyn Clock>) -> Result<Self, TransitError> {
        let KeySources { file, transit, master, usual } = sources;
        let transit = transit.map(|options| Transit::new(options, clock)).transpose()?;
        let master = master.or_else(|| file.first().map(str::to_owned));
        Ok(Self { file, transit, site: None, master, usual })
    }

    /// With the site's own key too. Where there are no others it is the one for SSE-S3, and for SSE-KMS where a request names none.
    #[must_use]
    pub fn with_site(self, site: SecretKey) -> Self {
        let of_site = || self.has_none().then(|| site::ID.to_owned());
        let (master, usual) = (self.master.clone().or_else(of_site), self.usual.clone().or_else(of_site));
        Self { site: Some(site), master, usual, ..self }
    }

    /// Whether there are no keys but the site's, and none to be asked for.
    #[must_use]
    pub fn has_none(&self) -> bool {
        self.file.first().is_none() && self.transit.is_none()
    }

    /// Whether a key is at hand, or may be that of a transit engine, or the site's own.
    #[must_use]
    pub fn may_have(&self, id: &str) -> bool {
        self.transit.is_some() || self.file.get(bare(id)).is_some() || bare(id) == site::ID
    }

    /// Whether it is known which key serves a request that names none.
    #[must_use]
    pub fn has_usual(&self, scheme: EncryptionScheme) -> bool {
        match scheme {
            EncryptionScheme::Master => self.master.is_some(),
            _ => self.usual.is_some(),
        }
    }

    /// A key that is at hand.
    fn here(&self, id: &str) -> Option<&SecretKey> {
        self.file.get(id).or_else(|| self.site.as_ref().filter(|_| id == site::ID))
    }

    async fn find(&self, id: &str) -> Result<WrappingKey, KeyError> {
        if let Some(key) = self.here(bare(id)) {
            return Ok(WrappingKey { id: id.to_owned(), key: key.clone(), service_key: Vec::new() });
        }
        match &self.transit {
            Some(transit) => {
                let (key, service_key) = transit.new_key(bare(id)).await?;
                Ok(WrappingKey { id: id.to_owned(), key, service_key })
            }
            None => Err(KeyError::NotFound(id.to_owned())),
        }
    }
}

impl KeyKeeper for KeyRing {
    fn wrapping_key<'a>(
        &'a self,
        scheme: EncryptionScheme,
        id: Option<&'a str>,
    ) -> BoxFuture<'a, Result<WrappingKey, KeyError>> {
        let id = match scheme {
            EncryptionScheme::Master => self.master.as_deref().ok_or(KeyError::NoKeeper),
            _ => id.or(self.usual.as_deref()).ok_or_else(|| KeyError::NotFound("alias/aws/s3".to_owned())),
        };
        async move { self.find(id?).await }.boxed()
    }

    fn key_of<'a>(&'a self, encryption: &'a Encryption) -> BoxFuture<'a, Result<SecretKey, KeyError>> {
        async move {
            let id = encryption.key_id.as_deref().unwrap_or_default();
            if encryption.service_key.is_empty() {
                return self.here(bare(id)).cloned().ok_or_else(|| KeyError::NotFound(id.to_owned()));
            }
            match &self.transit {
                Some(transit) => transit.known_key(bare(id), &encryption.service_key).await,
                None => Err(KeyError::NotFound(id.to_owned())),
            }
        }
        .boxed()
    }

    fn is_same(&self, one: &str, other: &str) -> bool {
        bare(one) == bare(other)
    }
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRing").field("file", &self.file).field("transit", &self.transit).finish_non_exhaustive()
    }
}

/// The name of a key, of which a request may also give an ARN or an alias.
fn bare(id: &str) -> &str {
    let resource = match id.strip_prefix("arn:") {
        Some(arn) => arn.rsplit(':').next().unwrap_or(arn),
        None => id,
    };
    resource.strip_prefix("key/").or_else(|| resource.strip_prefix("alias/")).unwrap_or(resource)
}

#[cfg(test)]
mod tests {
    use gabion_platform::SystemClock;

    use super::*;

    #[test]
    fn keys_have_names_arns_and_aliases() {
        for id in ["k1", "arn:aws:kms:us-east-1:1:key/k1", "alias/k1", "arn:aws:kms:eu:1:alias/k1"] {
            assert_eq!(bare(id), "k1", "{id}");
        }
    }

    #[tokio::test]
    async fn the_sites_key_serves_where_there_is_no_other() {
        let site = || SecretKey::filled(|bytes| bytes.fill(7));
        let ring = |file| {
            let sources = KeySources { file, ..KeySources::default() };
            KeyRing::new(sources, Arc::new(SystemClock)).unwrap().with_site(site())
        };
        let alone = ring(KeyFile::default());
        for scheme in [EncryptionScheme::Master, EncryptionScheme::KeyService] {
            assert_eq!(alone.wrapping_key(scheme, None).await.unwrap().id, site::ID);
        }
        let beside = ring(KeyFile::parse(&format!("k {}", "AAAA".repeat(10) + "AAA=")).unwrap());
        assert_eq!(beside.wrapping_key(EncryptionScheme::Master, None).await.unwrap().id, "k");
        assert!(beside.wrapping_key(EncryptionScheme::KeyService, None).await.is_err());
        assert!(beside.here(site::ID).is_some(), "what it encrypted before can be read");
        assert!(!format!("{alone:?}").contains('7'));
    }

    #[tokio::test]
    async fn the_first_key_of_the_file_is_the_master_key() {
        let text = format!("new {}\nold {}\n", "AAAA".repeat(10) + "AAA=", "AQEB".repeat(10) + "AQE=");
        let sources = |master: Option<&str>| KeySources {
            file: KeyFile::parse(&text).unwrap(),
            master: master.map(str::to_owned),
            ..KeySources::default()
        };
        let ring = |master| KeyRing::new(sources(master), Arc::new(SystemClock)).unwrap();
        let id = |key: Result<WrappingKey, KeyError>| key.map(|key| key.id);
        assert_eq!(id(ring(None).wrapping_key(EncryptionScheme::Master, None).await), Ok("new".to_owned()));
        assert_eq!(id(ring(Some("old")).wrapping_key(EncryptionScheme::Master, None).await), Ok("old".to_owned()));
        let ring = ring(None);
        let named = |id| ring.wrapping_key(EncryptionScheme::KeyService, id);
        assert_eq!(id(named(Some("alias/old")).await), Ok("alias/old".to_owned()));
        assert_eq!(id(named(Some("other")).await), Err(KeyError::NotFound("other".to_owned())));
        assert!(matches!(named(None).await, Err(KeyError::NotFound(_))), "no key is the usual one");
        assert!(!format!("{ring:?}").contains("AAAA"));
    }
}
