//! The steps of CI, in the order of what fails fastest.

use std::process::Command;

use crate::{
    arm,
    cargo::{PRODUCT, bare, build_test_server, cargo, deny_version, test},
    clients, fuzz,
    process::run,
    sim,
    summary::{Tally, say},
};

/// One step; its name is also its command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Fmt,
    Lint,
    Doc,
    Unit,
    Arm,
    Fuzz,
    Sim,
    Integration,
    Clients,
    Deny,
}

/// Cases per property in the `fuzz` step; proptest runs 256 by default. Properties of decoders and parsers have `panic` in their names.
const FUZZ_CASES: &str = "200000";

/// Threads of the integration tests: each test starts a server of its own, and waits for it most of the time.
const INTEGRATION_THREADS: &str = "--test-threads=3";

impl Step {
    pub(crate) const ALL: [Step; 10] = [
        Step::Fmt,
        Step::Lint,
        Step::Doc,
        Step::Unit,
        Step::Arm,
        Step::Fuzz,
        Step::Sim,
        Step::Integration,
        Step::Clients,
        Step::Deny,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Step::Fmt => "fmt",
            Step::Lint => "lint",
            Step::Doc => "doc",
            Step::Unit => "unit",
            Step::Arm => "arm",
            Step::Fuzz => "fuzz",
            Step::Sim => "sim",
            Step::Integration => "integration",
            Step::Clients => "clients",
            Step::Deny => "deny",
        }
    }

    /// Runs the step and counts into `tally`.
    ///
    /// # Errors
    /// What failed.
    pub(crate) fn run(self, arguments: &[String], tally: &mut Tally) -> anyhow::Result<()> {
        match self {
            Step::Fmt => one(bare("fmt")?.args(["--all", "--check"]), tally),
            Step::Lint => {
                one(cargo("clippy")?.args(["--workspace", "--all-targets", "--", "-D", "warnings"]), tally)?;
                // The program and the benchmarks by themselves, as they are built: the workspace as a whole lends its crates features of each other.
                one(cargo("check")?.args(["-p", "gabion"]), tally)?;
                one(cargo("check")?.args(["-p", "gabion-benches", "--benches"]), tally)
            }
            Step::Doc => {
                one(cargo("doc")?.args(["--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"), tally)
            }
            Step::Unit => {
                let mut command = cargo("test")?;
                test(command.args(PRODUCT).args(["--no-fail-fast", "--"]).args(arguments), tally)?;
                // Each benchmark once, so that it still runs when it is wanted.
                let benches = [
                    "erasure",
                    "ratios",
                    "encryption",
                    "signatures",
                    "connection",
                    "requests",
                    "served",
                    "log",
                    "index",
                ];
                let benches = benches.map(|bench| ["--bench", bench]);
                let mut once = cargo("test")?;
                once.args(PRODUCT).args(benches.as_flattened());
                if arguments.is_empty() { one(&mut once, tally) } else { Ok(()) }
            }
            Step::Fuzz => {
                if let [target, seconds] = arguments {
                    return fuzz::long(target, seconds, tally);
                }
                let mut command = cargo("test")?;
                command.args(PRODUCT).args(["--lib", "--no-fail-fast", "--", "panic"]);
                test(command.env("PROPTEST_CASES", FUZZ_CASES), tally)?;
                fuzz::short(tally)
            }
            Step::Arm => arm::run_all(arguments, tally),
            Step::Sim => sim::run_all(arguments, tally),
            Step::Integration => {
                let server = build_test_server()?;
                let mut command = cargo("test")?;
                command.args(["-p", "gabion-tests", "--test", "integration", "--", INTEGRATION_THREADS]);
                test(command.args(arguments).env("GABION_TEST_BIN", server), tally)
            }
            Step::Clients => clients::run_all(arguments, tally),
            Step::Deny => deny(tally),
        }
    }
}

/// A step that passes or fails as a whole.
fn one(command: &mut Command, tally: &mut Tally) -> anyhow::Result<()> {
    run(command)?;
    tally.passed += 1;
    Ok(())
}

fn deny(tally: &mut Tally) -> anyhow::Result<()> {
    let Ok(version) = deny_version() else {
        say("skipped: cargo-deny is not installed; `cargo install --locked cargo-deny` takes some minutes");
        tally.skipped += 1;
        return Ok(());
    };
    say(&version);
    one(bare("deny")?.args(["check", "licenses", "bans", "sources"]), tally)?;
    // The advisories come over the network: where there is none, that is said and not taken for a vulnerability.
    if let Err(error) = run(bare("deny")?.args(["fetch", "db"])) {
        say(&format!("skipped: advisories can not be fetched: {error:#}"));
        tally.skipped += 1;
        return Ok(());
    }
    one(bare("deny")?.args(["check", "--disable-fetch", "advisories"]), tally)
}
