//! One process owns a state directory, and the targets that it writes to: an exclusive `flock` on a file in it, which names the owner.
//!
//! The kernel drops the lock when the process ends, however it ends, so a stale file never blocks a start. The file
//! itself stays: removing it would let two processes lock two files of one name.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::error::explain;

/// Exclusive ownership of a directory, for as long as this lives.
#[derive(Debug)]
pub struct DirLock {
    /// Holds the lock by being open.
    _file: File,
}

impl DirLock {
    /// Takes the lock file `path` (created if missing, mode 0640) and writes this process' id into it.
    ///
    /// # Errors
    /// `ResourceBusy` if another process holds it, with that process' id in the text; any other if the file can not
    /// be used.
    pub fn acquire(path: &Path) -> io::Result<DirLock> {
        let shown = path.display().to_string();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o640))
            .map_err(|errno| explain(errno, "open the lock file", &shown))?;
        let mut file = File::from(fd);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(held_by(&mut file, &shown)),
            Err(errno) => return Err(explain(errno, "lock", &shown)),
        }
        write_pid(&mut file).map_err(|error| explain(error, "write the lock file", &shown))?;
        Ok(DirLock { _file: file })
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{}", std::process::id())
}

fn held_by(file: &mut File, shown: &str) -> io::Error {
    let mut text = String::new();
    // The owner may be just about to write it; then the message goes without.
    let owner = file.take(32).read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u32>().ok());
    let message = match owner {
        Some(pid) => format!("{shown} is held by the process with id {pid}"),
        None => format!("{shown} is held by another process"),
    };
    io::Error::new(io::ErrorKind::ResourceBusy, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_refused_and_told_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gabion.lock");
        let lock = DirLock::acquire(&path).unwrap();
        let error = DirLock::acquire(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert!(error.to_string().contains(&format!("id {}", std::process::id())), "{error}");
        drop(lock);
        DirLock::acquire(&path).unwrap();
    }

    #[test]
    fn a_stale_file_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gabion.lock");
        std::fs::write(&path, "999999999 and more text that an older owner left behind").unwrap();
        let _lock = DirLock::acquire(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
    }
}
