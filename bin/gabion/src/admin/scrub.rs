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
    waiting: bool,
    ended: u64,
    error: Option<String>,
    segments_done: u64,
    segments_total: u64,
    last: Option<Report>,
}

/// A scrub that was complete.
#[derive(Debug, Deserialize)]
struct Report {
    segments: u64,
    bad_shards: u64,
    unread_shards: u64,
    cross_check: Option<CrossCheck>,
}

/// What its comparison of index and log found.
#[derive(Debug, Deserialize)]
struct CrossCheck {
    rows_without_segment: u64,
    rows_past_end: u64,
    segments_without_row: u64,
    segment_rows_without_log: u64,
    strays: Strays,
}

#[derive(Debug, Deserialize)]
struct Strays {
    unknown_files: u64,
    misplaced_files: u64,
}

impl CrossCheck {
    /// What is wrong, in words; nothing where all is well.
    fn differences(&self) -> String {
        let found = [
            (self.rows_without_segment, "rows name segments that are not there"),
            (self.rows_past_end, "rows name bytes behind the end of their segment"),
            (self.segments_without_row, "segments are not in the index"),
            (self.segment_rows_without_log, "segments of the index are not in the log"),
            (self.strays.unknown_files, "files are of no segment"),
            (self.strays.misplaced_files, "files are of segments that have no shard there"),
        ];
        let words = found.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// Begins a scrub; waits for its end if that is asked for.
///
/// # Errors
/// When the server can not be asked, or refuses; when it waited and the scrub was not complete, or something was found.
pub(crate) fn run(admin: &AdminArgs, token: &TokenArgs, wait: bool) -> Result<(), Failure> {
    let ended_before = progress(admin)?.ended;
    admin.post("/scrub", token, &json!({}))?;
    if !wait {
        return output::print("the scrub has begun; gabion status shows how far it is\n");
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} segments, {elapsed}, {eta} left");
    let bar = ProgressBar::new(0).with_style(style.map_err(|error| Failure::failed(error.to_string()))?);
    let progress = loop {
        thread::park_timeout(EVERY);
        let progress = progress(admin)?;
        bar.set_length(progress.segments_total);
        bar.set_position(progress.segments_done);
        if progress.ended < ended_before {
            return Err(Failure::failed("the server was started again meanwhile: ask once more"));
        }
        // Another one may have been under way when this one was asked for, which comes after it then.
        if progress.ended > ended_before && !progress.running && !progress.waiting {
            break progress;
        }
    };
    bar.finish_and_clear();
    outcome(&progress)
}

fn progress(admin: &AdminArgs) -> Result<Progress, Failure> {
    let mut status: Value = admin.get("/status")?;
    serde_json::from_value(status["store"]["scrub"].take())
        .map_err(|error| Failure::failed(format!("the server says nothing of its scrub: {error}")))
}

/// What to say of a scrub that ended.
fn outcome(progress: &Progress) -> Result<(), Failure> {
    if let Some(error) = &progress.error {
        return Err(Failure::failed(format!("the scrub stopped after {} segments: {error}", progress.segments_done)));
    }
    let Some(last) = &progress.last else {
        return Err(Failure::failed("the server says nothing of a scrub that ended"));
    };
    let mut found = Vec::new();
    if last.bad_shards > 0 {
        found.push(format!("{} bad shards found, which are being repaired", last.bad_shards));
    }
    if last.unread_shards > 0 {
        found.push(format!("{} shards could not be read, for their targets do not answer", last.unread_shards));
    }
    if let Some(differences) = last.cross_check.as_ref().map(CrossCheck::differences).filter(|text| !text.is_empty()) {
        found.push(format!("index and log do not agree: {differences}"));
    }
    match found.is_empty() {
        true => output::print(&format!("{} segments read, nothing is wrong\n", last.segments)),
        false => Err(Failure::impaired(format!("{} segments read; {}", last.segments, found.join("; ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `/status` says of a scrub that read four segments, with some fields as they are given.
    fn said(error: Value, bad: u64, unread: u64, past_end: u64) -> Progress {
        let cross_check = json!({ "rows": 9, "rows_without_segment": 0, "rows_past_end": past_end, "segments_without_row": 0,
            "segment_rows_without_log": 0, "strays": { "unknown_files": 0, "misplaced_files": 0 }, "examples": [] });
        let last = json!({ "segments": 4, "bad_shards": bad, "unread_shards": unread, "cross_check": cross_check });
        let progress = json!({ "running": false, "waiting": false, "ended": 2, "error": error, "segments_done": 3,
            "segments_total": 4, "last": last });
        serde_json::from_value(progress).unwrap()
    }

    #[test]
    fn what_was_not_read_or_does_not_agree_is_not_well() {
        assert!(outcome(&said(Value::Null, 0, 0, 0)).is_ok());
        let table = [
            (said(json!("busy"), 0, 0, 0), "stopped after 3 segments: busy"),
            (said(Value::Null, 0, 0, 2), "2 rows name bytes behind the end of their segment"),
            (said(Value::Null, 0, 5, 0), "5 shards could not be read"),
            (
                said(Value::Null, 7, 0, 2),
                "7 bad shards found, which are being repaired; index and log do not agree: 2 rows",
            ),
        ];
        for (progress, expected) in table {
            let sentence = outcome(&progress).unwrap_err().to_string();
            assert!(sentence.contains(expected), "{sentence}");
        }
    }
}
