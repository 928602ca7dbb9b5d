//! CPU time of the client and of the server.

use std::{fs, io, sync::mpsc, thread::JoinHandle, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use crate::{clock::Stamp, workload::End};

/// A moment that no measurement waits for.
fn never() -> Stamp {
    Stamp::now().plus(Duration::from_secs(365 * 24 * 3600))
}

/// CPU time of this process, and of others if they are known and can be asked.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Spent {
    pub(crate) own: Duration,
    pub(crate) others: Option<Duration>,
    /// The time in which it was.
    pub(crate) within: Duration,
}

impl Spent {
    fn now(pids: &[u32]) -> Self {
        let others = of_processes(pids).filter(|_| !pids.is_empty());
        Self { own: own(), others, within: Duration::ZERO }
    }

    fn since(self, before: Spent, within: Duration) -> Self {
        let others = self.others.zip(before.others);
        Self {
            own: self.own.saturating_sub(before.own),
            others: others.map(|(after, before)| after.saturating_sub(before)),
            within,
        }
    }
}

/// Takes what is spent between the start and the end of a measurement, in a thread of its own: whoever runs it may be late.
pub(crate) struct Meter {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Spent>,
}

impl Meter {
    /// # Errors
    /// When the thread can not be started.
    pub(crate) fn start(pids: &[u32], start: Stamp, end: End) -> io::Result<Self> {
        let pids = pids.to_owned();
        Self::of(start, end, move || Spent::now(&pids))
    }

    fn of(start: Stamp, end: End, mut look: impl FnMut() -> Spent + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        // Either the moment comes, or all is over before it.
        let comes = move |moment: Stamp| {
            let waited = stopped.recv_timeout(moment.since(Stamp::now()));
            matches!(waited, Err(mpsc::RecvTimeoutError::Timeout))
        };
        let thread = std::thread::Builder::new().spawn(move || {
            let is_measured = comes(start);
            let (from, before) = (Stamp::now(), look());
            if !is_measured {
                return before.since(before, Duration::ZERO);
            }
            comes(if let End::At(end) = end { end } else { never() });
            let within = Stamp::now().since(from);
            look().since(before, within)
        })?;
        Ok(Self { stop, thread })
    }

    /// What was spent, until now if the end has not come.
    pub(crate) fn spent(self) -> Spent {
        drop(self.stop);
        self.thread.join().expect("reading a clock does not panic")
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

    /// Starts a meter that says when it looks.
    fn meter(start: Stamp, end: End) -> (Meter, mpsc::Receiver<Stamp>) {
        let (looks, looked) = mpsc::channel();
        let look = move || {
            let spent = Spent::now(&[std::process::id()]);
            looks.send(Stamp::now()).unwrap();
            spent
        };
        (Meter::of(start, end, look).unwrap(), looked)
    }

    #[test]
    fn what_is_spent_before_and_after_does_not_count() {
        let begin = Stamp::now();
        let at = |ms| begin.plus(Duration::from_millis(ms));
        let (timed, looked) = meter(at(20), End::At(at(40)));
        assert!(looked.recv().unwrap() >= at(20));
        assert!(looked.recv().unwrap() >= at(40), "nobody had to ask");
        timed.spent();
        assert!(looked.recv().is_err());

        // Where there is no end, all counts until it is asked for.
        let (open, looked) = meter(at(0), End::Done);
        looked.recv().unwrap();
        burn();
        let asked = Stamp::now();
        let Spent { own, others, within } = open.spent();
        assert!(own >= BURNT && others.is_some() && within > Duration::ZERO);
        assert!(looked.recv().unwrap() >= asked);

        // Nothing is spent in what does not come to its start.
        let (early, _looked) = meter(never(), End::Done);
        burn();
        let Spent { own, within, .. } = early.spent();
        assert_eq!((own, within), (Duration::ZERO, Duration::ZERO));
    }

    const BURNT: Duration = Duration::from_millis(20);

    /// Takes some CPU time.
    fn burn() {
        let begin = own();
        while own() < begin + BURNT {}
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
