//! What comes as packages of Debian.

use std::process::Command;

use anyhow::{Context, bail};

use crate::process::{exists, output, run};

/// Installs the Debian packages of those programs that are missing; an empty program name is always missing.
///
/// # Errors
/// When there is no `apt-get`, or it does not come by them.
pub(crate) fn packages(packages: &[(&str, &str)]) -> anyhow::Result<()> {
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
