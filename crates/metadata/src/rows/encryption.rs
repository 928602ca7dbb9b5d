//! How the bytes of an object are encrypted (docs/adr/0015). What is secret in it is wrapped by a key that is kept elsewhere.

use minicbor::{Decode, Encode};

/// Who keeps the key that wraps an object's data key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum EncryptionScheme {
    /// The site's master key (SSE-S3).
    #[n(0)]
    Master,
    /// A named key of a key service, or of the site's key file (SSE-KMS).
    #[n(1)]
    KeyService,
    /// The customer, who shows it with every request (SSE-C).
    #[n(2)]
    Customer,
}

/// How an object, and each of its parts, is encrypted.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Encryption {
    /// Who keeps the key.
    #[n(0)]
    pub scheme: EncryptionScheme,
    /// Bytes of a frame before it is sealed.
    #[n(1)]
    pub frame_bytes: u32,
    /// The data key, wrapped for this bucket and key.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub wrapped_key: Vec<u8>,
    /// The salt of the object's body; parts have their own.
    #[n(3)]
    pub salt: Salt,
    /// The id of the key that wraps, as it was named; nothing for a customer's.
    #[n(4)]
    pub key_id: Option<String>,
    /// What a key service gave for the key that wraps, to be shown to it again; empty for keys that are at hand.
    #[cbor(n(5), with = "minicbor::bytes")]
    pub service_key: Vec<u8>,
    /// The encryption context, as the client gave it.
    #[n(6)]
    pub context: Option<String>,
    /// Whether the client asked for a bucket key.
    #[n(7)]
    pub bucket_key: bool,
}

/// What makes the key of a body its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(transparent)]
pub struct Salt(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

/// What is to be known of a part of an encrypted object to open it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct SealedPart {
    /// Its salt.
    #[n(0)]
    pub salt: Salt,
    /// Offset of its first byte among the sealed bytes of the object.
    #[n(1)]
    pub start: u64,
}
