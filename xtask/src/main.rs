//! `cargo xtask`: what CI runs, and the chores around it, without a shell script.
//!
//! `cargo xtask test` runs every step; each step is also a command of its own. Steps install what they need. The
//! last line of a run is `N passed, M failed`, and the exit status says the same.
#![forbid(unsafe_code)]

mod arm;
mod bench;
mod cargo;
mod clients;
mod debian;
mod fuzz;
mod http;
mod process;
mod release;
mod s3_tests;
mod sim;
mod steps;
mod summary;

use std::process::ExitCode;

use steps::Step;
use summary::{Summary, say};

const HELP: &str = "\
cargo xtask COMMAND [ARGUMENTS]

  test                    everything that CI runs, in the order below
  test --STEP             that step alone, as `test --clients`
  fmt                     cargo fmt --check
  lint                    clippy over all targets; warnings are errors
  doc                     rustdoc; warnings are errors
  unit [FILTER]           unit, property and documentation tests of all crates; without a filter each benchmark once, too
  arm [FILTER]            the tests of the kernels for 64-bit ARM, by an emulator (skipped with a message where it can not be had)
  fuzz                    the decoders' and parsers' properties with many more cases, and each fuzz target for some seconds
  fuzz TARGET SECONDS     one fuzz target; what it finds new is kept in fuzz/corpus
  sim [OPTIONS]           the simulator: its own tests, every named regression and a minute of fresh seeds; with options, those
                          seeds (see `sim --help` and docs/TESTING.md)
  integration [FILTER]    the built server, driven by the AWS SDK for Rust, killed, filled up, measured
  clients [PYTEST ARGS]   the AWS SDKs for Python, Rust, Java and JavaScript, and the tools that people use (docs/TESTING.md)
  deny                    cargo deny: licenses and advisories (skipped with a message where it is not installed)

  release [--dir DIRECTORY]
                          the program to install, built for what a server does most: with counters, loaded in DIRECTORY, and built again

  s3-tests SUITE [--defaults] [PYTEST ARGS]
                          Ceph's conformance suite, from a clone of it (docs/CONFORMANCE.md)

  bench first-figures     4 KiB and 16 MiB put and get at 1 and 64 clients on 4+2 and 1+0, as Markdown
  bench plots             puts, gets and stats of 4 KiB over the number of clients, beside HTTP alone, drawn to docs/plots
  bench repair            a lost target rebuilt, everything scrubbed: rates, CPU time, what gets feel of it, beside plain reads and writes
  bench shares            what a server reaches of the limits of HTTP, log and files, measured in the same run, against its targets
  bench churn             a random tenth of a store that is 80 % full, overwritten again and again: what reaches the disk, as Markdown
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((mut command, mut rest)) = arguments.split_first() else {
        say(HELP);
        return ExitCode::from(2);
    };
    let step = rest.first().and_then(|flag| flag.strip_prefix("--")).map(str::to_owned);
    if let ("test", Some(step)) = (command.as_str(), &step) {
        (command, rest) = (step, &rest[1..]);
    }
    let steps = match command.as_str() {
        "test" => Step::ALL.to_vec(),
        "help" | "--help" | "-h" => {
            say(HELP);
            return ExitCode::SUCCESS;
        }
        "bench" => return chore(bench::run(rest)),
        "release" => return chore(release::run_all(rest)),
        "s3-tests" => {
            let mut summary = Summary::default();
            summary.run("s3-tests", |tally| s3_tests::run_suite(rest, tally));
            return summary.finish();
        }
        name => match Step::ALL.iter().find(|step| step.name() == name) {
            Some(step) => vec![*step],
            None => {
                say(&format!("there is no command {name:?}\n\n{HELP}"));
                return ExitCode::from(2);
            }
        },
    };
    let mut summary = Summary::default();
    for step in steps {
        summary.run(step.name(), |tally| step.run(rest, tally));
    }
    summary.finish()
}

/// How a command ends that is no step of CI.
fn chore(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
