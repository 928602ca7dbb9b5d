//! What stands in the files that the settings name: certificates, keys and tokens. Read by the start before anything is opened, and by
//! `gabion config check`.

use std::path::Path;
use std::sync::Arc;

use gabion_server::audit::Webhook;
use gabion_server::credentials::SecretKey;
use gabion_server::keys::KeyRing;
use gabion_server::notifications::NotificationTarget;
use gabion_server::tls::{ReloadingTls, TlsFiles};

use crate::config::{Config, WebAddress};
use crate::exit::Failure;
use crate::keys;

/// Fewest characters of what seals stored secrets.
const SEAL_CHARACTERS_MIN: usize = 32;

/// What the named files hold.
pub(crate) struct NamedFiles {
    pub(crate) tls: Option<Arc<ReloadingTls>>,
    pub(crate) keys: KeyRing,
    /// What seals stored secrets.
    pub(crate) seal_key: Option<SecretKey>,
    /// Where the audit log is posted.
    pub(crate) audit_webhook: Option<Webhook>,
    /// Who can be notified of what happens to objects.
    pub(crate) notification_targets: Vec<NotificationTarget>,
}

impl NamedFiles {
    /// Reads all of them.
    ///
    /// # Errors
    /// With a sentence for each setting whose file can not be read or used (of TLS, and of encryption, for the first). The token for Vault is not among them: it is read for
    /// every call, and may come later.
    pub(crate) fn read(config: &Config) -> Result<Self, Failure> {
        let mut failures = Vec::new();
        let tls = kept(tls(config), &mut failures);
        let keys = kept(keys::ring(config), &mut failures);
        let seal_key = kept(config.iam_key_file.as_deref().map(seal_key).transpose(), &mut failures);
        let audit_webhook = kept(audit_webhook(config), &mut failures);
        let targets = config.notifications_targets.iter().map(|given| notification_target(config, &given.0));
        let notification_targets = targets.filter_map(|target| kept(target, &mut failures)).collect();
        match (tls, keys, seal_key, audit_webhook) {
            (Some(tls), Some(keys), Some(seal_key), Some(audit_webhook)) if failures.is_empty() => {
                Ok(Self { tls, keys, seal_key, audit_webhook, notification_targets })
            }
            _ => Err(Failure::configs(failures.iter().map(Failure::to_string))),
        }
    }
}

fn kept<T>(read: Result<T, Failure>, failures: &mut Vec<Failure>) -> Option<T> {
    read.map_err(|failure| failures.push(failure)).ok()
}

fn tls(config: &Config) -> Result<Option<Arc<ReloadingTls>>, Failure> {
    let (Some(certificate), Some(key)) = (config.tls_cert.clone(), config.tls_key.clone()) else { return Ok(None) };
    let tls = ReloadingTls::load(TlsFiles { certificate, key }).map_err(|error| Failure::config(error.to_string()))?;
    Ok(Some(Arc::new(tls)))
}

fn seal_key(path: &Path) -> Result<SecretKey, Failure> {
    let key = secret("iam.key_file", path)?;
    if key.expose().len() < SEAL_CHARACTERS_MIN {
        let shown = path.display();
        return Err(Failure::config(format!(
            "iam.key_file: {shown} must have at least {SEAL_CHARACTERS_MIN} characters"
        )));
    }
    Ok(key)
}

fn audit_webhook(config: &Config) -> Result<Option<Webhook>, Failure> {
    let Some(WebAddress(url)) = config.audit_webhook.clone() else { return Ok(None) };
    let token = config.audit_token_file.as_deref().map(|path| secret("audit.token_file", path)).transpose()?;
    Ok(Some(Webhook { url, token }))
}

fn notification_target(config: &Config, target: &NotificationTarget) -> Result<NotificationTarget, Failure> {
    let token_file = config.token_file(&target.name);
    let secret = token_file.map(|path| secret("notifications.token_files", path)).transpose()?;
    let accounts = config.notification_accounts(&target.name);
    Ok(NotificationTarget { secret, accounts, ..target.clone() })
}

/// The text of a file that a setting names, without white space around it.
fn secret(setting: &str, path: &Path) -> Result<SecretKey, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::config(format!("{setting}: {} can not be read: {error}", path.display())))?;
    Ok(SecretKey::new(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layers;

    #[test]
    fn every_file_that_can_not_be_used_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("token"), " t \n").unwrap();
        std::fs::write(path("long"), "k".repeat(SEAL_CHARACTERS_MIN)).unwrap();
        std::fs::write(path("short"), "k".repeat(SEAL_CHARACTERS_MIN - 1)).unwrap();
        let read = |settings: &[(&'static str, String)]| {
            let texts = |text: &String| text.split(',').map(str::to_owned).collect();
            let flags = settings.iter().map(|(key, text)| (*key, texts(text))).collect();
            let config = Config::read(&Layers { flags, ..Layers::default() }.resolve()).unwrap();
            NamedFiles::read(&config)
        };
        let good = [
            ("iam.key_file", path("long")),
            ("audit.webhook", "http://127.0.0.1/".to_owned()),
            ("audit.token_file", path("token")),
            ("notifications.targets", "bus=http://127.0.0.1/".to_owned()),
            ("notifications.token_files", format!("bus={}", path("token"))),
        ];
        let files = read(&good).ok().unwrap();
        let secret = |key: Option<&SecretKey>| key.map(|key| key.expose().to_owned());
        assert_eq!(secret(files.seal_key.as_ref()), Some("k".repeat(SEAL_CHARACTERS_MIN)));
        assert_eq!(secret(files.audit_webhook.as_ref().unwrap().token.as_ref()), Some("t".to_owned()));
        assert_eq!(secret(files.notification_targets[0].secret.as_ref()), Some("t".to_owned()));
        assert!(files.tls.is_none());
        let bad = [
            ("iam.key_file", path("short")),
            good[1].clone(),
            ("audit.token_file", path("none")),
            ("notifications.targets", "a=http://127.0.0.1/,b=http://127.0.0.1/".to_owned()),
            ("notifications.token_files", format!("a={},b={}", path("none"), path("none"))),
            ("encryption.keys", path("none")),
            ("tls.cert", path("none")),
            ("tls.key", path("none")),
        ];
        let error = read(&bad).err().unwrap().to_string();
        let settings =
            [("iam.key_file", 1), ("audit.token_file", 1), ("notifications.token_files", 2), ("encryption.keys", 1)];
        for (setting, count) in settings {
            assert_eq!(error.matches(&format!("{setting}: ")).count(), count, "{setting} in {error}");
        }
        assert_eq!(error.lines().count(), 6, "{error}");
    }
}
