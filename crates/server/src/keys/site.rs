//! The site's own key: for sites that have configured none, so that what asks for SSE-S3 is served as on AWS.
//!
//! It lies in the log beside what it encrypts, as durable as that: nothing can be lost with a file, and nothing is kept from those who have the
//! drives. Whoever wants that configures keys of his own (docs/operations/encryption.md).

use bytes::Bytes;
use gabion_platform::Entropy;
use gabion_store::{ConfigScope, SecretKey, Store, StoreError};

/// Its id, as clients see it.
pub(super) const ID: &str = "gabion-site";
/// The site's document that holds it.
const NAME: &str = "encryption/site-key";

/// The site's key, if it has one; where it is `wanted` it is made when there is none.
///
/// # Errors
/// Those of the store; `Corrupt` for a document that is no key.
pub async fn site_key(store: &Store, wanted: bool, entropy: &dyn Entropy) -> Result<Option<SecretKey>, StoreError> {
    if let Some(kept) = store.site_config(NAME)? {
        let key = SecretKey::from_slice(&kept);
        return key.map(Some).ok_or_else(|| StoreError::Corrupt("the site's key is none".into()));
    }
    if !wanted {
        return Ok(None);
    }
    let key = SecretKey::filled(|bytes| entropy.fill(bytes));
    store.put_config(ConfigScope::Site, NAME, Bytes::copy_from_slice(key.expose())).await?;
    Ok(Some(key))
}
