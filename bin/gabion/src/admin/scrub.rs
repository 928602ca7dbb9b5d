//! `gabion scrub`: reads and checks all segments now.

use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{AdminArgs, TokenArgs};
use super::status::count;
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
    #[serde(default)]
    open_segments: u64,
    bad_shards: u64,
    unread_shards: u64,
    #[serde(default)]
    shards_repaired: u64,
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
            (self.rows_without_segment, "row names", "rows name", "a segment that is not there"),
            (self.rows_past_end, "row names", "rows name", "bytes behind the end of a segment"),
            (self.segments_without_row, "segment is", "segments are", "not in the index"),
            (self.segment_rows_without_log, "segment of the index is", "segments of the index are", "not in the log"),
            (self.strays.unknown_files, "file is", "files are", "of no segment"),
            (self.strays.misplaced_files, "file is", "files are", "of a segment that has no shard there"),
        ];
        let words = found.into_iter().filter(|(number, ..)| *number > 0).map(|(number, one, many, what)| {
            let subject = if number == 1 { one } else { many };
            format!("{number} {subject} {what}")
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

impl Report {
    /// What was read, and how far.
    fn read(&self) -> String {
        let read = format!("{} read", count(self.segments, "segment"));
        match self.open_segments {
            0 => read,
            open => format!("{read}, {open} of them still written to, as far as they were"),
        }
    }

    /// What was damaged, and what became of it; nothing where all was well.
    fn damage(&self) -> Option<String> {
        let bad = count(self.bad_shards, "bad shard");
        match self.shards_repaired {
            _ if self.bad_shards == 0 => None,
            0 => Some(format!("{bad} found, being repaired")),
            built if built < self.bad_shards => {
                Some(format!("{bad} found, {built} of them built anew, the rest being repaired"))
            }
            _ => Some(format!("{bad} found and built anew")),
        }
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
        let done = count(progress.segments_done, "segment");
        return Err(Failure::failed(format!("the scrub stopped after {done}: {error}")));
    }
    let Some(last) = &progress.last else {
        return Err(Failure::failed("the server says nothing of a scrub that ended"));
    };
    let mut found: Vec<String> = last.damage().into_iter().collect();
    if last.unread_shards > 0 {
        let unread = count(last.unread_shards, "shard");
        found.push(format!("{unread} could not be read, because targets do not answer"));
    }
    if let Some(differences) = last.cross_check.as_ref().map(CrossCheck::differences).filter(|text| !text.is_empty()) {
        found.push(format!("index and log do not agree: {differences}"));
    }
    let read = last.read();
    match found.is_empty() {
        true => output::print(&format!("{read}; nothing is wrong with what was read\n")),
        false => Err(Failure::impaired(format!("{read}; {}", found.join("; ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `/status` says of a scrub that read four segments, with some fields as they are given.
    fn said(error: Value, bad: u64, unread: u64, past_end: u64) -> Progress {
        let cross_check = json!({ "rows": 9, "rows_without_segment": 0, "rows_past_end": past_end, "segments_without_row": 0,
            "segment_rows_without_log": 0, "strays": { "unknown_files": 0, "misplaced_files": 0 }, "examples": [] });
        let last = json!({ "segments": 4, "open_segments": 2, "bad_shards": bad, "unread_shards": unread, "cross_check": cross_check });
        let progress = json!({ "running": false, "waiting": false, "ended": 2, "error": error, "segments_done": 3,
            "segments_total": 4, "last": last });
        serde_json::from_value(progress).unwrap()
    }

    #[test]
    fn what_is_read_and_how_far_is_told() {
        let mut last = said(Value::Null, 0, 0, 0).last.unwrap();
        assert_eq!(last.read(), "4 segments read, 2 of them still written to, as far as they were");
        (last.segments, last.open_segments) = (1, 0);
        assert_eq!(last.read(), "1 segment read");
    }

    #[test]
    fn what_was_not_read_or_does_not_agree_is_not_well() {
        assert!(outcome(&said(Value::Null, 0, 0, 0)).is_ok());
        let table = [
            (said(json!("busy"), 0, 0, 0), "stopped after 3 segments: busy"),
            (said(Value::Null, 0, 0, 2), "2 rows name bytes behind the end of a segment"),
            (said(Value::Null, 0, 0, 1), "1 row names bytes behind the end of a segment"),
            (said(Value::Null, 0, 5, 0), "5 shards could not be read"),
            (
                said(Value::Null, 7, 0, 2),
                "4 segments read, 2 of them still written to, as far as they were; 7 bad shards found, being repaired; index and log do not agree: 2 rows",
            ),
        ];
        for (progress, expected) in table {
            let sentence = outcome(&progress).unwrap_err().to_string();
            assert!(sentence.contains(expected), "{sentence}");
        }
    }

    #[test]
    fn what_was_built_anew_is_not_being_repaired() {
        let table = [
            (1, 0, "1 bad shard found, being repaired"),
            (7, 2, "7 bad shards found, 2 of them built anew, the rest being repaired"),
            (1, 1, "1 bad shard found and built anew"),
            (1, 2, "1 bad shard found and built anew"),
        ];
        for (bad, repaired, expected) in table {
            let mut progress = said(Value::Null, bad, 0, 0);
            progress.last.as_mut().unwrap().shards_repaired = repaired;
            let sentence = outcome(&progress).unwrap_err().to_string();
            assert_eq!(
                sentence,
                format!("4 segments read, 2 of them still written to, as far as they were; {expected}")
            );
        }
    }
}
