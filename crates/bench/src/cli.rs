//! What can be asked of `gabion bench`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use crate::units::{parse_bytes, parse_duration};

/// What the workers do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Operation {
    /// Write new objects.
    Put,
    /// Read objects that were written before the measurement, and compare every byte.
    Get,
    /// Ask for the metadata of objects.
    Stat,
    /// Delete objects, each once.
    Delete,
    /// List the keys, page by page.
    List,
    /// 45 % get, 30 % stat, 15 % put, 10 % delete.
    Mixed,
}

/// How a request body is covered by the signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Payload {
    /// `UNSIGNED-PAYLOAD`: the body is not hashed, as clients do over TLS.
    Unsigned,
    /// The SHA-256 of the body is computed and signed; the time it takes is not part of the latency.
    Signed,
}

/// Puts a load on an S3 endpoint and reports throughput and latency.
///
/// The bucket is created when it does not exist, objects that the operation needs are written before the measurement, and what was written is removed
/// at the end. Credentials come from the flags, or GABION_ACCESS_KEY and GABION_SECRET_KEY, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
#[derive(Args, Clone, Debug)]
pub struct Cli {
    /// What to measure.
    #[arg(value_enum)]
    pub operation: Operation,

    /// The S3 endpoint (plain HTTP).
    #[arg(long, value_name = "URL", env = "GABION_ENDPOINT", default_value = "http://127.0.0.1:9000")]
    pub endpoint: String,

    /// Access key.
    #[arg(long, value_name = "KEY")]
    pub access_key: Option<String>,

    /// Secret key; better given in the environment, where other users do not see it.
    #[arg(long, value_name = "KEY", hide_env_values = true)]
    pub secret_key: Option<String>,

    /// Region to sign for.
    #[arg(long, default_value = "us-east-1")]
    pub region: String,

    /// Bucket to work in.
    #[arg(long, default_value = "gabion-bench")]
    pub bucket: String,

    /// What all keys begin with.
    #[arg(long, default_value = "bench/")]
    pub prefix: String,

    /// Size of each object, e.g. 4096, 4KiB, 16MiB.
    #[arg(long, value_parser = parse_bytes, default_value = "4KiB")]
    pub size: u64,

    /// Workers, each with a connection and one request at a time.
    #[arg(long, short = 'c', default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub concurrency: u32,

    /// How long to measure, e.g. 500ms, 10s, 2m.
    #[arg(long, short = 'd', value_parser = parse_duration, default_value = "10s")]
    pub duration: Duration,

    /// Stop after this many operations, however long they take.
    #[arg(long, short = 'n', conflicts_with = "duration")]
    pub count: Option<u64>,

    /// How long to run before measuring.
    #[arg(long, value_parser = parse_duration, default_value = "1s")]
    pub warmup: Duration,

    /// Objects to write before the measurement of get, stat, delete, list and mixed [default: 1000, at most 1 GiB].
    #[arg(long)]
    pub objects: Option<u64>,

    /// Take the objects that an earlier run with --keep left, instead of writing them.
    #[arg(long)]
    pub no_prepare: bool,

    /// Leave the objects and the bucket behind.
    #[arg(long)]
    pub keep: bool,

    /// Whether request bodies are signed.
    #[arg(long, value_enum, default_value = "unsigned")]
    pub payload: Payload,

    /// Do not compare what is read with what was written.
    #[arg(long)]
    pub no_verify: bool,

    /// Longest time one request may take before it counts as an error.
    #[arg(long, value_parser = parse_duration, default_value = "60s")]
    pub timeout: Duration,

    /// Seed of the content and of the order of reads.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Threads of the client [default: the number of cores, at most 4].
    #[arg(long)]
    pub threads: Option<usize>,

    /// Write the report as JSON to this file; `-` is the standard output, in place of the text.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Cli {
    /// Objects that exist before the measurement begins.
    pub(crate) fn prepared_objects(&self) -> u64 {
        match self.operation {
            Operation::Put => 0,
            Operation::Delete => self.objects.or(self.count).unwrap_or(10_000),
            _ => self.objects.unwrap_or_else(|| ((1 << 30) / self.size.max(1)).clamp(1, 1000)),
        }
    }
}
