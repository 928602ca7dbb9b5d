//! Running programs: with their output shown as it comes, and read on the way.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::summary::say;

/// The program and its arguments, for messages.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Runs to the end.
///
/// # Errors
/// When the program can not be started or fails.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    say(&format!("$ {}", shown(command)));
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("starting {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs to the end and hands every line of its standard output to `line`, after showing it. Returns whether it succeeded.
///
/// # Errors
/// When the program can not be started.
pub(crate) fn run_watched(command: &mut Command, mut line: impl FnMut(&str)) -> anyhow::Result<bool> {
    say(&format!("$ {}", shown(command)));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", shown(command)))?;
    let stdout = child.stdout.take().context("the output was asked for")?;
    for text in BufReader::new(stdout).split(b'\n') {
        let text = text.context("reading the program's output")?;
        let text = String::from_utf8_lossy(&text);
        say(&text);
        line(&text);
    }
    Ok(child.wait().context("waiting for the program")?.success())
}

/// The standard output of a program that must succeed.
///
/// # Errors
/// When the program can not be started or fails.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {}", shown(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}\n{}", shown(command), output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Sends a signal to a child that was not waited for yet.
///
/// # Errors
/// When it can not be told.
pub(crate) fn signal(child: &Child, signal: Signal) -> anyhow::Result<()> {
    kill_process(Pid::from_child(child), signal).with_context(|| format!("telling process {} to end", child.id()))
}

/// Whether a program of this name can be started.
pub(crate) fn exists(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|directory| is_executable(&directory.join(program)))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
