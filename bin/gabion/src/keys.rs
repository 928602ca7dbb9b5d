//! The keys of encrypted objects, from the settings.

use std::sync::Arc;

use gabion_platform::{OsEntropy, SystemClock};
use gabion_server::keys::{KeyFile, KeyRing, KeySources, TransitOptions, site_key};
use gabion_store::{EncryptionScheme, Store};

use crate::config::{Config, WebAddress};
use crate::exit::Failure;

/// The keys that the settings name; the site's own lies in the store, see [`with_site`].
///
/// # Errors
/// When the file can not be used, Vault not be spoken to as it is configured, or a key that the settings need is in none of them. Vault is not asked
/// before a client needs it: it may be started later.
pub(crate) fn ring(config: &Config) -> Result<KeyRing, Failure> {
    let file = match &config.encryption_keys {
        Some(path) => KeyFile::load(path)
            .map_err(|error| Failure::config(format!("encryption.keys: {}: {error}", path.display())))?,
        None => KeyFile::default(),
    };
    let transit = match (&config.vault_url, &config.vault_token_file) {
        (Some(WebAddress(url)), Some(token_file)) => Some(TransitOptions {
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
    let named = [("encryption.master_key", master.clone()), ("encryption.kms_key", usual.clone())];
    let ring = KeyRing::new(KeySources { file, transit, master, usual }, Arc::new(SystemClock))
        .map_err(|error| Failure::config(format!("vault: {error}")))?;
    for (setting, id) in named {
        if let Some(id) = id.filter(|id| !ring.may_have(id)) {
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
    let lacks = |scheme| !ring.has_none() && !ring.has_usual(scheme);
    match config.encryption_default.0 {
        Some(EncryptionScheme::Master) if lacks(EncryptionScheme::Master) => Err(Failure::config(
            "encryption.default is AES256: say in encryption.master_key which key of Vault is used".to_owned(),
        )),
        _ => {
            if lacks(EncryptionScheme::Master) {
                tracing::warn!("SSE-S3 (AES256) is not served: encryption.master_key names no key of Vault");
            }
            if config.encryption_default.0 == Some(EncryptionScheme::KeyService) && lacks(EncryptionScheme::KeyService)
            {
                tracing::warn!(
                    "puts that name no key are refused where encryption.default counts: encryption.kms_key names none"
                );
            }
            Ok(ring)
        }
    }
}

/// The same with the site's own key, which is made where there are no others. A store that can not keep it now does without until the next start.
pub(crate) async fn with_site(ring: KeyRing, store: &Store) -> KeyRing {
    match site_key(store, ring.has_none(), &OsEntropy).await {
        Ok(Some(site)) => ring.with_site(site),
        Ok(None) => ring,
        Err(error) => {
            tracing::warn!(%error, "the site's key can not be had: SSE-S3 is not served without keys of your own (encryption.keys)");
            ring
        }
    }
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
            ring(&config).map(drop).map_err(|failure| failure.to_string())
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
        // What nothing names a key for can not be the default.
        let wanted = [&vault[..], &[("encryption.default", "AES256")]].concat();
        let error = found(&wanted).unwrap_err();
        assert!(error.contains("AES256") && error.contains("encryption.master_key"), "{error}");
        found(&[&wanted[..], &[("encryption.master_key", "k1")]].concat()).unwrap();
        // A key that requests name serves.
        found(&[&vault[..], &[("encryption.default", "aws:kms")]].concat()).unwrap();
        found(&[("encryption.keys", keys), ("encryption.default", "AES256")]).unwrap();
        found(&[("encryption.default", "aws:kms")]).unwrap();
        let wrong = found(&[vault[0], vault[1], ("vault.ca", "/nowhere")]).map(drop);
        assert!(wrong.is_ok(), "without TLS nobody has to sign: {wrong:?}");
        let wrong = found(&[("vault.url", "https://v:8200"), vault[1], ("vault.ca", "/nowhere")]).unwrap_err();
        assert!(wrong.contains("vault: ") && wrong.contains("/nowhere"), "{wrong}");
    }
}
