//! The program: arguments, configuration, wiring. What it wires together lives in the crates below.
#![forbid(unsafe_code)]

mod admin;
mod cli;
mod config;
mod deployment;
mod exit;
mod files;
mod index;
mod inspect;
mod keys;
mod logging;
mod output;
mod rebuild;
mod server;
mod state;
mod targets;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use gabion_bench::BenchError;

use cli::{Action, Cli, ConfigCommand, RebuildArgs, SettingArgs};
use config::{Config, Problem};
use exit::Failure;
use files::NamedFiles;

// Many small allocations on many threads, freed on others: the system's allocator keeps too much of them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure);
            failure.code()
        }
    }
}

fn run(command: Action) -> Result<(), Failure> {
    match command {
        Action::Server(settings) => server::run(read(settings)?),
        Action::RebuildIndex(RebuildArgs { verify, without_snapshot, settings }) => {
            rebuild::run(read(settings)?, rebuild::Wish { verify, without_snapshot })
        }
        Action::Inspect(what) => inspect::run(what),
        Action::Config(ConfigCommand::Check(settings)) => check(settings),
        Action::Status { admin, output } => admin::status::run(&admin, output.json),
        Action::Target(command) => admin::target::run(command),
        Action::Account(command) => admin::iam::account(command),
        Action::User(command) => admin::iam::user(command),
        Action::Key(command) => admin::iam::key(command),
        Action::Quota(command) => admin::iam::quota(command),
        Action::Policy(command) => admin::iam::policy(command),
        Action::Scrub { wait, admin, token } => admin::scrub::run(&admin, &token, wait),
        Action::Bench(load) => gabion_bench::run(*load).map_err(of_bench),
        Action::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "gabion", &mut script);
            output::print(&String::from_utf8_lossy(&script))
        }
    }
}

fn read(settings: SettingArgs) -> Result<Config, Failure> {
    Config::read(&settings.layers()?.resolve()).map_err(wrong)
}

fn check(settings: SettingArgs) -> Result<(), Failure> {
    let resolved = settings.layers()?.resolve();
    output::print(&config::report(&resolved))?;
    let config = Config::read(&resolved).map_err(wrong)?;
    NamedFiles::read(&config).map(drop)
}

fn of_bench(error: BenchError) -> Failure {
    match error {
        BenchError::Usage(sentence) => Failure::config(sentence),
        BenchError::Failed(error) => error.into(),
    }
}

fn wrong(problems: Vec<Problem>) -> Failure {
    Failure::configs(problems.iter().map(Problem::to_string))
}
