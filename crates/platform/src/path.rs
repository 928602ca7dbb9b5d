//! The one place where a path given to a [`crate::Disk`] is judged.
//!
//! A path is text that joins the target's root; it must never leave it. Symbolic links are the admin's own
//! business: a target may lie behind one, and nothing above creates any.

use std::io;

/// Longest path in bytes, below the target's root.
pub const PATH_BYTES_MAX: usize = 1024;

/// Longest single component in bytes: the limit of every file system that we know, less the room that a temporary
/// name takes.
pub const PATH_COMPONENT_BYTES_MAX: usize = 255 - TEMPORARY_EXTRA_BYTES;

const TEMPORARY_MARK: &str = ".tmp-";
const TEMPORARY_EXTRA_BYTES: usize = 1 + TEMPORARY_MARK.len() + 16;

/// Checks the path of a file: `a/b/c`, not empty.
pub(crate) fn check_file(path: &str) -> io::Result<()> {
    if path.is_empty() {
        return Err(refusal(path, "is empty"));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(refusal(path, "is too long"));
    }
    for component in path.split('/') {
        match component {
            "" => return Err(refusal(path, "is absolute or has an empty component")),
            "." | ".." => return Err(refusal(path, "has a component . or ..")),
            _ if component.len() > PATH_COMPONENT_BYTES_MAX => return Err(refusal(path, "has too long a component")),
            _ if component.contains('\0') => return Err(refusal(path, "contains a NUL byte")),
            _ => {}
        }
    }
    Ok(())
}

/// Checks the path of a directory: as of a file, or empty for the root.
pub(crate) fn check_dir(path: &str) -> io::Result<()> {
    if path.is_empty() { Ok(()) } else { check_file(path) }
}

/// Checks the paths of a file and of its new name: both in one directory, so that one directory sync makes the change durable.
pub(crate) fn check_rename(from: &str, to: &str) -> io::Result<()> {
    check_file(from)?;
    check_file(to)?;
    if split(from).0 == split(to).0 { Ok(()) } else { Err(refusal(to, "lies in another directory")) }
}

/// Splits a checked path into its directory (empty: the root) and its last component.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The name under which `path` is written before it is renamed: beside it, hidden from listings by [`is_temporary`].
pub(crate) fn temporary(path: &str, unique: u64) -> String {
    let (dir, name) = split(path);
    let separator = if dir.is_empty() { "" } else { "/" };
    format!("{dir}{separator}.{name}{TEMPORARY_MARK}{unique:016x}")
}

/// Whether `name`, one component, is one that [`temporary`] makes.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.rsplit_once(TEMPORARY_MARK).is_some_and(|(_, unique)| unique.len() == 16)
}

fn refusal(path: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("path {path:?} {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_root_are_refused() {
        let long = "x".repeat(PATH_COMPONENT_BYTES_MAX + 1);
        let deep = "x/".repeat(PATH_BYTES_MAX) + "x";
        for bad in
            ["", "/", "/etc/passwd", "..", "../x", "a/../b", "a/..", ".", "a/./b", "a//b", "a/", "a\0b", &long, &deep]
        {
            assert_eq!(check_file(bad).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{bad:?}");
        }
        for good in ["a", "a/b", "segments/0f/x.1", "..a", "a..", "...", "é"] {
            check_file(good).unwrap();
        }
        check_dir("").unwrap();
        check_rename("a/b", "a/c").unwrap();
        check_rename("a/b", "b/b").unwrap_err();
        check_rename("a", "../a").unwrap_err();
        check_dir("..").unwrap_err();
    }

    #[test]
    fn a_temporary_name_lies_beside_its_file_and_fits() {
        assert_eq!(temporary("gabion.json", 7), ".gabion.json.tmp-0000000000000007");
        let path = format!("a/{}", "x".repeat(PATH_COMPONENT_BYTES_MAX));
        let hidden = temporary(&path, u64::MAX);
        let (dir, name) = split(&hidden);
        assert_eq!(dir, "a");
        assert_eq!(name.len(), 255);
        assert!(is_temporary(name));
        assert!(!is_temporary(".gabion.json.tmp-7"));
        assert!(!is_temporary("gabion.json"));
    }
}
