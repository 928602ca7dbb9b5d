//! Puts the machine in a known state before something is measured on it.

use std::io;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Has the system find so many bytes of memory, but no more than half of what nobody uses, and gives them back: what is allocated next, by anybody, is found there. A
/// virtual machine is given memory by its host when it first touches it, and loses what it leaves free: there a page of the page cache may cost five times what it
/// costs on other machines. Returns how many bytes those were.
///
/// # Errors
/// When the system does not say what is free, or does not give it.
pub fn touch_memory(bytes: u64) -> io::Result<u64> {
    // What holds pages of files is not given up for it.
    let bytes = bytes.min(free_bytes()? / 2);
    let Ok(length @ 1..) = usize::try_from(bytes) else { return Ok(0) };
    // `POPULATE`: each page is filled with zeros before the call returns.
    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
    // SAFETY: the kernel chooses an address where nothing is, and nobody refers to what is mapped there.
    let memory = unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    // SAFETY: it was mapped above, and is not referred to.
    unsafe { munmap(memory, length) }?;
    Ok(bytes)
}

/// What is free on the machine, and left to this process's control group if it is in one with a limit.
fn free_bytes() -> io::Result<u64> {
    let all = std::fs::read_to_string("/proc/meminfo")?;
    let line = all.lines().find_map(|line| line.strip_prefix("MemFree:")?.trim().strip_suffix(" kB"));
    let free_kib: Option<u64> = line.and_then(|kib| kib.parse().ok());
    let free = free_kib.map(|kib| kib * 1024).ok_or(io::ErrorKind::InvalidData)?;
    // As a container sees its own; elsewhere these files are not there, or say `max`.
    let group =
        |name| std::fs::read_to_string(format!("/sys/fs/cgroup/memory.{name}")).ok()?.trim().parse::<u64>().ok();
    let left = group("max").map(|most| most.saturating_sub(group("current").unwrap_or(0)));
    Ok(left.map_or(free, |left| left.min(free)))
}

/// Waits until all that was written to the machine's file systems is on their disks, whoever wrote it.
pub fn sync_file_systems() {
    rustix::fs::sync();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_touched_and_given_back() {
        let bytes = |name: &str| {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
            line.unwrap().parse::<u64>().unwrap() * 1024
        };
        let before = bytes("VmRSS:");
        let touched = touch_memory(256 << 20).unwrap();
        assert!(bytes("VmHWM:") >= before + touched / 2, "{touched}");
        assert!(bytes("VmRSS:") < before + touched / 2 + (64 << 20));
        assert_eq!(touch_memory(0).unwrap(), 0);
        assert!(touch_memory(u64::MAX).unwrap() < 1 << 50, "no more than is free");
    }
}
