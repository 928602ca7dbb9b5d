//! The kernels for the other kind of processor: the tests of `gabion-erasure` as 64-bit ARM code, run by an emulator.

use std::process::Command;

use crate::{
    cargo::{cargo, test},
    debian::packages,
    process::{output, run},
    summary::{Tally, say},
};

const TRIPLE: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Where Debian's packages put what programs of that kind link to.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// The tests, where what they need is there or can be had.
///
/// # Errors
/// When they do not build, or one fails.
pub(crate) fn run_all(arguments: &[String], tally: &mut Tally) -> anyhow::Result<()> {
    if cfg!(target_arch = "aarch64") {
        say("skipped: this is such a processor, the step `unit` runs them");
        tally.skipped += 1;
        return Ok(());
    }
    if let Err(error) = install() {
        say(&format!("skipped: {error:#}"));
        tally.skipped += 1;
        return Ok(());
    }
    let mut command = cargo("test")?;
    command.args(["-p", "gabion-erasure", "--target", TRIPLE, "--no-fail-fast", "--"]).args(arguments);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L {LIBRARIES}"));
    test(&mut command, tally)
}

/// Compiler, linker and emulator. Of a toolchain without rustup it shows when the tests are built whether it has the target.
fn install() -> anyhow::Result<()> {
    // The compiler's package does not bring the C library's without recommendations.
    packages(&[(EMULATOR, "qemu-user"), (LINKER, "gcc-aarch64-linux-gnu"), (LINKER, "libc6-dev-arm64-cross")])?;
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"]))?;
    if installed.lines().any(|line| line == TRIPLE) {
        return Ok(());
    }
    run(Command::new("rustup").args(["target", "add", TRIPLE]))
}
