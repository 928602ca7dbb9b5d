//! `gabion target`: the members of a deployment, changed while it serves.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::client::{AdminArgs, TokenArgs};
use super::status::{self, bytes, count};
use crate::cli::Output;
use crate::exit::Failure;
use crate::output;

#[derive(Debug, Subcommand)]
pub(crate) enum TargetCommand {
    /// Show the targets: state, room, shards, failure domain, id.
    List {
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: Output,
    },
    /// Take an empty directory into the deployment; new segments go there, too.
    Add {
        /// The directory, as the server sees it; it must exist and be empty (a mounted file system may have its lost+found).
        directory: PathBuf,
        /// Failure domain (host, rack, enclosure): shards of a segment are spread over these. By default the target is one by itself.
        #[arg(long)]
        label: Option<String>,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Move everything away from a target while the server serves; new segments do not go there.
    Drain {
        /// Path or id, as `gabion target list` shows them.
        target: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Use a target again that was being drained.
    Undrain {
        /// Path or id.
        target: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Move shards from fuller targets to emptier ones while the server serves, as after a target was added; failure domains are kept.
    Rebalance {
        /// How far apart the fullest and the emptiest target may be, in percent of their size; 100 ends a rebalancing that is under way.
        #[arg(long, value_name = "SPREAD", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
        until: u8,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Take a target out of the deployment: a drained one on which nothing lies, or with --lost one that will not come back.
    Remove {
        /// Path or id.
        target: String,
        /// It is lost: what lay on it is built anew on the others.
        #[arg(long)]
        lost: bool,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Put an empty directory in the place of a target: a dead one is rebuilt on it, a live one is moved.
    Replace {
        /// Path or id of the old target.
        target: String,
        /// The directory that takes its place; it must exist and be empty.
        directory: PathBuf,
        /// Failure domain of the new one. By default the label of the old one; by itself if that had none.
        #[arg(long)]
        label: Option<String>,
        #[command(flatten)]
        change: ChangeArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Default, Serialize)]
struct Request {
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with: Option<String>,
    lost: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    until_percent: Option<u8>,
    dry_run: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    action: String,
    target: String,
    segments: u64,
    #[serde(default)]
    open_segments: u64,
    bytes: u64,
    fits: bool,
    warnings: Vec<String>,
    applied: bool,
}

/// Does it.
///
/// # Errors
/// When the server can not be asked, or refuses.
pub(crate) fn run(command: TargetCommand) -> Result<(), Failure> {
    let (action, request, change) = match command {
        TargetCommand::List { admin, output } => return list(&admin, output.json),
        TargetCommand::Add { directory, label, change } => {
            ("add", Request { target: absolute(&directory)?, label, ..Request::default() }, change)
        }
        TargetCommand::Drain { target, change } => ("drain", Request { target, ..Request::default() }, change),
        TargetCommand::Undrain { target, change } => ("undrain", Request { target, ..Request::default() }, change),
        TargetCommand::Rebalance { until, change } => {
            ("rebalance", Request { until_percent: Some(until), ..Request::default() }, change)
        }
        TargetCommand::Remove { target, lost, change } => {
            ("remove", Request { target, lost, ..Request::default() }, change)
        }
        TargetCommand::Replace { target, directory, label, change } => {
            ("replace", Request { target, label, with: Some(absolute(&directory)?), ..Request::default() }, change)
        }
    };
    let request = Request { dry_run: change.dry_run, ..request };
    let answer = change.admin.post(&format!("/targets/{action}"), &change.token, &request)?;
    let plan: Plan = serde_json::from_slice(&answer)
        .map_err(|error| Failure::failed(format!("the server's answer makes no sense: {error}")))?;
    if change.output.json {
        output::print_json(&plan)?;
    } else {
        output::print(&plan.text(plan.subject(&request.target)))?;
    }
    // The same code as without --dry-run: scripts ask first.
    if plan.is_refused() { Err(Failure::failed(format!("{action} would be refused"))) } else { Ok(()) }
}

fn list(admin: &AdminArgs, json: bool) -> Result<(), Failure> {
    let status: Value = admin.get("/status")?;
    if json { output::print_json(&status["store"]["log"]["targets"]) } else { output::print(&status::targets(status)?) }
}

/// The path as it is from everywhere: the server may have been started elsewhere.
fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path)
        .map_err(|error| Failure::config(format!("{} is no path: {error}", path.display())))?;
    let text = absolute.into_os_string().into_string();
    text.map_err(|path| Failure::config(format!("{} is not UTF-8 text", PathBuf::from(path).display())))
}

impl Plan {
    /// What a plan is about, for people.
    fn subject<'a>(&self, target: &'a str) -> &'a str {
        if self.action == "rebalance" { "the targets" } else { target }
    }

    /// Whether the server would not do it; the warnings say why.
    fn is_refused(&self) -> bool {
        !self.applied && !self.fits
    }

    fn text(&self, target: &str) -> String {
        let done = if self.applied { "done" } else { "would be done" };
        let mut out = if self.is_refused() {
            format!("{} {target}: would be refused\n", self.action)
        } else {
            let segments = count(self.segments, "segment");
            let open = match self.open_segments {
                0 => String::new(),
                open => format!(", {open} of them still written to and sealed first"),
            };
            format!(
                "{} {target}: {done}; {segments} with {} to move or rebuild{open}\n",
                self.action,
                bytes(self.bytes)
            )
        };
        for warning in &self.warnings {
            // Writing to a String can not fail.
            let _ = writeln!(out, "! {warning}");
        }
        if self.applied && self.segments > 0 {
            out.push_str("gabion status shows how far it is\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_what_it_takes() {
        let plan = Plan {
            action: "drain".into(),
            target: "7".into(),
            segments: 1,
            open_segments: 0,
            bytes: 2048,
            fits: false,
            warnings: vec!["hm".into()],
            applied: false,
        };
        assert_eq!(plan.text("/mnt/a"), "drain /mnt/a: would be refused\n! hm\n");
        assert!(plan.is_refused());
        let fits = Plan { fits: true, ..plan };
        assert!(fits.text("7").starts_with("drain 7: would be done; 1 segment") && !fits.is_refused());
        let applied = Plan { applied: true, warnings: vec![], open_segments: 1, ..fits };
        assert!(applied.text("7").contains("to move or rebuild, 1 of them still written to and sealed first\n"));
        assert!(applied.text("7").starts_with("drain 7: done;") && applied.text("7").ends_with("how far it is\n"));
    }

    #[test]
    fn a_rebalance_names_no_target() {
        let plan = Plan {
            action: "rebalance".into(),
            target: String::new(),
            segments: 3,
            open_segments: 0,
            bytes: 3 << 20,
            fits: true,
            warnings: vec![],
            applied: true,
        };
        assert!(
            plan.text(plan.subject("")).starts_with("rebalance the targets: done; 3 segments with 3.0 MiB to move")
        );
    }

    #[test]
    fn directories_are_named_from_the_root() {
        assert!(absolute(Path::new("x/y")).unwrap().starts_with('/'));
        assert_eq!(absolute(Path::new("/mnt/./a")).unwrap(), "/mnt/a");
    }
}
