//! The real clients, each driven by pytest over `tests/clients`: what it takes to run them is in [`tools`].

mod tools;

use std::process::Command;

use anyhow::bail;

use crate::{
    cargo::{build_test_client, build_test_server, root},
    process::run_watched,
    summary::{Tally, say},
};
use tools::Tools;
pub(crate) use tools::python;

/// Runs the tests of all clients.
///
/// # Errors
/// When a test failed, or boto3 and pytest can not be installed. Any other client that can not be is said, and its tests are skipped.
pub(crate) fn run_all(arguments: &[String], tally: &mut Tally) -> anyhow::Result<()> {
    let server = build_test_server()?;
    let rust = build_test_client()?;
    let clients = python("clients", &tools::CLIENTS)?;
    let tools = Tools::install();
    let mut command = Command::new(clients.join("bin/python"));
    command
        .args(["-m", "pytest", "-q", "-ra", "--tb=short", "-p", "no:cacheprovider"])
        .args(["-o", "tmp_path_retention_policy=none", "tests/clients"])
        .args(arguments)
        .current_dir(root()?)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("GABION_TEST_BIN", server)
        .env("GABION_TEST_CLIENTS", clients.join("bin"))
        .env("GABION_TEST_RUST", rust)
        .envs(tools.found);
    let succeeded = run_watched(&mut command, |line| {
        if let Some(counts) = pytest_counts(line) {
            *tally = counts;
        }
    })?;
    for missing in &tools.missing {
        say(&format!("SKIPPED: {missing}"));
    }
    if !succeeded {
        bail!("pytest failed");
    }
    Ok(())
}

/// Reads pytest's last line: `1 failed, 41 passed, 2 skipped in 12.34s`.
pub(crate) fn pytest_counts(line: &str) -> Option<Tally> {
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
