//! What can be asked of `gabion bench`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};

use crate::{
    cpu::of_processes,
    floor::FloorArgs,
    sizes::Sizes,
    units::{parse_bytes, parse_duration, parse_rate},
    workload::phases,
};

/// Puts a load on an S3 endpoint and reports throughput and latency.
///
/// The bucket is created when it does not exist, objects that the operation needs are written before the measurement, and what was written is removed
/// at the end. All keys lie below PREFIX/RUN/, where RUN is a name that no other run has, and nothing else is ever removed; with --keep and --no-prepare
/// they stay, and those that the measurement finds lie below the prefix itself. Credentials come from the flags, or GABION_ACCESS_KEY and GABION_SECRET_KEY, or AWS_ACCESS_KEY_ID and
/// AWS_SECRET_ACCESS_KEY; the token of temporary ones from GABION_SESSION_TOKEN or AWS_SESSION_TOKEN, whichever belongs to the keys.
#[derive(Args, Clone, Debug)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(subcommand_value_name = "OPERATION", subcommand_help_heading = "Operations")]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Compare two reports, or several of each with commas between them: ratios, and whether they are more than what varies from second to second, or from run to run.
    #[arg(long, num_args = 2, value_names = ["A.json,…", "B.json,…"])]
    pub(crate) compare: Vec<PathBuf>,

    /// Write the comparison as a page with plots to this file.
    #[arg(long, value_name = "FILE", requires = "compare")]
    pub(crate) html: Option<PathBuf>,

    /// Draw rates, latencies and shares of the HTTP floor over the number of clients, from tables of `floor --json`.
    #[arg(long, num_args = 1.., value_name = "FLOOR.json", requires = "out", conflicts_with = "compare")]
    pub(crate) plot: Vec<PathBuf>,

    /// Write rates.svg, latencies.svg and shares.svg into this directory.
    #[arg(long, value_name = "DIRECTORY", requires = "plot")]
    pub(crate) out: Option<PathBuf>,
}

/// The operations.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Command {
    /// Write new objects.
    Put(LoadArgs),
    /// Read objects that were written before the measurement, and compare every byte.
    Get(LoadArgs),
    /// Ask for the metadata of objects.
    Stat(LoadArgs),
    /// List the keys, page by page.
    List {
        #[command(flatten)]
        load: LoadArgs,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Delete objects, each once.
    Delete(LoadArgs),
    /// 45 % get, 30 % stat, 15 % put, 10 % delete.
    Mixed(LoadArgs),
    /// Write new objects in parts, one after the other.
    Multipart {
        #[command(flatten)]
        load: LoadArgs,
        /// Size of each part but the last; S3 wants at least 5 MiB.
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "8MiB")]
        part_size: u64,
    },
    /// IO500: empty objects, one prefix per worker; create, stat, delete.
    MdtestEasy(LoadArgs),
    /// IO500: objects of 3901 bytes under one prefix; create, stat, read, delete.
    MdtestHard(LoadArgs),
    /// IO500: transfers of 2 MiB, one prefix per worker; write, read.
    IorEasy(LoadArgs),
    /// IO500: transfers of 47008 bytes under one prefix, interleaved; write, read.
    IorHard(LoadArgs),
    /// A constant working set: each step looks at, reads and deletes the oldest object and writes a new one.
    MdWorkbench {
        #[command(flatten)]
        load: LoadArgs,
        /// Prefixes that each worker has.
        #[arg(long, value_name = "SETS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        data_sets: u32,
        /// Objects in each prefix.
        #[arg(long, value_name = "OBJECTS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
        precreate: u64,
    },
    /// Measure the limits of this machine: HTTP without storage, the log without HTTP, files without the log.
    ///
    /// With --endpoint the endpoints are measured in turn with the limits, and what share of them they reach is told.
    Floor(FloorArgs),
}

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Operation {
    Put,
    Get,
    Stat,
    List,
    Delete,
    Mixed,
    Multipart,
    MdtestEasy,
    MdtestHard,
    IorEasy,
    IorHard,
    MdWorkbench,
}

impl Operation {
    /// Its name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Stat => "stat",
            Operation::List => "list",
            Operation::Delete => "delete",
            Operation::Mixed => "mixed",
            Operation::Multipart => "multipart",
            Operation::MdtestEasy => "mdtest-easy",
            Operation::MdtestHard => "mdtest-hard",
            Operation::IorEasy => "ior-easy",
            Operation::IorHard => "ior-hard",
            Operation::MdWorkbench => "md-workbench",
        }
    }

    /// Whether it is of objects that exist before it begins.
    pub(crate) fn has_prepared_objects(self) -> bool {
        matches!(self, Operation::Get | Operation::Stat | Operation::List | Operation::Delete | Operation::Mixed)
    }

    /// Size of its objects unless one is given, in bytes.
    fn default_size(self) -> u64 {
        match self {
            Operation::MdtestEasy => 0,
            Operation::MdtestHard | Operation::MdWorkbench => 3901,
            Operation::IorEasy => 2 << 20,
            Operation::IorHard => 47_008,
            Operation::Multipart => 64 << 20,
            _ => 4096,
        }
    }
}

/// How the body of a request is sent, and what vouches for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Payload {
    /// Nothing (`UNSIGNED-PAYLOAD`), as clients do over TLS.
    Unsigned,
    /// Its SHA-256 is signed with the request.
    Signed,
    /// In chunks of 64 KiB, each signed with its SHA-256 (`STREAMING-AWS4-HMAC-SHA256-PAYLOAD`), as minio-go does, and so Warp, without TLS.
    Chunked,
    /// In chunks of 64 KiB with a CRC-32 behind the last one (`STREAMING-UNSIGNED-PAYLOAD-TRAILER`), as AWS' SDKs do over TLS (theirs are longer).
    Trailer,
}

impl Payload {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Payload::Unsigned => "unsigned",
            Payload::Signed => "signed",
            Payload::Chunked => "chunked",
            Payload::Trailer => "trailer",
        }
    }
}

/// In whose name requests are made, and who is trusted.
#[derive(Args, Clone, Debug)]
pub(crate) struct AccessArgs {
    /// Access key.
    #[arg(long, value_name = "KEY")]
    pub(crate) access_key: Option<String>,

    /// Secret key; better given in the environment, where other users do not see it.
    #[arg(long, value_name = "KEY", hide_env_values = true)]
    pub(crate) secret_key: Option<String>,

    /// Token of temporary credentials, better given in the environment as well: GABION_SESSION_TOKEN or AWS_SESSION_TOKEN, with keys from there.
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    pub(crate) session_token: Option<String>,

    /// Region to sign for, and to create the bucket in.
    #[arg(long, default_value = "us-east-1")]
    pub(crate) region: String,

    /// PEM file with the authorities to trust in place of the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// Take any certificate of an https endpoint.
    #[arg(long, conflicts_with = "ca")]
    pub(crate) insecure: bool,

    /// Longest time one request may take before it counts as an error.
    #[arg(long, value_parser = parse_duration, default_value = "60s")]
    pub(crate) timeout: Duration,
}

/// What all loads have in common.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadArgs {
    /// The S3 endpoints; workers are dealt to them in turn.
    #[arg(
        long,
        value_name = "URL,…",
        env = "GABION_ENDPOINT",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:9000"
    )]
    pub(crate) endpoint: Vec<String>,

    #[command(flatten)]
    pub(crate) access: AccessArgs,

    /// Bucket to work in.
    #[arg(long, default_value = "gabion-bench")]
    pub(crate) bucket: String,

    /// What all keys begin with; a run that removes its objects adds a name of its own.
    #[arg(long, default_value = "bench/")]
    pub(crate) prefix: String,

    /// Size of objects: one (4KiB), a range uniform in the logarithm (4KiB..16MiB), or sizes with weights (4KiB:70,1MiB:25,16MiB:5) [default: 4KiB, or
    /// what the pattern has].
    #[arg(long, value_name = "SIZES")]
    pub(crate) size: Option<Sizes>,

    /// Workers, each with a connection and one request at a time.
    #[arg(long, short = 'c', default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) concurrency: u32,

    /// Operations that all workers together begin in a second [default: as many as they can]. One that begins late, as no worker was free, is timed from when it was due. Not of patterns of several phases.
    #[arg(long, value_name = "OPERATIONS", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,

    /// How long to measure, e.g. 500ms, 10s, 2m; in patterns of several phases: how long to write.
    #[arg(long, short = 'd', value_parser = parse_duration, default_value = "10s")]
    pub(crate) duration: Duration,

    /// Stop after this many operations, however long they take; of md-workbench: after this many steps. Those of the warm-up come on top: see --warmup.
    #[arg(long, short = 'n', conflicts_with = "duration")]
    pub(crate) count: Option<u64>,

    /// How long to run before measuring; delete and patterns of several phases have none.
    #[arg(long, value_parser = parse_duration, default_value = "1s")]
    pub(crate) warmup: Duration,

    /// Objects to write before the measurement of get, stat, delete, list and mixed [default: 1000, of delete 1000 for each worker; at most 1 GiB].
    #[arg(long)]
    pub(crate) objects: Option<u64>,

    /// Spread these objects over folders of so many each.
    #[arg(long, value_name = "OBJECTS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) per_folder: Option<u64>,

    /// Begin the names of objects with a hash: those that are written one after the other lie far from each other in the order of keys, as those of many users do.
    #[arg(long)]
    pub(crate) scatter: bool,

    /// Take the objects that an earlier get, stat or list with --keep left, instead of writing them; nothing is removed at the end, as with --keep.
    #[arg(long)]
    pub(crate) no_prepare: bool,

    /// Leave the objects and the bucket behind. Those that were written before the measurement lie below the prefix itself, where --no-prepare finds them; what the measurement wrote lies in a folder of its own.
    #[arg(long)]
    pub(crate) keep: bool,

    /// How the bodies of objects and parts are sent, and what vouches for them. Hashes and checksums are not part of the latency, but for that of a whole upload in parts; signatures of chunks are.
    #[arg(long, value_enum, default_value = "unsigned")]
    pub(crate) payload: Payload,

    /// Do not compare what is read with what was written.
    #[arg(long)]
    pub(crate) no_verify: bool,

    /// Seed of the content, the sizes and the order of reads.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Threads of each client process [default: the number of cores, at most 4].
    #[arg(long)]
    pub(crate) threads: Option<usize>,

    /// Client processes, among which the workers are divided.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) processes: u32,

    /// Processes of the server, if they run on this machine: their CPU time is reported, too.
    #[arg(long, value_name = "PID,…", value_delimiter = ',')]
    pub(crate) server_pid: Vec<u32>,

    /// Write the report as JSON to this file; `-` is the standard output, in place of the text.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the report as a page with plots to this file; it needs no other.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// What is listed.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    /// List folders, not what is in them: the text that ends a folder's name.
    #[arg(long, value_name = "TEXT")]
    pub(crate) delimiter: Option<String>,

    /// Keys per page.
    #[arg(long, value_name = "KEYS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_keys: u32,
}

/// One load with all that was asked of it.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) operation: Operation,
    pub(crate) load: LoadArgs,
    /// What keys have after the prefix, so that they are this run's alone.
    pub(crate) run: String,
    pub(crate) delimiter: Option<String>,
    pub(crate) max_keys: u32,
    pub(crate) part_bytes: u64,
    pub(crate) sets: u32,
    pub(crate) set_objects: u64,
}

/// Refuses a name that would be taken for a part of a path, and with it for an object.
///
/// # Errors
/// A sentence that says what to do.
pub(crate) fn check_bucket(name: &str) -> Result<(), String> {
    if name.is_empty() || name.contains('/') {
        return Err(format!("--bucket {name:?} is no name of a bucket: what comes before keys is --prefix"));
    }
    Ok(())
}

/// Refuses a measurement of no time.
///
/// # Errors
/// A sentence that says what to do.
pub(crate) fn check_duration(duration: Duration) -> Result<(), String> {
    if duration.is_zero() { Err("--duration must not be 0: give 500ms, 10s or 2m".to_owned()) } else { Ok(()) }
}

/// Refuses to give up every request at once.
///
/// # Errors
/// A sentence that says what to do.
pub(crate) fn check_timeout(timeout: Duration) -> Result<(), String> {
    if timeout.is_zero() {
        Err("--timeout must not be 0: no request would be answered in time".to_owned())
    } else {
        Ok(())
    }
}

/// Objects to delete if it is not said how many: enough for a while, and no more than 1 GiB.
pub(crate) fn default_deletes(workers: u32, mean_bytes: u64) -> u64 {
    (1000 * u64::from(workers)).min(((1 << 30) / mean_bytes.max(1)).max(1))
}

/// Refuses processes that there are not.
///
/// # Errors
/// A sentence that names one.
pub(crate) fn check_pids(pids: &[u32]) -> Result<(), String> {
    match pids.iter().find(|&&pid| of_processes(&[pid]).is_none()) {
        Some(pid) => Err(format!("--server-pid: there is no process {pid} that may be asked for its CPU time")),
        None => Ok(()),
    }
}

/// Most parts of one object in S3.
const PARTS_MAX: u64 = 10_000;

impl Settings {
    pub(crate) fn new(operation: Operation, load: LoadArgs) -> Self {
        let (delimiter, run) = (None, String::new());
        Self { operation, load, run, delimiter, max_keys: 1000, part_bytes: 1, sets: 1, set_objects: 1 }
    }

    /// Whether the objects stay: those of an earlier run are not this one's to remove.
    pub(crate) fn keeps(&self) -> bool {
        self.load.keep || self.load.no_prepare
    }

    /// Refuses what can not go together.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub(crate) fn check(&self) -> Result<(), String> {
        let load = &self.load;
        check_bucket(&load.bucket)?;
        check_duration(load.duration)?;
        check_timeout(load.access.timeout)?;
        check_pids(&load.server_pid)?;
        if load.count == Some(0) {
            return Err("--count must not be 0: there would be nothing to measure".to_owned());
        }
        let needs_objects = matches!(self.operation, Operation::Get | Operation::Stat | Operation::Delete);
        if needs_objects && load.objects == Some(0) {
            let name = self.operation.name();
            return Err(format!("--objects must not be 0: {name} is of objects that exist"));
        }
        let of_objects = [
            ("--objects", load.objects.is_some()),
            ("--per-folder", load.per_folder.is_some()),
            ("--no-prepare", load.no_prepare),
        ];
        if let Some((flag, _)) = of_objects.iter().find(|(_, given)| *given && !self.operation.has_prepared_objects()) {
            let name = self.operation.name();
            return Err(format!("{flag} is for loads of objects that are written before: {name} writes its own"));
        }
        if load.rate.is_some() && phases(self.operation).len() > 1 {
            return Err(format!(
                "--rate is for loads of one phase: {} does what it can in each",
                self.operation.name()
            ));
        }
        if load.endpoint.len() > load.concurrency as usize {
            let (endpoints, workers) = (load.endpoint.len(), load.concurrency);
            return Err(format!(
                "--endpoint names {endpoints}, which is more than --concurrency {workers}: each needs a worker"
            ));
        }
        if load.json.is_some() && load.json == load.html {
            return Err("--json and --html name the same file: give each its own".to_owned());
        }
        if self.load.processes > self.load.concurrency {
            let (processes, workers) = (self.load.processes, self.load.concurrency);
            return Err(format!("--processes {processes} is more than --concurrency {workers}: each needs a worker"));
        }
        if self.operation == Operation::Multipart {
            if self.part_bytes == 0 {
                return Err("--part-size must not be 0".to_owned());
            }
            let parts = self.sizes().largest().div_ceil(self.part_bytes);
            if parts > PARTS_MAX {
                return Err(format!("{parts} parts are more than S3's {PARTS_MAX}: give a larger --part-size"));
            }
        }
        Ok(())
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.load.size.clone().unwrap_or_else(|| Sizes::fixed(self.operation.default_size()))
    }

    /// Fewest entries of a whole listing, as far as that is known: others may have written below a prefix that was given.
    pub(crate) fn listed_min(&self) -> u64 {
        let objects = self.prepared_objects();
        match (&self.delimiter, self.load.per_folder) {
            // How many an earlier run left is not known unless it is said; but without any there is nothing to be listed.
            _ if self.load.no_prepare && self.load.objects.is_none() => 1,
            (None, _) => objects,
            (Some(delimiter), per_folder) if delimiter == "/" => objects.div_ceil(per_folder.unwrap_or(1)),
            (Some(_), _) => objects.min(1),
        }
    }

    /// Objects that exist before the measurement begins.
    pub(crate) fn prepared_objects(&self) -> u64 {
        match self.operation {
            Operation::Get | Operation::Stat | Operation::List | Operation::Mixed => {
                self.load.objects.unwrap_or_else(|| ((1 << 30) / self.sizes().mean().max(1)).clamp(1, 1000))
            }
            Operation::Delete => {
                let objects = self.load.objects.or(self.load.count);
                objects.unwrap_or_else(|| default_deletes(self.load.concurrency, self.sizes().mean()))
            }
            _ => 0,
        }
    }
}

impl Command {
    /// The load that this is.
    ///
    /// # Errors
    /// The arguments of what is no load.
    pub(crate) fn into_settings(self) -> Result<Settings, Box<FloorArgs>> {
        Ok(match self {
            Command::Put(load) => Settings::new(Operation::Put, load),
            Command::Get(load) => Settings::new(Operation::Get, load),
            Command::Stat(load) => Settings::new(Operation::Stat, load),
            Command::List { load, list } => {
                Settings { delimiter: list.delimiter, max_keys: list.max_keys, ..Settings::new(Operation::List, load) }
            }
            Command::Delete(load) => Settings::new(Operation::Delete, load),
            Command::Mixed(load) => Settings::new(Operation::Mixed, load),
            Command::Multipart { load, part_size } => {
                Settings { part_bytes: part_size, ..Settings::new(Operation::Multipart, load) }
            }
            Command::MdtestEasy(load) => Settings::new(Operation::MdtestEasy, load),
            Command::MdtestHard(load) => Settings::new(Operation::MdtestHard, load),
            Command::IorEasy(load) => Settings::new(Operation::IorEasy, load),
            Command::IorHard(load) => Settings::new(Operation::IorHard, load),
            Command::MdWorkbench { load, data_sets, precreate } => {
                Settings { sets: data_sets, set_objects: precreate, ..Settings::new(Operation::MdWorkbench, load) }
            }
            Command::Floor(args) => return Err(Box::new(args)),
        })
    }
}

#[cfg(test)]
#[derive(clap::Parser)]
pub(crate) struct Program {
    #[command(flatten)]
    pub(crate) cli: Cli,
}

#[cfg(test)]
impl Settings {
    pub(crate) fn for_tests(operation: Operation, flags: &[&str]) -> Self {
        use clap::Parser;
        Program::parse_from([&["bench", operation.name()], flags].concat())
            .cli
            .command
            .unwrap()
            .into_settings()
            .unwrap()
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Program::command().debug_assert();
        let compare = Program::parse_from(["bench", "--compare", "a.json", "b.json"]).cli;
        assert_eq!(compare.compare.len(), 2);
        for wrong in [
            &["--compare", "a.json"][..],
            &["--plot", "a.json"],
            &["put", "--size", "fast"],
            &["put", "-n", "1", "-d", "1s"],
            &["fly"],
        ] {
            assert!(Program::try_parse_from(["bench"].iter().chain(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_can_not_go_together_is_refused() {
        let refuse = |operation, flags: &[&str], expected: &str| {
            let error = Settings::for_tests(operation, flags).check().unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        refuse(Operation::Put, &["-c", "2", "--processes", "3"], "--concurrency 2");
        refuse(Operation::Multipart, &["--size", "1TiB", "--part-size", "5MiB"], "larger --part-size");
        refuse(Operation::Multipart, &["--part-size", "0"], "must not be 0");
        for bucket in ["", "abc1/b", "/"] {
            refuse(Operation::Put, &["--bucket", bucket], "no name of a bucket");
        }
        refuse(Operation::Put, &["-d", "0"], "--duration must not be 0");
        refuse(Operation::Put, &["-n", "0"], "--count must not be 0");
        refuse(Operation::Get, &["--objects", "0"], "--objects must not be 0: get");
        refuse(Operation::Put, &["-c", "1", "--endpoint", "http://a,http://b"], "names 2, which is more than");
        refuse(Operation::Put, &["--json", "a", "--html", "a"], "the same file");
        refuse(Operation::Put, &["--timeout", "0"], "--timeout must not be 0");
        for (flags, flag) in [
            (&["--objects", "7"][..], "--objects"),
            (&["--per-folder", "7"], "--per-folder"),
            (&["--no-prepare"], "--no-prepare"),
        ] {
            for operation in [Operation::Put, Operation::Multipart, Operation::MdtestEasy, Operation::MdWorkbench] {
                refuse(operation, flags, &format!("{flag} is for loads of objects that are written before"));
            }
        }
        refuse(Operation::MdWorkbench, &["--rate", "7"], "--rate is for loads of one phase: md-workbench");
        refuse(Operation::Put, &["--server-pid", &u32::MAX.to_string()], "there is no process 4294967295");
        Settings::for_tests(Operation::Mixed, &["--objects", "0"]).check().unwrap();
        Settings::for_tests(Operation::Multipart, &[]).check().unwrap();
    }

    #[test]
    fn patterns_have_the_sizes_that_they_are_known_for() {
        for (operation, bytes) in [
            (Operation::Put, 4096),
            (Operation::MdtestEasy, 0),
            (Operation::MdtestHard, 3901),
            (Operation::IorEasy, 2 << 20),
            (Operation::IorHard, 47_008),
            (Operation::MdWorkbench, 3901),
        ] {
            assert_eq!(Settings::for_tests(operation, &[]).sizes().mean(), bytes);
        }
    }
}
