//! How errors of the kernel become errors of a [`crate::Disk`]: the kind stays, the action and the path are added.

use std::error::Error;
use std::fmt;
use std::io;

/// Adds what was tried, on which path; keeps the kind, but tells a used-up quota as [`io::ErrorKind::StorageFull`],
/// since callers treat the two alike.
pub(crate) fn explain(source: impl Into<io::Error>, action: &'static str, path: &str) -> io::Error {
    let source = source.into();
    let kind = match source.kind() {
        io::ErrorKind::QuotaExceeded => io::ErrorKind::StorageFull,
        kind => kind,
    };
    io::Error::new(kind, Explained { action, path: path.into(), source })
}

#[derive(Debug)]
struct Explained {
    action: &'static str,
    path: Box<str>,
    source: io::Error,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, path, source } = self;
        if path.is_empty() { write!(f, "{action}: {source}") } else { write!(f, "{action} {path}: {source}") }
    }
}

impl Error for Explained {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn kinds_stay_meaningful() {
        let table = [
            (Errno::NOSPC, io::ErrorKind::StorageFull),
            (Errno::DQUOT, io::ErrorKind::StorageFull),
            (Errno::NOENT, io::ErrorKind::NotFound),
            (Errno::EXIST, io::ErrorKind::AlreadyExists),
            (Errno::ROFS, io::ErrorKind::ReadOnlyFilesystem),
            (Errno::ACCESS, io::ErrorKind::PermissionDenied),
            (Errno::STALE, io::ErrorKind::StaleNetworkFileHandle),
        ];
        for (errno, kind) in table {
            assert_eq!(explain(errno, "write", "x").kind(), kind);
        }
        assert!(explain(Errno::IO, "write", "a/b").to_string().starts_with("write a/b: "));
    }
}
