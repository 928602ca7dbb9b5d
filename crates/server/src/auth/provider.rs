//! Gives s3s the secrets to verify signatures with.

use std::sync::Arc;

use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result};

use crate::credentials::CredentialStore;

/// Looks secrets up in a [`CredentialStore`].
pub(crate) struct Provider(pub(crate) Arc<dyn CredentialStore>);

#[async_trait::async_trait]
impl S3Auth for Provider {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        match self.0.secret_for(access_key) {
            Some(secret) => Ok(SecretKey::from(secret.expose())),
            None => Err(S3Error::with_message(
                S3ErrorCode::InvalidAccessKeyId,
                "The AWS Access Key Id you provided does not exist in our records.",
            )),
        }
    }
}
