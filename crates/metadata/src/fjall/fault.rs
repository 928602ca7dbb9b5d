//! What fjall's errors, and its panics, mean to us.

use std::{
    any::Any,
    fs,
    io::ErrorKind,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use crate::IndexError;

/// Name of fjall's lock file in a database directory.
const LOCK_FILE: &str = "lock";

/// Runs a call into fjall; an error or a panic becomes ours.
pub(super) fn guarded<T>(call: impl FnOnce() -> Result<T, fjall::Error>) -> Result<T, IndexError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(fault),
        Err(panic) => Err(IndexError::Corrupt(format!("the engine panicked: {}", panic_text(&*panic)))),
    }
}

/// What the caller of the index does about an error of fjall's.
///
/// Damage is what was read and is wrong, and files that are not there. A device that does not read is no damage: a cable, a path or a server behind it
/// may be at fault, and an index is not thrown away for that.
pub(super) fn fault(error: fjall::Error) -> IndexError {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
            let is_damage = matches!(
                error.kind(),
                ErrorKind::UnexpectedEof
                    | ErrorKind::InvalidData
                    | ErrorKind::InvalidInput
                    | ErrorKind::NotFound
                    | ErrorKind::AlreadyExists
                    | ErrorKind::IsADirectory
                    | ErrorKind::NotADirectory
            );
            if is_damage {
                return IndexError::Corrupt(error.to_string());
            }
            IndexError::Io(error)
        }
        fjall::Error::Locked => IndexError::Locked(PathBuf::new()),
        fjall::Error::Poisoned | fjall::Error::KeyspaceDeleted => IndexError::Closed,
        other => IndexError::Corrupt(other.to_string()),
    }
}

/// Fails when another process holds the lock of a database, if there is one.
pub(super) fn unless_locked(database: &Path) -> Result<(), IndexError> {
    let file = match fs::File::open(database.join(LOCK_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => Err(IndexError::Locked(database.to_owned())),
        Err(fs::TryLockError::Error(error)) => Err(error.into()),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_what_was_read_and_is_wrong_is_corrupt() {
        const EIO: i32 = 5;
        for (error, is_corrupt) in [
            (io::Error::from_raw_os_error(EIO), false),
            (io::Error::from(ErrorKind::TimedOut), false),
            (io::Error::from(ErrorKind::PermissionDenied), false),
            (io::Error::from(ErrorKind::UnexpectedEof), true),
            (io::Error::from(ErrorKind::NotFound), true),
            (io::Error::from(ErrorKind::InvalidData), true),
        ] {
            let text = error.to_string();
            assert_eq!(matches!(fault(fjall::Error::Io(error)), IndexError::Corrupt(_)), is_corrupt, "{text}");
        }
    }
}
