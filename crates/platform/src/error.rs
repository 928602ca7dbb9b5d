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

/// Whether an operation failed because this process or its machine had run out of descriptors or memory: no fault of the target, and soon over.
#[must_use]
pub fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = |error: &io::Error| {
        let errno = error.raw_os_error();
        error.kind() == io::ErrorKind::OutOfMemory
            || [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS].map(Some).contains(&errno)
    };
    if exhausted(error) {
        return true;
    }
    let mut cause = error.get_ref().and_then(|inner| inner.source());
    while let Some(source) = cause {
        if source.downcast_ref::<io::Error>().is_some_and(exhausted) {
            return true;
        }
        cause = source.source();
    }
    false
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

    #[test]
    fn what_this_process_ran_out_of_is_no_fault_of_the_target() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(is_exhausted(&explain(errno, "open", "x")), "{errno}");
            assert!(is_exhausted(&errno.into()), "{errno}");
        }
        for errno in [Errno::IO, Errno::NOSPC, Errno::NOENT] {
            assert!(!is_exhausted(&explain(errno, "open", "x")), "{errno}");
        }
    }
}
