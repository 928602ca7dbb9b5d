//! Several client processes: the parent starts itself again, and adds up what its children measure.
//!
//! A child has the parent's arguments and one environment variable that says which share of the workers is its own. It is driven line by line over its
//! standard input and output, in JSON; it ends when its input does, so that no child outlives its parent.

use std::{
    io::{BufRead, BufReader, Write, stdin, stdout},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, atomic::Ordering, mpsc},
    time::Duration,
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::{
    cli::Settings,
    clock::{Stamp, unix_ns},
    cpu::{Meter, Spent},
    driver::bounds,
    factory::Factory,
    stats::{Stats, WireStats},
    stop::{STOP, is_stopped},
    threads::{Outcome, Threads, Tick},
    workload::{End, Load, Phase, Share, phases},
};

/// Says which share a child has, and the name of the run: `INDEX/OF/RUN`.
const VARIABLE: &str = "GABION_BENCH_PROCESS";

/// How long after all are connected they begin: longer than a line takes.
const LEAD: Duration = Duration::from_millis(50);

/// What the parent says.
#[derive(Serialize, Deserialize, Debug)]
enum Order {
    /// Connect the workers for this phase.
    Connect { phase: usize, progress: Vec<u64> },
    /// Begin when the wall clock shows this.
    Start { unix_ns: u64 },
}

/// What a child says.
#[derive(Serialize, Deserialize, Debug)]
enum Answer {
    Connected,
    Tick { operations: u64, errors: u64, bytes: u64 },
    Ended { stats: WireStats, cpu_ns: u64, progress: Vec<u64> },
    Failed(String),
}

/// The share of this process, if it is a child, and the name that its parent gave the run.
///
/// # Errors
/// When the variable is set to something else.
pub(crate) fn own_share() -> anyhow::Result<Option<(Share, String)>> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(None) };
    let share = text.split_once('/').and_then(|(index, rest)| {
        let (of, run) = rest.split_once('/')?;
        let (index, of) = (index.parse().ok()?, of.parse().ok()?);
        (index < of).then(|| (Share { index, of }, run.to_owned()))
    });
    share.map(Some).with_context(|| format!("{VARIABLE}={text:?} is set by gabion bench alone: unset it"))
}

fn say(out: &mut impl Write, line: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Does what the parent says until it says nothing more.
///
/// # Errors
/// When the parent can not be understood.
pub(crate) fn serve(settings: &Settings, factory: &Arc<Factory>, threads: usize, share: Share) -> anyhow::Result<()> {
    let load = Arc::new(Load::new(settings, share));
    let threads = Threads { factory, count: threads, server_pids: &[] };
    // Without a parent there is nobody to measure for: what is under way is ended, and nothing more is begun.
    let orders = listen(BufReader::new(stdin()), || STOP.store(true, Ordering::Relaxed));
    while let Ok(line) = orders.recv() {
        let Order::Connect { phase, progress } = serde_json::from_str(&line)? else { bail!("told to start at once") };
        let phase = phases(settings.operation)[phase];
        for (mine, theirs) in load.progress.iter().zip(progress) {
            mine.store(theirs, Ordering::Relaxed);
        }
        let begin = || {
            say(&mut stdout().lock(), &Answer::Connected)?;
            let line = orders.recv().context("the parent has gone")?;
            let Order::Start { unix_ns } = serde_json::from_str(&line)? else { bail!("told to connect twice") };
            let ready = Stamp::at_unix_ns(unix_ns);
            wait_until(ready);
            let (start, end) = bounds(settings, phase, ready);
            Ok((start, share_of(end, share)))
        };
        // A parent that has gone is noticed by the end of its orders.
        let mut tick = |tick: Tick| {
            let Tick { operations, errors, bytes } = tick;
            let _ = say(&mut stdout().lock(), &Answer::Tick { operations, errors, bytes });
        };
        let answer = match threads.run(&load, phase, begin, &mut tick) {
            Err(error) => Answer::Failed(format!("{error:#}")),
            Ok(outcome) => Answer::Ended {
                stats: WireStats::new(&outcome.stats),
                cpu_ns: u64::try_from(outcome.client_cpu.as_nanos()).unwrap_or(u64::MAX),
                progress: load.progress.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            },
        };
        say(&mut stdout().lock(), &answer)?;
    }
    Ok(())
}

/// What begins earlier would be taken for warm-up.
#[expect(clippy::disallowed_methods, reason = "the main thread of a client process; no executor runs on it")]
fn wait_until(ready: Stamp) {
    std::thread::sleep(ready.since(Stamp::now()));
}

/// This process' part of a count.
fn share_of(end: End, share: Share) -> End {
    match end {
        End::After(count) => End::After(share.part(count)),
        end => end,
    }
}

/// The lines of `input`, read by a thread of its own, so that its end is noticed within a phase: `gone` is called, and no line follows.
fn listen(input: impl BufRead + Send + 'static, gone: impl FnOnce() + Send + 'static) -> mpsc::Receiver<String> {
    let (line, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for order in input.lines().map_while(Result::ok) {
            if line.send(order).is_err() {
                break;
            }
        }
        gone();
    });
    lines
}

/// A child that ends with this value.
struct Client {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Drop for Client {
    fn drop(&mut self) {
        // A child that is within a phase would go on, or wait for its output to be read. Both fail only if it has ended.
        self.orders = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    fn order(&mut self, order: &Order) -> anyhow::Result<()> {
        say(self.orders.as_mut().context("the child's input is open until it is dropped")?, order)
    }

    fn answer(&mut self) -> anyhow::Result<Answer> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("a client process ended early: {}", self.child.wait()?);
        }
        match serde_json::from_str(&line).with_context(|| format!("a client process said {line:?}"))? {
            Answer::Failed(why) => bail!("a client process failed: {why}"),
            answer => Ok(answer),
        }
    }
}

/// The children of a run.
pub(crate) struct Processes {
    clients: Vec<Client>,
    progress: Vec<u64>,
}

impl Processes {
    /// Starts as many as were asked for.
    ///
    /// # Errors
    /// When one can not be started.
    pub(crate) fn start(settings: &Settings) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let count = settings.load.processes;
        let start = |index| {
            let mut child = Command::new(&program)
                .args(std::env::args_os().skip(1))
                .env(VARIABLE, format!("{index}/{count}/{}", settings.run))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .context("starting a client process")?;
            let orders = child.stdin.take();
            let answers = BufReader::new(child.stdout.take().context("the child's output is a pipe")?);
            Ok(Client { child, orders, answers })
        };
        let clients = (0..count).map(start).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { clients, progress: vec![0; settings.load.concurrency as usize] })
    }

    /// Runs one phase in all of them.
    ///
    /// # Errors
    /// When one fails or ends.
    pub(crate) fn run(
        &mut self,
        index: usize,
        phase: Phase,
        settings: &Settings,
        begun: impl FnOnce(Stamp),
        tick: &mut dyn FnMut(Tick),
    ) -> anyhow::Result<Outcome> {
        let pids = &settings.load.server_pid;
        for client in &mut self.clients {
            client.order(&Order::Connect { phase: index, progress: self.progress.clone() })?;
        }
        for client in &mut self.clients {
            let Answer::Connected = client.answer()? else { bail!("a client process spoke out of turn") };
        }
        let at = unix_ns() + u64::try_from(LEAD.as_nanos()).unwrap_or(0);
        for client in &mut self.clients {
            client.order(&Order::Start { unix_ns: at })?;
        }
        let (start, end) = bounds(settings, phase, Stamp::at_unix_ns(at));
        begun(start);
        let meter = Meter::start(pids, start, end).context("starting a thread of the client")?;
        let mut stats = Stats::new(start);
        let mut client_cpu = Duration::ZERO;
        let mut ticks = vec![Tick::default(); self.clients.len()];
        let mut ended = vec![false; self.clients.len()];
        // All tick alike: what one says is read while the others wait a moment in their pipes.
        while ended.contains(&false) {
            if is_stopped() {
                // That ends what they are at, whether the signal came to them as well or not; no phase follows.
                self.clients.iter_mut().for_each(|client| client.orders = None);
            }
            for (index, client) in self.clients.iter_mut().enumerate() {
                if ended[index] {
                    continue;
                }
                match client.answer()? {
                    Answer::Tick { operations, errors, bytes } => ticks[index] = Tick { operations, errors, bytes },
                    Answer::Ended { stats: wire, cpu_ns, progress } => {
                        stats.merge(&wire.into_stats(start)?);
                        client_cpu += Duration::from_nanos(cpu_ns);
                        let own = (index..self.progress.len()).step_by(ended.len());
                        own.for_each(|worker| self.progress[worker] = progress[worker]);
                        ended[index] = true;
                    }
                    other => bail!("a client process spoke out of turn: {other:?}"),
                }
            }
            tick(ticks.iter().fold(Tick::default(), |sum, tick| Tick {
                operations: sum.operations + tick.operations,
                errors: sum.errors + tick.errors,
                bytes: sum.bytes + tick.bytes,
            }));
        }
        let Spent { others: server_cpu, within: metered, .. } = meter.spent();
        Ok(Outcome { stats, client_cpu, server_cpu, metered })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_orders_is_noticed_without_asking_for_one() {
        let (gone, noticed) = mpsc::channel();
        let orders = listen(&b"one\ntwo\n"[..], move || gone.send(()).unwrap());
        noticed.recv().unwrap();
        assert_eq!(orders.iter().collect::<Vec<_>>(), ["one", "two"]);
    }

    #[test]
    fn a_child_that_neither_reads_nor_ends_is_not_waited_for() {
        let mut child = Command::new("sleep").arg("3600").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        drop(Client { child, orders, answers });
    }
}
