//! The real clients: a Python environment under the target directory, Debian packages, and pytest over `tests/clients`.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, bail};

use crate::{
    cargo::{build_test_server, root, target_dir},
    process::{exists, output, run, run_watched},
    summary::{Tally, say},
};

/// What the Python environment holds: the newest releases, whose defaults (checksums) are what users meet. With
/// its `crt` extra boto3 computes CRC32C and CRC64NVME too.
const REQUIREMENTS: [&str; 3] = ["boto3[crt]", "awscli", "pytest"];

/// Runs the tests of all clients.
///
/// # Errors
/// When a test failed or a client can not be installed.
pub(crate) fn run_all(arguments: &[String], tally: &mut Tally) -> anyhow::Result<()> {
    let server = build_test_server()?;
    let environment = python_environment()?;
    install_packages(&[("rclone", "rclone")])?;
    let mut command = Command::new(environment.join("bin/python"));
    command
        .args(["-m", "pytest", "-q", "-ra", "--tb=short", "-p", "no:cacheprovider"])
        .args(["-o", "tmp_path_retention_policy=none", "tests/clients"])
        .args(arguments)
        .current_dir(root()?)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("GABION_TEST_BIN", server)
        .env("GABION_TEST_CLIENTS", environment.join("bin"));
    if !exists("s5cmd") {
        say("s5cmd is not installed: its tests are skipped");
    }
    let succeeded = run_watched(&mut command, |line| {
        if let Some(counts) = pytest_counts(line) {
            *tally = counts;
        }
    })?;
    if !succeeded {
        bail!("pytest failed");
    }
    Ok(())
}

/// Creates the environment, or takes the one of an earlier run.
fn python_environment() -> anyhow::Result<PathBuf> {
    let environment = target_dir()?.join("clients");
    let stamp = environment.join("requirements.installed");
    let wanted = REQUIREMENTS.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(environment);
    }
    if !exists("python3") || output(Command::new("python3").args(["-c", "import ensurepip, venv"])).is_err() {
        install_packages(&[("python3", "python3"), ("", "python3-venv")])?;
    }
    fs::create_dir_all(target_dir()?)?;
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    run(Command::new(environment.join("bin/pip")).args(["install", "--quiet", "--upgrade"]).args(REQUIREMENTS))
        .context("installing boto3, awscli and pytest needs the network (or PIP_FIND_LINKS) once")?;
    fs::write(stamp, wanted)?;
    Ok(environment)
}

/// Installs the Debian packages of those programs that are missing; an empty program name is always missing.
fn install_packages(packages: &[(&str, &str)]) -> anyhow::Result<()> {
    let missing: Vec<&str> =
        packages.iter().filter(|(program, _)| program.is_empty() || !exists(program)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !exists("apt-get") {
        bail!("{} must be installed by hand: this is no Debian system", missing.join(", "));
    }
    let root = output(Command::new("id").arg("-u"))?.trim() == "0";
    let apt = || {
        let mut command = if root { Command::new("apt-get") } else { Command::new("sudo") };
        if !root {
            command.args(["-n", "apt-get"]);
        }
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    let hint = || format!("{} must be installed: that needs the network once, and root or sudo", missing.join(", "));
    run(apt().args(["update", "-q"])).with_context(hint)?;
    run(apt().args(["install", "-q", "-y", "--no-install-recommends"]).args(&missing)).with_context(hint)
}

/// Reads pytest's last line: `1 failed, 41 passed, 2 skipped in 12.34s`.
fn pytest_counts(line: &str) -> Option<Tally> {
    let (counts, _) = line.trim_matches(|c| c == '=' || c == ' ').rsplit_once(" in ")?;
    let mut tally = Tally::default();
    for count in counts.split(", ") {
        let (number, word) = count.split_once(' ')?;
        let number: u64 = number.parse().ok()?;
        match word {
            "passed" => tally.passed = number,
            "failed" | "error" | "errors" => tally.failed += number,
            "skipped" => tally.skipped = number,
            "warning" | "warnings" | "deselected" => {}
            _ => return None,
        }
    }
    Some(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_pytest() {
        let counts = |passed, failed, skipped| Some(Tally { passed, failed, skipped });
        assert_eq!(pytest_counts("1 failed, 41 passed, 2 skipped in 12.34s"), counts(41, 1, 2));
        assert_eq!(pytest_counts("41 passed in 1.02s (0:00:01)"), counts(41, 0, 0));
        assert_eq!(pytest_counts("2 failed, 1 passed, 3 errors in 1.0s"), counts(1, 5, 0));
        assert_eq!(pytest_counts("object stored in bucket"), None);
    }
}
