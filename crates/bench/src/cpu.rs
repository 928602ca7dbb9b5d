//! CPU time of the client and of the server.

use std::{fs, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use crate::{clock::Stamp, workload::End};

/// CPU time of this process, and of others if they are known and can be asked.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Spent {
    pub(crate) own: Duration,
    pub(crate) others: Option<Duration>,
}

impl Spent {
    fn now(pids: &[u32]) -> Self {
        Self { own: own(), others: of_processes(pids).filter(|_| !pids.is_empty()) }
    }
}

/// What is spent between the start and the end of a measurement, for which somebody has to look when they come.
pub(crate) struct Meter<'a> {
    pids: &'a [u32],
    start: Stamp,
    end: Option<Stamp>,
    before: Spent,
    started: bool,
    after: Option<Spent>,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(pids: &'a [u32], start: Stamp, end: End) -> Self {
        let end = if let End::At(end) = end { Some(end) } else { None };
        Self { pids, start, end, before: Spent::now(pids), started: false, after: None }
    }

    /// Takes the time if the start or the end has come since it was last looked.
    pub(crate) fn look(&mut self, now: Stamp) {
        if !self.started {
            (self.before, self.started) = (Spent::now(self.pids), now >= self.start);
        } else if self.after.is_none() && self.end.is_some_and(|end| now >= end) {
            self.after = Some(Spent::now(self.pids));
        }
    }

    /// How long it is until it should be looked next; nothing if that does not matter any more.
    pub(crate) fn ahead(&self, now: Stamp) -> Option<Duration> {
        let next = if self.started { self.end.filter(|_| self.after.is_none()) } else { Some(self.start) };
        next.map(|next| next.since(now))
    }

    /// What was spent, until now if the end has not come.
    pub(crate) fn spent(self) -> Spent {
        let after = self.after.unwrap_or_else(|| Spent::now(self.pids));
        let others = after.others.zip(self.before.others);
        Spent {
            own: after.own.saturating_sub(self.before.own),
            others: others.map(|(after, before)| after.saturating_sub(before)),
        }
    }
}

/// CPU time of this process since it began, on all threads, in the kernel and outside: what `getrusage` adds up.
fn own() -> Duration {
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
    fn what_is_spent_before_and_after_does_not_count() {
        let begin = Stamp::now();
        let at = |ms| begin.plus(Duration::from_millis(ms));
        let mut meter = Meter::new(&[], at(100), End::At(at(200)));
        assert_eq!(meter.ahead(at(30)), Some(Duration::from_millis(70)));
        meter.look(at(30));
        assert_eq!(meter.ahead(at(60)), Some(Duration::from_millis(40)), "the start has not come");
        meter.look(at(110));
        let before = meter.before.own;
        assert_eq!(meter.ahead(at(150)), Some(Duration::from_millis(50)));
        meter.look(at(150));
        assert!(meter.before.own == before && meter.after.is_none());
        meter.look(at(205));
        let after = meter.after.unwrap().own;
        burn();
        meter.look(at(300));
        assert_eq!(meter.ahead(at(300)), None);
        assert_eq!(meter.spent().own, after - before);

        // Where there is no end, all counts until it is asked for.
        let pids = [std::process::id()];
        let mut meter = Meter::new(&pids, at(0), End::Done);
        meter.look(at(0));
        burn();
        let Spent { own, others } = meter.spent();
        assert!(own > Duration::ZERO && others.is_some());
    }

    /// Takes some CPU time.
    fn burn() {
        let begin = own();
        while own() < begin + Duration::from_millis(1) {}
    }

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
