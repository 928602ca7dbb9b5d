//! The simulator: built fast, with assertions; see docs/TESTING.md.

use crate::{
    cargo::{cargo, test},
    process::run,
    summary::{Tally, say},
};

/// Between soon built and fast: `[profile.sim]` in the workspace.
const PROFILE: [&str; 4] = ["--profile", "sim", "-p", "gabion-sim"];
/// What CI gives to seeds that nobody ran before, in seconds.
const CI_SECONDS: &str = "60";

/// Without arguments what CI runs, else what they ask for; `--planted NAME` builds with a bug that the seeds must find.
///
/// # Errors
/// When it does not build, or a seed fails.
pub(crate) fn run_all(arguments: &[String], tally: &mut Tally) -> anyhow::Result<()> {
    if arguments.is_empty() {
        test(cargo("test")?.args(PROFILE), tally)?;
        run(cargo("run")?.args(PROFILE).args(["--", "--regressions", "--seconds", CI_SECONDS]))?;
    } else if let [flag, name, rest @ ..] = arguments
        && flag == "--planted"
    {
        planted(name, rest)?;
    } else {
        run(cargo("run")?.args(PROFILE).arg("--").args(arguments))?;
    }
    tally.passed += 1;
    Ok(())
}

/// Builds with a bug on purpose; that a seed fails is what passes.
fn planted(name: &str, arguments: &[String]) -> anyhow::Result<()> {
    let features = format!("planted-{name}");
    let mut build = cargo("build")?;
    run(build.args(PROFILE).args(["--features", &features]))?;
    let found = run(cargo("run")?.args(PROFILE).args(["--features", &features, "--"]).args(arguments)).is_err();
    anyhow::ensure!(found, "the bug {name} was not found");
    say(&format!("the bug {name} was found, as the lines above show"));
    Ok(())
}
