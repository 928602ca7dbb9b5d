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
/// When the file can not be used, or a key that is named by the settings is in none of them.
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
    let sources = KeySources { file, transit, site: None, master, usual };
    let named = [("encryption.master_key", &sources.master), ("encryption.kms_key", &sources.usual)];
    for (setting, id) in named {
        // Vault is not asked before a client needs it: it may be started later.
        if let Some(id) = id.as_deref().filter(|id| !sources.may_have(id)) {
            return Err(Failure::config(match &config.encryption_keys {
                Some(path) => {
                    format!("{setting}: there is no key {id} in {}, and no Vault is given (vault.url)", path.display())
                }
                None => format!(
                    "{setting} is {id}, but there are no keys: give a file of them (encryption.keys), or Vault (vault.url)"
                ),
            }));
        }
    }
    Ok(sources)
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::Layers;

    #[test]
    fn keys_that_are_named_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, format!("k1 {}=\n", "A".repeat(43))).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let keys = path.to_str().unwrap();
        let vault = [("vault.url", "http://127.0.0.1:8200"), ("vault.token_file", "/token")];
        let found = |settings: &[(&'static str, &str)]| {
            let flags = settings.iter().map(|(key, text)| (*key, vec![(*text).to_owned()])).collect();
            let config = Config::read(&Layers { flags, ..Layers::default() }.resolve()).unwrap();
            sources(&config).map(drop).map_err(|failure| failure.to_string())
        };
        for setting in ["encryption.master_key", "encryption.kms_key"] {
            found(&[("encryption.keys", keys), (setting, "k1")]).unwrap();
            found(&[("encryption.keys", keys), (setting, "gabion-site")]).unwrap();
            found(&[(setting, "of-vault"), vault[0], vault[1]]).unwrap();
            let other = found(&[("encryption.keys", keys), (setting, "foo")]).unwrap_err();
            assert!(other.contains(&format!("{setting}: there is no key foo in {keys}")), "{other}");
            let none = found(&[(setting, "foo")]).unwrap_err();
            assert!(none.contains("there are no keys"), "{none}");
        }
    }
}
