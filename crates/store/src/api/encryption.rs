//! Encryption: how something is to be encrypted, and who keeps the keys.

use futures::future::BoxFuture;
use gabion_encryption::SecretKey;
use gabion_metadata::rows::{Encryption, EncryptionScheme};

use crate::KeyError;

/// How something new is to be encrypted; for a part, which is encrypted as its upload is: the customer's key.
#[derive(Clone, Debug)]
pub struct Encrypt {
    /// Who keeps the key.
    pub scheme: EncryptionScheme,
    /// The customer's key, in that scheme only.
    pub customer: Option<SecretKey>,
    /// The key that is named; nothing for the usual one.
    pub key_id: Option<String>,
    /// The encryption context, as the client gave it.
    pub context: Option<String>,
    /// Whether a bucket key is asked for. It is told again, and changes nothing.
    pub bucket_key: bool,
}

impl Encrypt {
    /// With the customer's key.
    #[must_use]
    pub fn with_customer(key: SecretKey) -> Self {
        Self { customer: Some(key), ..Self::by(EncryptionScheme::Customer) }
    }

    /// With the usual key of a scheme.
    #[must_use]
    pub fn by(scheme: EncryptionScheme) -> Self {
        Self { scheme, customer: None, key_id: None, context: None, bucket_key: false }
    }
}

/// The keys of a copy: of what is read, and of what is written.
#[derive(Clone, Debug, Default)]
pub struct CopyKeys {
    /// The customer's key of the source.
    pub source: Option<SecretKey>,
    /// How the copy is encrypted. Of a part, which is encrypted as its upload is, the customer's key counts.
    pub target: Option<Encrypt>,
    /// Whether who copies says how: then a copy of an object to itself changes something, as on AWS.
    pub is_asked: bool,
}

/// A key that wraps data keys.
#[derive(Clone, Debug)]
pub struct WrappingKey {
    /// Its id.
    pub id: String,
    /// The key.
    pub key: SecretKey,
    /// What a key service needs to give it again; empty when it is at hand.
    pub service_key: Vec<u8>,
}

/// Keeps the keys that wrap data keys, but for customers'.
pub trait KeyKeeper: Send + Sync {
    /// The key that wraps new data keys: the master key, or one that is named, or the usual one of those that can be.
    fn wrapping_key<'a>(
        &'a self,
        scheme: EncryptionScheme,
        id: Option<&'a str>,
    ) -> BoxFuture<'a, Result<WrappingKey, KeyError>>;

    /// The key that wrapped a data key.
    fn key_of<'a>(&'a self, encryption: &'a Encryption) -> BoxFuture<'a, Result<SecretKey, KeyError>>;

    /// Whether two ids name one key.
    fn is_same(&self, one: &str, other: &str) -> bool;
}
