//! A file of keys: a line for each, its id and 32 bytes in base64. The first is the one that new objects get.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gabion_store::SecretKey;
use zeroize::Zeroizing;

/// Longest file that is read, in bytes: some thousands of keys.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest id, in bytes.
const ID_BYTES_MAX: usize = 256;
/// Who else than its owner may do anything with the file.
const OTHERS: u32 = 0o077;

/// Keys by their ids.
#[derive(Default)]
pub struct KeyFile {
    first: Option<String>,
    keys: HashMap<String, SecretKey>,
}

/// Why a file of keys can not be used. Says nothing of what it holds but ids.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It can not be read.
    #[error("it can not be read: {0}")]
    File(#[from] io::Error),
    /// Others than its owner may read or change it.
    #[error("others may read or change it (mode {0:03o}): chmod 600")]
    Mode(u32),
    /// A line is no key.
    #[error("line {0} is not an id, a space and 32 bytes in base64")]
    Line(usize),
    /// An id is there twice.
    #[error("the key {0} is there twice")]
    Twice(String),
    /// There is no key in it.
    #[error("it holds no key")]
    Empty,
}

impl KeyFile {
    /// Reads a file that nobody else may read.
    ///
    /// # Errors
    /// When it can not be used.
    pub fn load(path: &Path) -> Result<Self, KeyFileError> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.mode() & OTHERS != 0 {
            return Err(KeyFileError::Mode(metadata.mode() & 0o777));
        }
        // As long as it may be from the start: no copy is left behind where it grew.
        let mut text = Zeroizing::new(String::with_capacity(metadata.len().min(FILE_BYTES_MAX) as usize + 1));
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Self::parse(&text)
    }

    /// Reads the text of a file. Empty lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// When it holds something else than keys, or none.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let mut found = Self::default();
        for (line, number) in text.lines().zip(1..) {
            let mut words = line.split_whitespace();
            let Some(id) = words.next().filter(|word| !word.starts_with('#')) else { continue };
            let (Some(text), None) = (words.next(), words.next()) else { return Err(KeyFileError::Line(number)) };
            let key = secret(text).filter(|_| id.len() <= ID_BYTES_MAX).ok_or(KeyFileError::Line(number))?;
            found.first.get_or_insert_with(|| id.to_owned());
            if found.keys.insert(id.to_owned(), key).is_some() {
                return Err(KeyFileError::Twice(id.to_owned()));
            }
        }
        if found.keys.is_empty() { Err(KeyFileError::Empty) } else { Ok(found) }
    }

    /// The id of the first key.
    pub(super) fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    pub(super) fn get(&self, id: &str) -> Option<&SecretKey> {
        self.keys.get(id)
    }
}

/// A key in base64.
pub(crate) fn secret(text: &str) -> Option<SecretKey> {
    let bytes = Zeroizing::new(BASE64_STANDARD.decode(text).ok()?);
    SecretKey::from_slice(&bytes)
}

impl std::fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.keys.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn a_file_has_a_key_on_each_line() {
        let keys = KeyFile::parse(&format!("# keys\n\n  two {KEY}\r\none\t{KEY}")).unwrap();
        assert_eq!(keys.first(), Some("two"));
        assert_eq!(keys.get("one").unwrap().expose()[31], 31);
        assert!(keys.get("three").is_none());
        for (text, line) in [
            ("one".to_owned(), 1),
            (format!("one {KEY} x"), 1),
            (format!("a {KEY}\nb AAAA"), 2),
            (format!("b {}", &KEY[1..]), 1),
        ] {
            let error = KeyFile::parse(&text).unwrap_err();
            assert!(matches!(error, KeyFileError::Line(found) if found == line), "{text}: {error}");
            assert!(!error.to_string().contains("AAEC"));
        }
        assert!(matches!(KeyFile::parse(&format!("a {KEY}\na {KEY}")), Err(KeyFileError::Twice(_))));
        assert!(matches!(KeyFile::parse("# nothing\n"), Err(KeyFileError::Empty)));
    }

    #[test]
    fn nobody_else_may_read_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        std::fs::write(&path, format!("a {KEY}\n")).unwrap();
        for (mode, fits) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(KeyFile::load(&path).is_ok(), fits, "{mode:o}");
        }
        assert!(matches!(KeyFile::load(&directory.path().join("none")), Err(KeyFileError::File(_))));
    }
}
