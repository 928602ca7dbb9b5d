//! How the kernel's scheduler treats a thread.

use std::io;

/// Has the calling thread, and those that it starts, scheduled as batch work (`SCHED_BATCH`): when it becomes runnable it does not interrupt whoever runs, but waits
/// for its turn. Its share of the processor stays what it was.
///
/// # Errors
/// Where the system has no such policy.
pub fn schedule_as_batch() -> io::Result<()> {
    // SAFETY: a plain old structure, of which zeros are a value: the only priority that this policy takes.
    let parameter = unsafe { std::mem::zeroed::<libc::sched_param>() };
    // SAFETY: the parameter is read before the call returns; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_becomes_batch_work_and_no_other() {
        let policy = || {
            // SAFETY: takes a number and returns one.
            unsafe { libc::sched_getscheduler(0) }
        };
        let before = policy();
        let inside = std::thread::spawn(move || schedule_as_batch().map(|()| policy())).join().unwrap();
        assert_eq!((inside.unwrap(), policy()), (libc::SCHED_BATCH, before));
    }
}
