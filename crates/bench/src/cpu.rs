//! CPU time of the client and of the server.

use std::{fs, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this process since it began, on all threads, in the kernel and outside: what `getrusage` adds up.
pub(crate) fn own() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPU time of other processes since they began; `None` when one can not be asked.
pub(crate) fn of_processes(pids: &[u32]) -> Option<Duration> {
    pids.iter().map(|pid| of_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).sum()
}

/// From a line of `/proc/PID/stat`, whose ticks are of 10 ms on every architecture that Linux runs on (`USER_HZ`).
fn of_stat(line: &str) -> Option<Duration> {
    // The second field is the program's name in parentheses, which may hold anything.
    let mut fields = line[line.rfind(')')? + 1..].split_ascii_whitespace();
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read() {
        let line = "4242 (a (b) c) S 1 4242 4242 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 3 0 100 1000 10";
        assert_eq!(of_stat(line), Some(Duration::from_secs(2)));
        assert_eq!(of_stat("4242 (cut"), None);
        assert!(of_processes(&[std::process::id()]).is_some());
        assert_eq!(of_processes(&[u32::MAX]), None);
        assert!(own() > Duration::ZERO);
    }
}
