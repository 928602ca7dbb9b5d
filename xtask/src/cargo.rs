//! Cargo, called the way this workspace needs it.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

use crate::{
    process::{output, run, run_watched},
    summary::Tally,
};

/// The root of the checkout.
///
/// # Errors
/// When not started by cargo.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").context("start this with `cargo xtask`")?;
    Ok(Path::new(&package).parent().context("the package lies in the workspace")?.to_owned())
}

/// Where cargo puts what it builds.
///
/// # Errors
/// When not started by cargo.
pub(crate) fn target_dir() -> anyhow::Result<PathBuf> {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => Ok(std::path::absolute(dir)?),
        None => Ok(root()?.join("target")),
    }
}

/// `cargo SUBCOMMAND` in the root. `s3s` declares a newer Rust than it needs (docs/adr/0005): hence the second flag.
///
/// # Errors
/// When not started by cargo.
pub(crate) fn cargo(subcommand: &str) -> anyhow::Result<Command> {
    let mut command = bare(subcommand)?;
    command.args(["--locked", "--ignore-rust-version"]);
    Ok(command)
}

/// `cargo SUBCOMMAND` without the flags that only building commands know.
///
/// # Errors
/// When not started by cargo.
pub(crate) fn bare(subcommand: &str) -> anyhow::Result<Command> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.arg(subcommand).current_dir(root()?);
    // What `cargo run` set for this program is none of the child's business and would rebuild crates that look at it.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    Ok(command)
}

/// Every package but the integration tests, and the simulator, which wants a tokio that can pause time. Steps that build select the same packages: another selection means other features for shared
/// dependencies, and another build of everything above them.
pub(crate) const PRODUCT: [&str; 5] = ["--workspace", "--exclude", "gabion-tests", "--exclude", "gabion-sim"];

/// Builds the server that tests drive, from what the unit tests have built already, and returns its path.
///
/// # Errors
/// When it does not build.
pub(crate) fn build_test_server() -> anyhow::Result<PathBuf> {
    run(cargo("build")?.args(PRODUCT).args(["--bin", "gabion"]))?;
    Ok(target_dir()?.join("debug/gabion"))
}

/// Builds the program with which the AWS SDK for Rust is tried beside the other clients, from what the integration tests are built of.
///
/// # Errors
/// When it does not build.
pub(crate) fn build_test_client() -> anyhow::Result<PathBuf> {
    run(cargo("build")?.args(["-p", "gabion-tests", "--example", "smoke"]))?;
    Ok(target_dir()?.join("debug/examples/smoke"))
}

/// Builds the program as users do, and returns its path.
///
/// # Errors
/// When it does not build.
pub(crate) fn build_release() -> anyhow::Result<PathBuf> {
    run(cargo("build")?.args(["--release", "-p", "gabion"]))?;
    Ok(target_dir()?.join("release/gabion"))
}

/// Runs `cargo test …` and counts what its harnesses report.
///
/// # Errors
/// When a test failed or nothing could be built.
pub(crate) fn test(command: &mut Command, tally: &mut Tally) -> anyhow::Result<()> {
    let mut reports = Reports::default();
    let succeeded = run_watched(command, |line| {
        if let Some(counts) = harness_counts(line) {
            tally.passed += counts.passed;
            tally.failed += counts.failed;
        }
        reports.read(line);
    })?;
    if !succeeded {
        bail!("cargo test failed\n{}", reports.lines.join("\n"));
    }
    Ok(())
}

/// What failed tests printed: from `---- NAME stdout ----` to the list of names behind the last of them.
#[derive(Default)]
struct Reports {
    lines: Vec<String>,
    /// Lines that the one that is being read may still have.
    left: usize,
}

/// Most lines that are kept of each: backtraces and logs are long.
const REPORT_LINES_MAX: usize = 40;

impl Reports {
    fn read(&mut self, line: &str) {
        if line.starts_with("---- ") && line.ends_with(" ----") {
            self.left = REPORT_LINES_MAX;
        } else if line == "failures:" {
            self.left = 0;
        }
        if self.left > 0 {
            self.left -= 1;
            self.lines.push(line.to_owned());
        }
    }
}

/// Reads `test result: ok. 12 passed; 0 failed; 1 ignored; …`. What is ignored is no test: helpers that a test starts as a process.
fn harness_counts(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut tally = Tally::default();
    for count in counts.split(';') {
        let mut words = count.split_whitespace();
        let (Some(number), Some(word)) = (words.next(), words.next()) else { continue };
        let Ok(number) = number.parse() else { continue };
        match word {
            "passed" => tally.passed = number,
            "failed" => tally.failed = number,
            _ => {}
        }
    }
    Some(tally)
}

/// Version of a program, or an error when it is not there.
///
/// # Errors
/// When it can not be run.
pub(crate) fn deny_version() -> anyhow::Result<String> {
    Ok(output(bare("deny")?.arg("--version"))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_test_harness() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 5 filtered out; finished in 0.19s";
        assert_eq!(harness_counts(line), Some(Tally { passed: 12, failed: 3, skipped: 0 }));
        assert_eq!(harness_counts("test a ... ok"), None);
    }

    #[test]
    fn what_failed_tests_printed_is_kept() {
        let mut reports = Reports::default();
        let output = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nthread 'b' panicked\nleft: 1\n\nfailures:\n    b\n";
        output.lines().for_each(|line| reports.read(line));
        assert_eq!(reports.lines, ["---- b stdout ----", "thread 'b' panicked", "left: 1", ""]);
        (0..1000).for_each(|_| reports.read("and on"));
        reports.read("---- c stdout ----");
        (0..1000).for_each(|_| reports.read("and on"));
        assert_eq!(reports.lines.len(), 4 + REPORT_LINES_MAX);
    }
}
