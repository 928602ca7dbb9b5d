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
}
