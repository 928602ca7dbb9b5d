//! What can be asked of `gabion bench floor`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use gabion_segment::Durability;
use gabion_types::Geometry;

use crate::{
    cli::{AccessArgs, check_bucket, check_duration, check_pids, check_timeout, default_deletes},
    threads::wanted,
    units::{parse_bytes, parse_duration},
    workload::{Action, LISTED_MAX},
};

/// An operation of which there are floors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum FloorOperation {
    Put,
    Get,
    Stat,
    Delete,
    /// Pages of 1000 keys.
    List,
}

impl FloorOperation {
    pub(super) fn action(self) -> Action {
        match self {
            FloorOperation::Put => Action::Put,
            FloorOperation::Get => Action::Get,
            FloorOperation::Stat => Action::Stat,
            FloorOperation::Delete => Action::Delete,
            FloorOperation::List => Action::List,
        }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct FloorArgs {
    /// Endpoints to compare with the floors; `relaxed=URL` is one with that durability.
    #[arg(long, value_name = "[relaxed=]URL,…", value_delimiter = ',')]
    pub(super) endpoint: Vec<String>,

    /// Processes of the servers behind the endpoints, one for each in their order: the CPU time that a request takes there is shown.
    #[arg(long, value_name = "PID,…", value_delimiter = ',')]
    pub(super) server_pid: Vec<u32>,

    #[command(flatten)]
    pub(super) access: AccessArgs,

    /// Bucket of the endpoints to work in.
    #[arg(long, default_value = "gabion-bench")]
    pub(super) bucket: String,

    /// Directories on the drives of the targets, for the floors of log and files: a directory is made in each, and removed. Those that are fewer than
    /// the shards of the geometry hold several.
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    pub(super) targets: Vec<PathBuf>,

    /// Data and parity shards of the log and of the files.
    #[arg(long, value_name = "K+M", default_value = "4+2")]
    pub(super) geometry: Geometry,

    /// Which operations.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "put,get,stat")]
    pub(super) operation: Vec<FloorOperation>,

    /// Size of each object.
    #[arg(long, value_parser = parse_bytes, default_value = "4KiB")]
    pub(super) size: u64,

    /// Clients, each with one request at a time.
    #[arg(long, short = 'c', default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) concurrency: u32,

    /// How long each is measured in each round.
    #[arg(long, short = 'd', value_parser = parse_duration, default_value = "3s")]
    pub(super) duration: Duration,

    /// How long each runs before it is measured.
    #[arg(long, value_parser = parse_duration, default_value = "500ms")]
    pub(super) warmup: Duration,

    /// Rounds; the median is shown, of an even number the mean of the two in the middle.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,

    /// Memory to be touched and given back before each measurement, at most half of what is free. Virtual machines may get a page from their host when it is touched for
    /// the first time, at several times the cost of filling it, and lose what they leave free: then what is measured is the host.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "0")]
    pub(super) touch_memory: u64,

    /// Objects that are read and listed [default: 1000, at most 1 GiB]; to be listed, 1000 at most or a multiple of it. One of the floors of HTTP has them in memory, up to a GiB.
    #[arg(long)]
    pub(super) objects: Option<u64>,

    /// Objects that are written to an endpoint before each measurement of deletes, which ends when none are left [default: 1000 for each client, at most
    /// 1 GiB].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) deletes: Option<u64>,

    /// Threads of the client [default: the number of cores, at most 4].
    #[arg(long)]
    pub(super) threads: Option<usize>,

    /// Write the table as JSON to this file; `-` is the standard output, in place of the text.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

impl FloorArgs {
    /// Refuses what can not be measured.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.size == 0 {
            return Err("--size must not be 0: an empty object has no floor below HTTP".to_owned());
        }
        if !self.server_pid.is_empty() && self.server_pid.len() != self.endpoint.len() {
            return Err(format!(
                "--server-pid: {} processes for {} endpoints; name one for each",
                self.server_pid.len(),
                self.endpoint.len()
            ));
        }
        check_pids(&self.server_pid)?;
        check_bucket(&self.bucket)?;
        check_duration(self.duration)?;
        check_timeout(self.access.timeout)?;
        let (objects, page) = (self.objects(), u64::from(LISTED_MAX));
        if self.operation.contains(&FloorOperation::List) && objects > page && !objects.is_multiple_of(page) {
            return Err(format!(
                "--objects {objects}: the last page of a list would be shorter than the floor's, which has {page} keys; give {page} at most, or a multiple of it"
            ));
        }
        if let Some(missing) = self.targets.iter().find(|target| !target.is_dir()) {
            return Err(format!("--targets: {} is no directory; make it first", missing.display()));
        }
        Ok(())
    }

    /// The endpoints with their durability.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = (Durability, &str)> {
        self.endpoint.iter().map(|text| match text.split_once('=') {
            Some(("relaxed", url)) => (Durability::Relaxed, url),
            Some(("sync", url)) => (Durability::Sync, url),
            _ => (Durability::Sync, text.as_str()),
        })
    }

    /// The durabilities for which there must be floors: those of the endpoints, or the default.
    pub(super) fn durabilities(&self) -> Vec<Durability> {
        let wanted = |durability| self.endpoints().any(|(found, _)| found == durability);
        let all = [Durability::Sync, Durability::Relaxed].into_iter();
        all.filter(|durability| wanted(*durability) || (self.endpoint.is_empty() && *durability == Durability::Sync))
            .collect()
    }

    /// Objects that are read.
    pub(super) fn objects(&self) -> u64 {
        self.objects.unwrap_or_else(|| ((1 << 30) / self.size).clamp(1, 1000)).max(1)
    }

    /// Objects that are deleted in one measurement of an endpoint.
    pub(super) fn deletes(&self) -> u64 {
        self.deletes.unwrap_or_else(|| default_deletes(self.concurrency, self.size))
    }

    pub(super) fn threads(&self) -> usize {
        wanted(self.threads)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What a command line asks for.
    pub(in crate::floor) fn args(line: &[&str]) -> FloorArgs {
        use clap::Parser;
        let line = ["bench", "floor"].iter().chain(line);
        *crate::cli::Program::parse_from(line).cli.command.unwrap().into_settings().unwrap_err()
    }

    #[test]
    fn pages_that_are_listed_are_all_alike() {
        for (operation, objects, is_right) in [
            ("list", "7", true),
            ("list", "1000", true),
            ("list", "1001", false),
            ("list", "5000", true),
            ("put,list", "5500", false),
            ("put,get", "5500", true),
        ] {
            let checked = args(&["--operation", operation, "--objects", objects]).check();
            assert_eq!(checked.is_ok(), is_right, "{operation} of {objects}: {checked:?}");
            assert!(checked.err().is_none_or(|error| error.contains("give 1000 at most, or a multiple of it")));
        }
    }

    #[test]
    fn deletes_are_as_many_as_take_a_while_and_have_room() {
        for (line, deletes) in [
            (&["-c", "64"][..], 64_000),
            (&["-c", "1000"], 262_144),
            (&["-c", "16", "--size", "16MiB"], 64),
            (&["--size", "2GiB"], 1),
            (&["--size", "2GiB", "--deletes", "7"], 7),
        ] {
            assert_eq!(args(line).deletes(), deletes, "{line:?}");
        }
    }
}
