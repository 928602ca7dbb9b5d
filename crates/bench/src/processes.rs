//! Several client processes: the parent starts itself again, and adds up what its children measure.
//!
//! A child has the parent's arguments and one environment variable that says which share of the workers is its own. It is driven line by line over its
//! standard input and output, in JSON; it ends when its input does, so that no child outlives its parent.

use std::{
    io::{BufRead, BufReader, Write, stdin, stdout},
    process::{Child, ExitStatus, Stdio},
    sync::{Arc, atomic::Ordering, mpsc},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::{
    cli::Settings,
    clock::{Stamp, unix_ns},
    cpu::{Meter, Spent},
    driver::bounds,
    factory::Factory,
    program::own_program,
    stats::{Stats, WireStats},
    stop::{HURRY, STOP, is_stopped},
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

/// Longest silence of a child that is within a phase, in which it tells how far it is five times a second.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The same when the run is stopped.
const SILENCE_WHEN_STOPPED: Duration = Duration::from_secs(5);
/// How long is waited for any of them when it is stopped once more.
const HURRY_MAX: Duration = Duration::from_secs(2);
/// How often is looked whether one is silent.
const LOOK: Duration = Duration::from_millis(100);

/// A line of the child of this number, or that no other follows.
type Said = (usize, Option<String>);

/// A child that ends with this value. Two threads speak with it, so that one that is held up holds up nobody.
struct Client {
    child: Child,
    /// Its orders; none where it is to end.
    orders: Option<mpsc::Sender<String>>,
    /// When it said something.
    heard: Stamp,
    /// It is asked for nothing any more.
    is_lost: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end();
    }
}

impl Client {
    /// Of a child of this number, whose input and output are pipes.
    fn new(index: usize, mut child: Child, said: &mpsc::Sender<Said>) -> anyhow::Result<Self> {
        let mut input = child.stdin.take().context("the child's input is a pipe")?;
        let output = child.stdout.take().context("the child's output is a pipe")?;
        let (orders, lines) = mpsc::channel::<String>();
        std::thread::spawn(move || {
            // One that does not take them has ended, which its output tells.
            let _ = lines.iter().try_for_each(|line| input.write_all(line.as_bytes()));
        });
        let said = said.clone();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // Whoever does not listen has the child end.
            let _ = lines.map(Some).chain([None]).try_for_each(|line| said.send((index, line)));
        });
        Ok(Self { child, orders: Some(orders), heard: Stamp::now(), is_lost: false })
    }

    fn order(&self, order: &Order) -> anyhow::Result<()> {
        let line = serde_json::to_string(order)? + "\n";
        if let Some(orders) = &self.orders {
            let _ = orders.send(line);
        }
        Ok(())
    }

    /// Has it end, and how it did. One that is within a phase would go on, or wait for its output to be read: so it is not asked.
    fn end(&mut self) -> Option<ExitStatus> {
        self.orders = None;
        // It fails only if it has ended.
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

/// The children of a run.
pub(crate) struct Processes {
    clients: Vec<Client>,
    said: mpsc::Receiver<Said>,
    silence_max: Duration,
    progress: Vec<u64>,
}

impl Processes {
    /// Starts as many as were asked for.
    ///
    /// # Errors
    /// When one can not be started.
    pub(crate) fn start(settings: &Settings) -> anyhow::Result<Self> {
        let count = settings.load.processes;
        let (say, said) = mpsc::channel();
        let start = |index| {
            let child = own_program()
                .env(VARIABLE, format!("{index}/{count}/{}", settings.run))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .context("starting a client process")?;
            Client::new(index, child, &say)
        };
        let clients = (0..count as usize).map(start).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { clients, said, silence_max: SILENCE_MAX, progress: vec![0; settings.load.concurrency as usize] })
    }

    /// Runs one phase in all of them. One that is lost costs what it measured, and not what the others did.
    ///
    /// # Errors
    /// When CPU time can not be measured.
    pub(crate) fn run(
        &mut self,
        index: usize,
        phase: Phase,
        settings: &Settings,
        begun: impl FnOnce(Stamp),
        tick: &mut dyn FnMut(Tick),
    ) -> anyhow::Result<Outcome> {
        let pids = &settings.load.server_pid;
        self.order(&Order::Connect { phase: index, progress: self.progress.clone() })?;
        // A connection may take as long as a request.
        let silence_max = self.silence_max + settings.load.access.timeout;
        let mut lost = self.hear(false, silence_max, &mut |_, answer| match answer {
            Answer::Connected => Ok(true),
            other => bail!("it spoke out of turn: {other:?}"),
        });
        let at = unix_ns() + u64::try_from(LEAD.as_nanos()).unwrap_or(0);
        self.order(&Order::Start { unix_ns: at })?;
        let (start, end) = bounds(settings, phase, Stamp::at_unix_ns(at));
        begun(start);
        let meter = Meter::start(pids, start, end).context("starting a thread of the client")?;
        let (mut stats, mut client_cpu) = (Stats::new(start), Duration::ZERO);
        let count = self.clients.len();
        let (mut ticks, mut steps) = (vec![Tick::default(); count], std::mem::take(&mut self.progress));
        lost.extend(self.hear(true, self.silence_max, &mut |index, answer| match answer {
            Answer::Tick { operations, errors, bytes } => {
                ticks[index] = Tick { operations, errors, bytes };
                tick(ticks.iter().fold(Tick::default(), |sum, tick| Tick {
                    operations: sum.operations + tick.operations,
                    errors: sum.errors + tick.errors,
                    bytes: sum.bytes + tick.bytes,
                }));
                Ok(false)
            }
            Answer::Ended { stats: wire, cpu_ns, progress } => {
                stats.merge(&wire.into_stats(start)?);
                client_cpu += Duration::from_nanos(cpu_ns);
                let own = (index..steps.len()).step_by(count);
                own.for_each(|worker| steps[worker] = progress[worker]);
                Ok(true)
            }
            other => bail!("it spoke out of turn: {other:?}"),
        }));
        self.progress = steps;
        if !lost.is_empty() {
            stats.lose(lost);
        }
        let Spent { others: server_cpu, within: metered, .. } = meter.spent();
        Ok(Outcome { stats, client_cpu, server_cpu, metered })
    }

    fn order(&mut self, order: &Order) -> anyhow::Result<()> {
        let now = Stamp::now();
        self.clients.iter_mut().try_for_each(|client| {
            client.heard = now;
            client.order(order)
        })
    }

    /// Gives `take` what the children say, until it has said of each that this was all, or the child is lost: with why, a line each. `begun`: they are within the phase.
    fn hear(
        &mut self,
        begun: bool,
        silence_max: Duration,
        take: &mut dyn FnMut(usize, Answer) -> anyhow::Result<bool>,
    ) -> Vec<String> {
        let mut waiting: Vec<bool> = self.clients.iter().map(|client| !client.is_lost).collect();
        let (mut stopped, mut hurried, mut lost) = (None, None, Vec::new());
        while waiting.contains(&true) {
            let said = self.said.recv_timeout(LOOK);
            let now = Stamp::now();
            if is_stopped() {
                stopped.get_or_insert(now);
                if begun {
                    // That ends what they are at, whether the signal came to them as well or not; no phase follows.
                    self.clients.iter_mut().for_each(|client| client.orders = None);
                }
            }
            if HURRY.load(Ordering::Relaxed) {
                hurried.get_or_insert(now);
            }
            if let Ok((index, line)) = said {
                let client = &mut self.clients[index];
                client.heard = now;
                let is_over = client.is_lost || !waiting[index] && client.orders.is_none();
                let taken = match line {
                    _ if is_over => Ok(false),
                    None => Err(anyhow!("it ended early")),
                    Some(line) => understand(&line).and_then(|answer| take(index, answer)),
                };
                match taken {
                    Ok(is_all) => waiting[index] &= !is_all,
                    Err(why) => lost.push(self.lose(index, &mut waiting, &why)),
                }
            }
            let is_hurried_away = hurried.is_some_and(|at: Stamp| now.since(at) >= HURRY_MAX);
            for index in 0..waiting.len() {
                let heard = self.clients[index].heard;
                let silence = match stopped {
                    Some(at) => now.since(heard.max(at)) >= SILENCE_WHEN_STOPPED,
                    None => now.since(heard) >= silence_max,
                };
                if waiting[index] && (silence || is_hurried_away) {
                    let why = anyhow!("it said nothing for {:.1} s", now.since(heard).as_secs_f64());
                    lost.push(self.lose(index, &mut waiting, &why));
                }
            }
        }
        lost
    }

    /// Waits for a child no more; what is said of it.
    fn lose(&mut self, index: usize, waiting: &mut [bool], why: &anyhow::Error) -> String {
        let count = self.clients.len();
        let client = &mut self.clients[index];
        (client.is_lost, waiting[index]) = (true, false);
        let ended = client.end().map_or_else(String::new, |status| format!(" ({status})"));
        format!("client process {} of {count} was lost, and what it measured: {why:#}{ended}", index + 1)
    }
}

/// What a child says in a line.
fn understand(line: &str) -> anyhow::Result<Answer> {
    match serde_json::from_str(line).with_context(|| format!("it said {line:?}"))? {
        Answer::Failed(why) => bail!("it failed: {why}"),
        answer => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::{
        cli::Operation,
        stats::{Done, Kind},
    };

    #[test]
    fn the_end_of_the_orders_is_noticed_without_asking_for_one() {
        let (gone, noticed) = mpsc::channel();
        let orders = listen(&b"one\ntwo\n"[..], move || gone.send(()).unwrap());
        noticed.recv().unwrap();
        assert_eq!(orders.iter().collect::<Vec<_>>(), ["one", "two"]);
    }

    /// A child that is connected, and does as the shell script says when it is told to start.
    fn child(index: usize, script: &str, said: &mpsc::Sender<Said>) -> Client {
        let script = format!("read connect; echo '\"Connected\"'; read start; {script}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Client::new(index, shell.spawn().unwrap(), said).unwrap()
    }

    #[test]
    fn a_child_that_is_lost_costs_no_more_than_it_measured() {
        let settings = Settings::for_tests(Operation::Put, &["-c", "4", "--processes", "4", "-d", "1s"]);
        let start = Stamp::now();
        let mut stats = Stats::new(start);
        stats.record(Kind::Put, start, start.plus(Duration::from_millis(1)), Ok(Done::bytes(1)));
        let stats = WireStats::new(&stats.finish());
        let ended = serde_json::to_string(&Answer::Ended { stats, cpu_ns: 7, progress: vec![1; 4] }).unwrap();
        let scripts =
            ["exit 3", "kill -STOP $$; read more", "echo nonsense; read more", &format!("echo '{ended}'; read more")];
        let (say, said) = mpsc::channel();
        let clients = scripts.iter().enumerate().map(|(index, script)| child(index, script, &say)).collect();
        let silence_max = Duration::from_secs(1);
        let mut processes = Processes { clients, said, silence_max, progress: vec![0; 4] };
        let phase = phases(settings.operation)[0];
        let outcome = processes.run(0, phase, &settings, |_| {}, &mut |_| {}).unwrap();
        assert_eq!((outcome.stats.counts(), outcome.client_cpu), ((1, 0), Duration::from_nanos(7)));
        assert!(outcome.stats.pending);
        let mut lost = outcome.stats.lost.clone();
        lost.sort_unstable();
        let expected = ["ended early (exit status: 3)", "it said nothing for", "it said \"nonsense\""];
        assert_eq!(lost.len(), expected.len());
        for (index, (line, expected)) in lost.iter().zip(expected).enumerate() {
            let begin = format!("client process {} of 4 was lost", index + 1);
            assert!(line.starts_with(&begin) && line.contains(expected), "{line}");
        }
        assert_eq!(processes.progress, [0, 0, 0, 1]);
    }

    #[test]
    fn a_child_that_neither_reads_nor_ends_is_not_waited_for() {
        let child = Command::new("sleep").arg("3600").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        drop(Client::new(0, child, &mpsc::channel().0).unwrap());
    }
}
