//! `gabion scrub`: reads and checks everything now.

use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{AdminArgs, TokenArgs};
use crate::exit::Failure;
use crate::output;

const EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Deserialize)]
struct Progress {
    running: bool,
    segments_done: u64,
    segments_total: u64,
    errors_found: u64,
    #[serde(default)]
    unread_shards: u64,
}

/// Begins a scrub; waits for its end if that is asked for.
///
/// # Errors
/// When the server can not be asked, or refuses; when it waited and something was found.
pub(crate) fn run(admin: &AdminArgs, token: &TokenArgs, wait: bool) -> Result<(), Failure> {
    admin.post("/scrub", token, &json!({}))?;
    if !wait {
        return output::print("the scrub has begun; gabion status shows how far it is\n");
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} segments, {elapsed}, {eta} left");
    let bar = ProgressBar::new(0).with_style(style.map_err(|error| Failure::failed(error.to_string()))?);
    let progress = loop {
        thread::park_timeout(EVERY);
        let mut status: Value = admin.get("/status")?;
        let progress: Progress = serde_json::from_value(status["store"]["scrub"].take())
            .map_err(|error| Failure::failed(format!("the server says nothing of its scrub: {error}")))?;
        bar.set_length(progress.segments_total);
        bar.set_position(progress.segments_done);
        if !progress.running {
            break progress;
        }
    };
    bar.finish_and_clear();
    match (progress.errors_found, progress.unread_shards) {
        (0, 0) => output::print(&format!("{} segments read, nothing is wrong\n", progress.segments_done)),
        (0, unread) => Err(Failure::impaired(format!(
            "{} segments read, nothing is wrong with what could be read; {unread} shards could not, for their targets do not answer",
            progress.segments_done
        ))),
        (found, _) => Err(Failure::impaired(format!(
            "{} segments read, {found} bad shards found; they are being repaired",
            progress.segments_done
        ))),
    }
}
