//! The state directory: made, owned, with the root credentials in it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gabion_platform::{DirLock, Entropy};
use gabion_server::credentials::{Credentials, SecretKey};
use gabion_types::DeploymentId;

use crate::exit::Failure;

/// A state directory that is ours.
#[derive(Debug)]
pub(crate) struct State {
    /// The directory.
    pub(crate) dir: PathBuf,
    _lock: DirLock,
}

/// Where the root credentials came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CredentialsFrom {
    /// The environment.
    Environment,
    /// A file that was there.
    File(PathBuf),
    /// A file that was just written.
    Generated(PathBuf),
}

/// Names the deployment that was served from this state directory.
const DEPLOYMENT_FILE: &str = "deployment";
/// Holds what shows that changes may be asked for over the admin port.
pub(crate) const ADMIN_TOKEN_FILE: &str = "admin-token";
/// Bytes of randomness in a token.
const TOKEN_BYTES: usize = 32;
const ACCESS_KEY_VARIABLE: &str = "GABION_ROOT_ACCESS_KEY";
const SECRET_KEY_VARIABLE: &str = "GABION_ROOT_SECRET_KEY";
/// Longest credentials file that is read, in bytes.
const CREDENTIALS_BYTES_MAX: u64 = 64 * 1024;

impl State {
    /// Makes the directory if it is missing (for us alone) and takes its lock.
    ///
    /// # Errors
    /// When another process holds it, or it can not be made.
    pub(crate) fn open(dir: &Path) -> Result<State, Failure> {
        let unusable = |error: io::Error| {
            Failure::failed(format!(
                "the state directory {} can not be used: {error}; give another with --state",
                dir.display()
            ))
        };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(unusable)?;
        if let Err(error) = sync_name(dir) {
            // Not every directory above ours may be opened.
            tracing::debug!(%error, dir = %dir.display(), "the name of the state directory is not synced");
        }
        let lock = DirLock::acquire(&dir.join("gabion.lock")).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => {
                Failure::held(format!("{error}: a server is running on this state directory; stop it first"))
            }
            _ => unusable(error),
        })?;
        Ok(State { dir: dir.to_owned(), _lock: lock })
    }

    /// Remembers the deployment, so that drives which are not mounted later are not taken for new ones.
    ///
    /// # Errors
    /// When the file can not be written.
    pub(crate) fn remember(&self, deployment: &str) -> Result<(), Failure> {
        let path = self.dir.join(DEPLOYMENT_FILE);
        let text = format!("{deployment}\n");
        if fs::read_to_string(&path).is_ok_and(|known| known == text) {
            return Ok(());
        }
        write_private(&path, &text)
            .map_err(|error| Failure::failed(format!("{} can not be written: {error}", path.display())))
    }

    /// The token for changes over the admin port: of the file, or a new one.
    ///
    /// # Errors
    /// When the file can not be read or written.
    pub(crate) fn admin_token(&self, entropy: &dyn Entropy) -> Result<SecretKey, Failure> {
        let path = self.dir.join(ADMIN_TOKEN_FILE);
        match fs::read_to_string(&path) {
            Ok(text) if text.trim().len() >= TOKEN_BYTES => return Ok(SecretKey::new(text.trim())),
            // Cut off while it was written, or emptied so that a new one is made.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::failed(format!("{} can not be read: {error}", path.display()))),
        }
        let mut random = [0; TOKEN_BYTES];
        entropy.fill(&mut random);
        let token = hex::encode(random);
        write_private(&path, &format!("{token}\n"))
            .map_err(|error| Failure::failed(format!("{} can not be written: {error}", path.display())))?;
        Ok(SecretKey::new(token))
    }

    /// The root credentials: of the environment, of the file, or new ones.
    ///
    /// # Errors
    /// When the environment has one half, or the file can not be read or written.
    pub(crate) fn credentials(&self, entropy: &dyn Entropy) -> Result<(Credentials, CredentialsFrom), Failure> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let path = self.dir.join("credentials");
        match (variable(ACCESS_KEY_VARIABLE), variable(SECRET_KEY_VARIABLE)) {
            (Some(access_key), Some(secret_key)) => {
                check(&access_key, &secret_key).map_err(|why| {
                    Failure::config(format!("{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} can not be used: {why}"))
                })?;
                Ok((Credentials::new(access_key, secret_key), CredentialsFrom::Environment))
            }
            (None, None) => stored(&path, entropy),
            (Some(_), None) => Err(Failure::config(format!(
                "{ACCESS_KEY_VARIABLE} is set, {SECRET_KEY_VARIABLE} is not: set both or none"
            ))),
            (None, Some(_)) => Err(Failure::config(format!(
                "{SECRET_KEY_VARIABLE} is set, {ACCESS_KEY_VARIABLE} is not: set both or none"
            ))),
        }
    }
}

/// Makes the directory's name durable: credentials in it are of no use after a power loss without it.
fn sync_name(dir: &Path) -> io::Result<()> {
    let dir = std::path::absolute(dir)?;
    match dir.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// The deployment that was served from the state directory `dir`; nothing if none was, or the note of it is gone.
///
/// # Errors
/// When there is a note that makes no sense.
pub(crate) fn deployment(dir: &Path) -> Result<Option<DeploymentId>, Failure> {
    let path = dir.join(DEPLOYMENT_FILE);
    match fs::read_to_string(&path) {
        // A crash while it was written: it is written again once the targets are found.
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => text.trim_end().parse().map(Some).map_err(|error| {
            Failure::failed(format!(
                "{} can not be used: {error}; remove it if the targets are the right ones",
                path.display()
            ))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::failed(format!("{} can not be read: {error}", path.display()))),
    }
}

fn stored(path: &Path, entropy: &dyn Entropy) -> Result<(Credentials, CredentialsFrom), Failure> {
    let shown = path.display();
    let unreadable = |why: String| {
        Failure::failed(format!(
            "the credentials file {shown} can not be used: {why}; repair it, or remove it to get new credentials"
        ))
    };
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() > CREDENTIALS_BYTES_MAX => return Err(unreadable("it is too long".to_owned())),
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => {
            tracing::warn!(path = %shown, "others may read the credentials file; run chmod 600 on it");
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let credentials = generate(entropy);
            write(path, &credentials).map_err(|error| {
                Failure::failed(format!("the credentials file {shown} can not be written: {error}"))
            })?;
            return Ok((credentials, CredentialsFrom::Generated(path.to_owned())));
        }
        Err(error) => return Err(unreadable(error.to_string())),
    }
    let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let credentials = parse(&text).map_err(unreadable)?;
    Ok((credentials, CredentialsFrom::File(path.to_owned())))
}

/// Lines `access_key=…` and `secret_key=…`; blank lines and those that begin with `#` do not count.
pub(crate) fn parse(text: &str) -> Result<Credentials, String> {
    let (mut access_key, mut secret_key) = (None, None);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, value) = line.split_once('=').ok_or("a line has no '='")?;
        let place = match name.trim() {
            "access_key" => &mut access_key,
            "secret_key" => &mut secret_key,
            other => return Err(format!("the name {other:?} is unknown")),
        };
        if place.replace(value.trim().to_owned()).is_some() {
            return Err(format!("{} stands there twice", name.trim()));
        }
    }
    let access_key = access_key.ok_or("there is no access_key")?;
    let secret_key = secret_key.ok_or("there is no secret_key")?;
    check(&access_key, &secret_key)?;
    Ok(Credentials::new(access_key, secret_key))
}

/// What clients can put into a signature's credential, and long enough to be a secret.
fn check(access_key: &str, secret_key: &str) -> Result<(), String> {
    let plain = |text: &str, marks: &[u8]| text.bytes().all(|b| b.is_ascii_alphanumeric() || marks.contains(&b));
    if !(3..=128).contains(&access_key.len()) || !plain(access_key, b"-_.") {
        return Err("the access key must have 3 to 128 letters, digits, '-', '_' or '.'".to_owned());
    }
    if !(8..=256).contains(&secret_key.len()) || !secret_key.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("the secret key must have 8 to 256 printable ASCII characters without spaces".to_owned());
    }
    Ok(())
}

/// 20 and 40 characters as AWS's, 100 and 240 bits of the kernel's randomness; without `/` and `+`, which break copy and paste.
fn generate(entropy: &dyn Entropy) -> Credentials {
    const UPPER: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    const MIXED: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    let text = |alphabet: &[u8], length: usize| {
        let mut random = vec![0; length];
        entropy.fill(&mut random);
        // Both alphabets divide 256: no letter is likelier than another.
        random.iter().map(|&byte| char::from(alphabet[usize::from(byte) % alphabet.len()])).collect::<String>()
    };
    Credentials::new(text(UPPER, 20), text(MIXED, 40))
}

fn write(path: &Path, credentials: &Credentials) -> io::Result<()> {
    let (access_key, secret_key) = (&credentials.access_key, credentials.secret_key.expose());
    let head = "# Root credentials of this Gabion deployment. Keep them secret.";
    write_private(path, &format!("{head}\naccess_key={access_key}\nsecret_key={secret_key}\n"))
}

/// Writes a file for its owner alone, whole or not at all.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    // One may be left from a start that was cut; the mode counts only for a file that is made.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use gabion_platform::OsEntropy;

    use super::*;

    #[test]
    fn credentials_are_made_once_and_for_their_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        let (made, from) = stored(&path, &OsEntropy).unwrap();
        assert_eq!(from, CredentialsFrom::Generated(path.clone()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        check(&made.access_key, made.secret_key.expose()).unwrap();
        assert_eq!((made.access_key.len(), made.secret_key.expose().len()), (20, 40));
        let (read, from) = stored(&path, &OsEntropy).unwrap();
        assert_eq!(from, CredentialsFrom::File(path.clone()));
        assert_eq!((&read.access_key, read.secret_key.expose()), (&made.access_key, made.secret_key.expose()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(&format!("\naccess_key={}\n", made.access_key)), "scripts read this line");
    }

    #[test]
    fn a_leftover_of_a_cut_start_does_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        fs::write(path.with_extension("new"), "half").unwrap();
        stored(&path, &OsEntropy).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn bad_files_are_refused_not_replaced() {
        let table = [
            ("", "there is no access_key"),
            ("access_key=AKIA", "there is no secret_key"),
            ("access_key=AKIA\nsecret_key=short", "the secret key must have"),
            ("access_key=A/B\nsecret_key=12345678", "the access key must have"),
            ("access_key=AKIA\naccess_key=AKIB\nsecret_key=12345678", "access_key stands there twice"),
            ("access_key AKIA", "a line has no '='"),
            ("acces_key=AKIA", "\"acces_key\" is unknown"),
        ];
        for (text, expected) in table {
            let why = parse(text).unwrap_err();
            assert!(why.contains(expected), "{text:?}: {why}");
        }
        let read = parse("# ours\n\n access_key = AKIA \nsecret_key=abc=defgh\n").unwrap();
        assert_eq!((read.access_key.as_str(), read.secret_key.expose()), ("AKIA", "abc=defgh"));
    }

    #[test]
    fn a_second_process_is_told_who_holds_the_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let state = State::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let failure = State::open(&path).unwrap_err();
        assert_eq!(failure.code(), std::process::ExitCode::from(3));
        assert!(failure.to_string().contains(&format!("id {}", std::process::id())), "{failure}");
        drop(state);
        State::open(&path).unwrap();
    }
}
