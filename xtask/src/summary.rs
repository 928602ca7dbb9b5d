//! What passed, what failed, and how long each step took.

use std::{
    io::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Writes a line to the standard output; a closed pipe is no reason to fail.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Counts of one step.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

/// All steps of a run.
#[derive(Default)]
pub(crate) struct Summary {
    rows: Vec<(&'static str, Tally, Duration)>,
    errors: Vec<String>,
}

#[expect(clippy::disallowed_methods, reason = "a task runner tells how long its steps took")]
fn now() -> Instant {
    Instant::now()
}

impl Summary {
    /// Runs a step; an error counts as one failure and is printed.
    pub(crate) fn run(&mut self, name: &'static str, step: impl FnOnce(&mut Tally) -> anyhow::Result<()>) {
        say(&format!("\n=== {name}"));
        let begin = now();
        let mut tally = Tally::default();
        if let Err(error) = step(&mut tally) {
            let error = format!("error: {name}: {error:#}");
            say(&error);
            self.errors.push(error);
            tally.failed = tally.failed.max(1);
        }
        let took = begin.elapsed();
        say(&format!("=== {name}: {} passed, {} failed, {:.1} s", tally.passed, tally.failed, took.as_secs_f64()));
        self.rows.push((name, tally, took));
    }

    /// Prints what failed once more, the table, and the final line: who sees only the end of a run sees why.
    pub(crate) fn finish(&self) -> ExitCode {
        let mut total = Tally::default();
        for error in &self.errors {
            say(&format!("\n{error}"));
        }
        say("\nstep          passed  failed  skipped   seconds");
        for (name, tally, took) in &self.rows {
            let Tally { passed, failed, skipped } = tally;
            say(&format!("{name:<12} {passed:>7} {failed:>7} {skipped:>8} {:>9.1}", took.as_secs_f64()));
            total.passed += passed;
            total.failed += failed;
            total.skipped += skipped;
        }
        if total.skipped > 0 {
            say(&format!("{} skipped: the reasons are above", total.skipped));
        }
        say(&format!("{} passed, {} failed", total.passed, total.failed));
        if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
