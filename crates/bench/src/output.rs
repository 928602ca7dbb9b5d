//! Where a result goes: to the standard output, and to files that were opened before anything was measured, so that nothing is measured in vain for want of one.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write, stdout},
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde::Serialize;

use crate::failure::all_of;

/// Writes a text to the standard output.
///
/// # Errors
/// When nobody reads it.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// A file that is to be written. One that is not, because there was nothing to write, is left as it was.
pub(crate) struct Output {
    path: PathBuf,
    file: File,
    /// It was made here, and nothing is in it.
    is_empty: bool,
}

impl Output {
    /// # Errors
    /// When it can not be written to.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let is_empty = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("opening {} for writing", path.display()))?;
        Ok(Self { path: path.to_owned(), file, is_empty })
    }

    /// Puts `text` in the place of what it held.
    ///
    /// # Errors
    /// When that fails.
    pub(crate) fn write(mut self, text: &str) -> anyhow::Result<()> {
        self.replace(text).with_context(|| format!("writing {}", self.path.display()))?;
        self.is_empty = false;
        Ok(())
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        // Pipes and devices have no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_empty {
            // An empty file more does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// All places that one result goes to.
pub(crate) struct Outputs {
    /// JSON goes to the standard output, in place of the text.
    is_json: bool,
    json: Option<Output>,
    html: Option<Output>,
}

impl Outputs {
    /// `json`: `-` is the standard output.
    ///
    /// # Errors
    /// When a file can not be written to.
    pub(crate) fn open(json: Option<&Path>, html: Option<&Path>) -> anyhow::Result<Self> {
        let is_json = json == Some(Path::new("-"));
        let json = json.filter(|_| !is_json).map(Output::open).transpose()?;
        Ok(Self { is_json, json, html: html.map(Output::open).transpose()? })
    }

    /// Writes the result everywhere, whatever fails.
    ///
    /// # Errors
    /// All that failed.
    pub(crate) fn publish(
        self,
        result: &impl Serialize,
        text: &str,
        page: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let json = serde_json::to_string_pretty(result).context("writing the report")? + "\n";
        let printed = print(if self.is_json { &json } else { text });
        let json = self.json.map_or(Ok(()), |output| output.write(&json));
        let html = self.html.map_or(Ok(()), |output| output.write(&page()));
        all_of([printed, json, html])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_hold_a_result_or_what_they_held() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("report.json");
        drop(Output::open(&path).unwrap());
        assert!(!path.exists());
        fs::write(&path, "a long report of an earlier run").unwrap();
        drop(Output::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a long report of an earlier run");
        Output::open(&path).unwrap().write("short").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "short");
        assert!(Output::open(place.path()).is_err());
    }
}
