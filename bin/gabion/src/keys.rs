//! The keys of encrypted objects, from the settings.

use std::sync::Arc;

use gabion_platform::SystemClock;
use gabion_server::keys::{KeyFile, KeyRing, KeySources, TransitOptions};

use crate::config::Config;
use crate::exit::Failure;

/// Where keys come from; nothing when no settings say so. Only customers' keys (SSE-C) serve then.
///
/// # Errors
/// When the file can not be used, or Vault not be spoken to as it is configured. It is not asked yet.
pub(crate) fn ring(config: &Config) -> Result<Option<KeyRing>, Failure> {
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
    if config.encryption_keys.is_none() && transit.is_none() {
        return Ok(None);
    }
    let (master, usual) = (config.encryption_master_key.clone(), config.encryption_kms_key.clone());
    let ring = KeyRing::new(KeySources { file, transit, master, usual }, Arc::new(SystemClock));
    Ok(Some(ring.map_err(|error| Failure::config(format!("vault: {error}")))?))
}
