//! What a client said about an object beside its bytes.

use minicbor::{Decode, Encode};

use super::Encryption;

/// System headers, user metadata and tags of an object, as the client gave them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct Attributes {
    /// `Content-Type`.
    #[n(0)]
    pub content_type: Option<String>,
    /// `Cache-Control`.
    #[n(1)]
    pub cache_control: Option<String>,
    /// `Content-Disposition`.
    #[n(2)]
    pub content_disposition: Option<String>,
    /// `Content-Encoding`, without `aws-chunked`.
    #[n(3)]
    pub content_encoding: Option<String>,
    /// `Content-Language`.
    #[n(4)]
    pub content_language: Option<String>,
    /// `Expires`, not interpreted.
    #[n(5)]
    pub expires: Option<String>,
    /// `x-amz-website-redirect-location`.
    #[n(6)]
    pub website_redirect: Option<String>,
    /// `x-amz-storage-class`; nothing means `STANDARD`.
    #[n(7)]
    pub storage_class: Option<String>,
    /// `x-amz-meta-*`: names without that prefix, in lower case, with their values.
    #[n(8)]
    pub user: Vec<(String, String)>,
    /// Tags, in the order given.
    #[n(9)]
    pub tags: Vec<(String, String)>,
    /// Canonical id of the account that owns it; nothing means the bucket's owner.
    #[n(10)]
    pub owner: Option<String>,
    /// What is granted on it, as the server writes it; nothing means that only its owner may do anything.
    #[n(11)]
    pub acl: Option<String>,
    /// How its bytes are encrypted; nothing when they are not.
    #[n(12)]
    pub encryption: Option<Box<Encryption>>,
    /// Until when it may not be deleted.
    #[n(13)]
    pub retention: Option<Retention>,
    /// Whether it may not be deleted until this is taken back.
    #[n(14)]
    pub legal_hold: Option<bool>,
    /// Id of the user whose object it is where users are limited: who made it. Nothing for all that no user made.
    #[n(15)]
    pub creator: Option<String>,
    /// How often bytes were appended to it.
    #[n(16)]
    pub appends: Option<u32>,
    /// What gave it its key, if it had another one before and was to be told again.
    #[n(17)]
    pub renamed: Option<Box<Renamed>>,
}

/// The renaming of an object that its client may ask for again.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Renamed {
    /// The key that it had.
    #[n(0)]
    pub from: String,
    /// The client's token.
    #[n(1)]
    pub token: String,
}

/// Until when a version of an object may not be deleted, and whether anybody may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Retention {
    /// Whether anybody may.
    #[n(0)]
    pub mode: RetentionMode,
    /// Unix time in milliseconds.
    #[n(1)]
    pub until_ms: u64,
}

/// Who may delete a version before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum RetentionMode {
    /// Who has the permission to, and says so.
    #[n(0)]
    Governance,
    /// Nobody.
    #[n(1)]
    Compliance,
}
