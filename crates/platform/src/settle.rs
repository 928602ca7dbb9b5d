//! Puts the machine in a known state before something is measured on it.

use std::io;
use std::path::Path;
use std::ptr;

use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Has the system find so many bytes of memory, and gives them back: what is allocated next, by anybody, is found there. A virtual machine is given memory by its
/// host when it first touches it, and loses what it leaves free: there a page of the page cache may cost five times what it costs on other machines.
///
/// # Errors
/// When there is not so much.
pub fn touch_memory(bytes: usize) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // `POPULATE`: each page is filled with zeros before the call returns.
    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
    // SAFETY: the kernel chooses an address where nothing is, and nobody refers to what is mapped there.
    let memory = unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    // SAFETY: it was mapped above, and is not referred to.
    unsafe { munmap(memory, bytes) }?;
    Ok(())
}

/// Waits until all that was written to the file system of a directory is on its disk, whoever wrote it.
///
/// # Errors
/// When the directory can not be opened, or something can not be written.
pub fn sync_file_system(directory: &Path) -> io::Result<()> {
    let directory = rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::syncfs(directory)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back() {
        let resident_bytes = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
        };
        let before = resident_bytes();
        touch_memory(256 << 20).unwrap();
        touch_memory(0).unwrap();
        assert!(resident_bytes() < before + (128 << 20));
        assert!(touch_memory(usize::MAX / 2).is_err());
    }

    #[test]
    fn a_file_system_is_found_by_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        sync_file_system(directory.path()).unwrap();
        assert_eq!(sync_file_system(&directory.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
