//! Coverage-guided fuzzing with libFuzzer, with the stable compiler: the targets of `fuzz/`.
//!
//! The package is laid out for cargo-fuzz, which works on it with a nightly compiler. What cargo-fuzz passes to the
//! compiler is stable but for sanitizers, so it is passed here and nothing has to be installed but a C++ compiler.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;

use crate::{
    cargo::{bare, root, target_dir},
    process::{exists, run},
    summary::{Tally, say},
};

/// Coverage as libFuzzer wants it, and the assertions that a release build leaves out.
const RUSTFLAGS: [&str; 9] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Cdebug-assertions",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];
/// Flags for the product, and not for build scripts and macros, need a target that is named.
const TRIPLE: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };
/// What one target may do in CI, after it has read its corpus, in seconds: a minute and a half for all.
const CI_SECONDS: u32 = 6;
/// An input that takes longer is a hang, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;
/// Memory that a target may take, in MiB.
const MEMORY_MIB_MAX: u32 = 2048;

/// Every target for some seconds, from the corpus that is kept.
///
/// # Errors
/// When one does not build, or finds something.
pub(crate) fn short(tally: &mut Tally) -> anyhow::Result<()> {
    if !["c++", "g++", "clang++"].into_iter().any(exists) {
        say("skipped: libFuzzer needs a C++ compiler (Debian: g++)");
        tally.skipped += 1;
        return Ok(());
    }
    let programs = build()?;
    for target in targets()? {
        let scratch = scratch(&target, "ci")?;
        fs::remove_dir_all(&scratch)?;
        fs::create_dir_all(&scratch)?;
        match run(fuzzer(&programs, &target)?.arg(scratch).arg(corpus(&target)?).arg(seconds(CI_SECONDS))) {
            Ok(()) => tally.passed += 1,
            Err(error) => {
                say(&format!("error: {error:#}"));
                tally.failed += 1;
            }
        }
    }
    Ok(())
}

/// One target for a while; what it finds new is then added to the corpus that is kept.
///
/// # Errors
/// When it does not build, or finds something.
pub(crate) fn long(target: &str, for_seconds: &str, tally: &mut Tally) -> anyhow::Result<()> {
    let for_seconds = for_seconds.parse().context("the time is a number of seconds")?;
    let known = targets()?;
    anyhow::ensure!(known.iter().any(|name| name == target), "there is no target {target:?}; there are {known:?}");
    let (programs, scratch, kept) = (build()?, scratch(target, "corpus")?, corpus(target)?);
    run(fuzzer(&programs, target)?.args([&scratch, &kept]).arg(seconds(for_seconds)))?;
    run(fuzzer(&programs, target)?.arg("-merge=1").args([&kept, &scratch]))?;
    tally.passed += 1;
    Ok(())
}

/// Builds all targets and returns where they are.
fn build() -> anyhow::Result<PathBuf> {
    let target_dir = target_dir()?.join("fuzz");
    let mut command = bare("build")?;
    // Not locked: the package's lock follows the dependencies of the crates that it fuzzes.
    command.args(["--release", "--ignore-rust-version", "--bins", "--target", TRIPLE]);
    command.arg("--manifest-path").arg(root()?.join("fuzz/Cargo.toml"));
    run(command.env("CARGO_TARGET_DIR", &target_dir).env("RUSTFLAGS", RUSTFLAGS.join(" ")))?;
    Ok(target_dir.join(TRIPLE).join("release"))
}

/// The targets, by name.
fn targets() -> anyhow::Result<Vec<String>> {
    let sources = root()?.join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&sources).with_context(|| format!("reading {}", sources.display()))? {
        let path = entry?.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn fuzzer(programs: &Path, target: &str) -> anyhow::Result<Command> {
    let artifacts = target_dir()?.join("fuzz/artifacts").join(target);
    fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(programs.join(target));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}")).arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
    Ok(command)
}

fn seconds(seconds: u32) -> String {
    format!("-max_total_time={seconds}")
}

/// Inputs that are kept.
fn corpus(target: &str) -> anyhow::Result<PathBuf> {
    Ok(root()?.join("fuzz/corpus").join(target))
}

/// Inputs that were found on the way.
fn scratch(target: &str, kind: &str) -> anyhow::Result<PathBuf> {
    let directory = target_dir()?.join("fuzz").join(kind).join(target);
    fs::create_dir_all(&directory)?;
    Ok(directory)
}
