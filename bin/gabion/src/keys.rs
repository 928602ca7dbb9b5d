//! The keys of encrypted objects, from the settings.

use std::sync::Arc;

use gabion_platform::{OsEntropy, SystemClock};
use gabion_server::keys::{KeyFile, KeyRing, KeySources, TransitOptions, site_key};
use gabion_store::Store;

use crate::config::Config;
use crate::exit::Failure;

/// Where keys come from, but for the site's own.
///
/// # Errors
/// When the file can not be used.
pub(crate) fn sources(config: &Config) -> Result<KeySources, Failure> {
    let file = match &config.encryption_keys {
        Some(path) => KeyFile::load(path)
            .map_err(|error| Failure::config(format!("encryption.keys: {}: {error}", path.display())))?,
        None => KeyFile::default(),
    };
    let transit = match (&config.vault_url, &config.vault_token_file) {
        (Some(url), Some(token_file)) => Some(TransitOptions {
            url: url.clone(),
            mount: config.vault_mount.clone(),
            token_file: token_file.clone(),
            namespace: config.vault_namespace.clone(),
            ca: config.vault_ca.clone(),
            timeout: config.vault_timeout.0,
            cache: config.vault_cache.0,
        }),
        _ => None,
    };
    let (master, usual) = (config.encryption_master_key.clone(), config.encryption_kms_key.clone());
    Ok(KeySources { file, transit, site: None, master, usual })
}

/// The keys that a store is to use: those of `sources`, and the site's own, which is made where there are no others. A store that can not keep it
/// now does without until the next start.
///
/// # Errors
/// When Vault can not be spoken to as it is configured. It is not asked yet.
pub(crate) async fn ring(sources: KeySources, store: &Store) -> Result<KeyRing, Failure> {
    let wanted = sources.has_none();
    let site = site_key(store, wanted, &OsEntropy).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the site's key can not be had: SSE-S3 is not served without keys of your own (encryption.keys)");
        None
    });
    let ring = KeyRing::new(KeySources { site, ..sources }, Arc::new(SystemClock));
    ring.map_err(|error| Failure::config(format!("vault: {error}")))
}
