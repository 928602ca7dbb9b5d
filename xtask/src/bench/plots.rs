//! `cargo xtask bench plots`: the drawings of docs/BENCHMARKS.md, and the tables that they are made of.
//!
//! Two release servers, one with each durability, are measured in turn with HTTP alone, by one client and by more; `gabion bench --plot` draws what was found.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;
use serde_json::Value;

use super::{
    ACCESS_KEY, SECRET_KEY, remove,
    shares::{TOUCHED_MEMORY, serve, without_errors},
};
use crate::process::run as run_command;

/// Where tables and drawings go, below the top of the repository.
const DIRECTORY: &str = "docs/plots";
const CLIENTS: [u32; 5] = [1, 4, 16, 64, 256];

/// Measures and draws.
///
/// # Errors
/// When a server or a load fails.
pub(super) fn run(program: &Path, directory: &Path, seconds: u64, rounds: usize) -> anyhow::Result<()> {
    let place = directory.join(format!("gabion-plots-{}", std::process::id()));
    fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    let drawn = measure(program, &place, seconds, rounds).and_then(|tables| {
        run_command(Command::new(program).args(["bench", "--plot"]).args(tables).args(["--out", DIRECTORY]))
    });
    remove(&place, drawn)
}

fn measure(program: &Path, place: &Path, seconds: u64, rounds: usize) -> anyhow::Result<Vec<PathBuf>> {
    let (relaxed, sync) = (serve(program, place, "relaxed")?, serve(program, place, "sync")?);
    let endpoints = format!("sync={},relaxed={}", sync.endpoint, relaxed.endpoint);
    fs::create_dir_all(DIRECTORY)?;
    let mut tables = Vec::new();
    for clients in CLIENTS {
        let table = Path::new(DIRECTORY).join(format!("{clients}-clients.json"));
        let mut command = Command::new(program);
        command
            .args(["bench", "floor", "--size", "4KiB", "--operation", "put,get,stat", "--endpoint", &endpoints])
            .args(["-c", &clients.to_string(), "--duration", &format!("{seconds}s"), "--rounds", &rounds.to_string()])
            .args(["--touch-memory", TOUCHED_MEMORY])
            .arg("--json")
            .arg(&table)
            .env("GABION_ACCESS_KEY", ACCESS_KEY)
            .env("GABION_SECRET_KEY", SECRET_KEY);
        run_command(&mut command)?;
        let text = fs::read_to_string(&table).with_context(|| format!("reading {}", table.display()))?;
        let measured: Value = serde_json::from_str(&text).with_context(|| format!("reading {}", table.display()))?;
        without_errors(&measured["rows"])?;
        tables.push(table);
    }
    Ok(tables)
}
