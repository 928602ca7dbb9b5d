//! `gabion status`: how a running server does, for people, and what to do about it.
//!
//! What the server says is read leniently: fields that an older or newer one does not have are left out of the report.

use std::fmt::Write;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::client::AdminArgs;
use crate::exit::Failure;
use crate::output;

/// Where the pages about trouble are.
const PAGES: &str = "docs/operations";
/// Part of a target's size below which its room is worth a word.
const ROOM_SHARE_MIN: f64 = 0.05;

#[derive(Debug, Deserialize)]
struct Status {
    version: String,
    phase: String,
    store: Option<Store>,
}

#[derive(Debug, Deserialize)]
struct Store {
    log: Log,
    index: Index,
    live_bytes: u64,
    written_bytes: u64,
    #[serde(default)]
    punched_bytes: u64,
    segments_to_free: u64,
    #[serde(default)]
    segments_kept: u64,
    #[serde(default)]
    unsettled: Unsettled,
    unavailable: Option<String>,
    #[serde(default)]
    scrub: Option<Scrub>,
    #[serde(default)]
    compaction: Option<Compaction>,
}

/// What is refused changes: whether an earlier request for it took effect is not known.
#[derive(Debug, Default, Deserialize)]
struct Unsettled {
    uploads: u64,
    buckets: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Log {
    deployment: String,
    geometry: String,
    targets: Vec<Target>,
    #[serde(default)]
    missing_members: Vec<String>,
    open_segments: u64,
    sealed_segments: u64,
    unreadable_segments: u64,
    #[serde(default)]
    redundancy: Vec<u64>,
    #[serde(default)]
    at_risk: u64,
    #[serde(default)]
    repair: Option<Repair>,
    #[serde(default)]
    rebalance: Option<Rebalance>,
    /// Shards that are damaged, or whose files are gone.
    #[serde(default)]
    repairs: Vec<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    id: String,
    failure_domain: String,
    state: String,
    available_bytes: u64,
    total_bytes: u64,
    last_error: Option<String>,
    #[serde(default)]
    draining: bool,
    #[serde(default)]
    silent: bool,
    #[serde(default)]
    stale: bool,
    #[serde(default)]
    set_aside_files: u64,
    #[serde(default)]
    shards: Option<u64>,
    #[serde(default)]
    open_shards: u64,
}

#[derive(Debug, Deserialize)]
struct Index {
    disk_bytes: u64,
    #[serde(default)]
    available_bytes: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Repair {
    running: bool,
    segments_left: u64,
    bytes_left: u64,
    bytes_per_s: u64,
    eta_s: Option<u64>,
    #[serde(default)]
    blocked: u64,
    #[serde(default)]
    shards_waiting: u64,
    #[serde(default)]
    overflowed: bool,
    last_error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Rebalance {
    until_percent: u64,
    spread_percent: u64,
    shards_left: u64,
    bytes_left: u64,
    shards_moved: u64,
    bytes_moved: u64,
}

#[derive(Debug, Deserialize)]
struct Scrub {
    running: bool,
    segments_done: u64,
    segments_total: u64,
    errors_found: u64,
    #[serde(default)]
    unread_shards: u64,
    finished_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Compaction {
    candidates: u64,
    debt_bytes: u64,
    #[serde(default)]
    holds_back_writers: bool,
    #[serde(default)]
    writers_waiting: u64,
}

/// Shows the status of a server. Fails with a code of its own when redundancy or service is impaired.
///
/// # Errors
/// When the server can not be asked, or does not do well.
pub(crate) fn run(admin: &AdminArgs, json: bool) -> Result<(), Failure> {
    let answer: Value = admin.get("/status")?;
    let status: Status = serde_json::from_value(answer.clone())
        .map_err(|error| Failure::failed(format!("what answers at {} is no Gabion: {error}", admin.admin)))?;
    let troubles = status.troubles();
    if json {
        output::print_json(&answer)?;
    } else {
        output::print(&status.text(&troubles))?;
    }
    if troubles.is_empty() {
        Ok(())
    } else {
        Err(Failure::impaired(format!("{} to look at", count(troubles.len() as u64, "thing"))))
    }
}

/// The targets of what `/status` said.
///
/// # Errors
/// When it is not understood, or the server is not open yet.
pub(super) fn targets(answer: Value) -> Result<String, Failure> {
    let status: Status =
        serde_json::from_value(answer).map_err(|error| Failure::failed(format!("/status makes no sense: {error}")))?;
    let Some(store) = status.store else { return Err(Failure::failed(format!("the server is {}", status.phase))) };
    let mut out = String::new();
    store.log.describe_targets(&mut out);
    Ok(out)
}

impl Status {
    fn text(&self, troubles: &[String]) -> String {
        let mut out = format!("server      Gabion {}, {}\n", self.version, self.phase);
        if let Some(store) = &self.store {
            store.describe(&mut out);
        }
        for trouble in troubles {
            // Writing to a String can not fail.
            let _ = writeln!(out, "! {trouble}");
        }
        if troubles.is_empty() {
            out.push_str("all is well\n");
        }
        out
    }

    /// What needs an operator, or time, as sentences.
    fn troubles(&self) -> Vec<String> {
        match &self.store {
            Some(store) => store.troubles(),
            None => vec![format!("the server is {}: no requests are served", self.phase)],
        }
    }
}

impl Store {
    fn describe(&self, out: &mut String) {
        let Self { log, index, .. } = self;
        let _ = writeln!(out, "deployment  {}, geometry {}", log.deployment, log.geometry);
        log.describe_targets(out);
        // What was given back where it lay is dead and takes no room.
        let kept = self.written_bytes.saturating_sub(self.punched_bytes);
        let dead = kept.saturating_sub(self.live_bytes);
        let _ = writeln!(
            out,
            "space       {} live of {} kept ({} % dead), {} to free",
            bytes(self.live_bytes),
            bytes(kept),
            percent(dead, kept),
            count(self.segments_to_free, "segment"),
        );
        if let Some(compaction) = &self.compaction {
            let _ = writeln!(
                out,
                "compaction  {} to gain from {}",
                bytes(compaction.debt_bytes),
                count(compaction.candidates, "segment")
            );
        }
        let _ = writeln!(out, "segments    {} sealed, {} open", log.sealed_segments, log.open_segments);
        if !log.redundancy.is_empty() {
            let _ = writeln!(out, "redundancy  {}", redundancy(&log.redundancy));
        }
        if let Some(repair) = &log.repair {
            let _ = writeln!(out, "repair      {}", repair.text());
        }
        if let Some(rebalance) = &log.rebalance {
            let _ = writeln!(out, "rebalance   {}", rebalance.text());
        }
        if let Some(scrub) = &self.scrub {
            let _ = writeln!(out, "scrub       {}", scrub.text());
        }
        let room = index.available_bytes.map(|room| format!(", {} free beside it", bytes(room))).unwrap_or_default();
        let _ = writeln!(out, "index       {}{room}", bytes(index.disk_bytes));
    }

    fn troubles(&self) -> Vec<String> {
        let Self { log, .. } = self;
        let mut troubles = Vec::new();
        let mut say = |sentence: String, page: &str| troubles.push(format!("{sentence} ({PAGES}/{page}.md)"));
        if let Some(reason) = &self.unavailable {
            say(format!("no writes are taken: {reason}"), "no-writes");
        }
        if let Some(compaction) = self.compaction.as_ref().filter(|compaction| compaction.holds_back_writers) {
            let waiting = count(compaction.writers_waiting, "writer");
            let sentence = format!("space is short: writes go no faster than compaction makes room, {waiting} waiting");
            say(sentence, "space-is-short");
        }
        for target in &log.targets {
            let error = target.last_error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            match target.state.as_str() {
                _ if target.stale => say(
                    format!("target {} came back as an older image of itself{error}", target.name),
                    "an-old-drive-came-back",
                ),
                "absent" => say(format!("target {} is not there", target.name), "a-drive-died"),
                "failed" => say(format!("target {} failed{error}", target.name), "a-drive-died"),
                _ if target.silent => say(format!("target {} does not answer", target.name), "a-drive-died"),
                "full" => say(format!("target {} is full", target.name), "a-drive-is-full"),
                _ if target.is_nearly_full() => {
                    say(
                        format!("target {} has only {} left", target.name, bytes(target.available_bytes)),
                        "a-drive-is-full",
                    );
                }
                _ => {}
            }
        }
        // A server that names absent members among the targets says it once.
        if log.targets.iter().all(|target| target.state != "absent") && !log.missing_members.is_empty() {
            let missing = count(log.missing_members.len() as u64, "member");
            say(format!("{missing} of the deployment are not among the targets"), "a-drive-died");
        }
        if log.unreadable_segments > 0 {
            let segments = count(log.unreadable_segments, "segment");
            say(format!("{segments} can not be read: more shards are lost than parity replaces"), "data-is-lost");
        }
        if self.segments_kept > 0 {
            let segments = count(self.segments_kept, "segment");
            say(
                format!(
                    "{segments} give back no space: what may refer to them can not be read. Restart when all targets are back"
                ),
                "data-is-lost",
            );
        }
        let Unsettled { uploads, buckets } = &self.unsettled;
        let buckets = (!buckets.is_empty())
            .then(|| format!("{} ({})", count(buckets.len() as u64, "bucket"), buckets.join(", ")));
        let uploads = (*uploads > 0).then(|| count(*uploads, "upload"));
        let unsettled: Vec<String> = [uploads, buckets].into_iter().flatten().collect();
        if !unsettled.is_empty() {
            let what = unsettled.join(" and ");
            say(
                format!(
                    "changes of {what} are refused: whether an earlier request took effect is not known. Restart when all targets are back"
                ),
                "no-writes",
            );
        }
        let why = if log.repairs.is_empty() { "a-drive-died" } else { "checksums-mismatch" };
        let beyond = log.beyond_parity();
        let lacking = log.redundancy.iter().skip(1).sum::<u64>() - beyond;
        if lacking > 0 {
            say(format!("{} without full redundancy", count(lacking, "segment")), why);
        }
        if beyond > 0 {
            let text =
                "more shards missing or damaged than parity replaces: what that leaves too little of can not be read";
            say(format!("{} with {text}", count(beyond, "segment")), "data-is-lost");
        }
        let at_risk = log.at_risk.saturating_sub(beyond);
        if at_risk > 0 {
            say(format!("{} at risk: no further shard of them may be lost", count(at_risk, "segment")), why);
        }
        if let Some(repair) = &log.repair {
            if repair.blocked > 0 {
                say(format!("{} have no target to be rebuilt on", count(repair.blocked, "shard")), "a-drive-died");
            }
            if repair.overflowed {
                say(
                    "more damage was found than could be noted: the next scrub finds the rest".to_owned(),
                    "checksums-mismatch",
                );
            }
            if let Some(error) = &repair.last_error {
                say(format!("the last repair failed: {error}"), "a-drive-died");
            }
        }
        troubles
    }
}

impl Log {
    fn describe_targets(&self, out: &mut String) {
        let online = self.targets.iter().filter(|target| target.state == "online").count();
        let _ = writeln!(out, "targets     {online} of {} online", self.targets.len());
        let width = self.targets.iter().map(|target| target.name.len()).max().unwrap_or(0);
        for target in &self.targets {
            let state = if target.draining { "draining" } else { target.state.as_str() };
            let _ = write!(out, "  {:width$}  {state:8}  {}", target.name, target.room());
            if let Some(shards) = target.shards {
                let _ = write!(out, "  {}", count(shards, "sealed shard"));
                if target.open_shards > 0 {
                    let _ = write!(out, ", {} open", target.open_shards);
                }
            }
            let _ = writeln!(out, "  domain {}  id {}", target.failure_domain, target.id);
            if target.set_aside_files > 0 {
                let files = count(target.set_aside_files, "file");
                let _ = writeln!(out, "  {:width$}  {files} of freed segments set aside: *.stale, may be removed", "");
            }
        }
    }
}

impl Target {
    fn room(&self) -> String {
        match self.total_bytes {
            0 => String::from("size unknown"),
            total => format!("{} free of {}", bytes(self.available_bytes), bytes(total)),
        }
    }

    fn is_nearly_full(&self) -> bool {
        self.total_bytes > 0 && (self.available_bytes as f64) < self.total_bytes as f64 * ROOM_SHARE_MIN
    }
}

impl Rebalance {
    fn text(&self) -> String {
        let Self { until_percent, spread_percent, shards_left, bytes_left, shards_moved, bytes_moved } = self;
        format!(
            "{} ({}) moved, {} ({}) left; the targets are {spread_percent} % apart, {until_percent} % are aimed at",
            count(*shards_moved, "shard"),
            bytes(*bytes_moved),
            count(*shards_left, "shard"),
            bytes(*bytes_left),
        )
    }
}

impl Repair {
    fn text(&self) -> String {
        let waiting = match self.shards_waiting {
            0 => String::new(),
            shards => format!("; {} wait for targets that may come back", count(shards, "shard")),
        };
        if self.segments_left == 0 {
            return format!("nothing to do{waiting}");
        }
        let left = format!("{} and {} left", count(self.segments_left, "segment"), bytes(self.bytes_left));
        let eta = self.eta_s.map(|seconds| format!(", done in {}", duration(seconds))).unwrap_or_default();
        if self.running {
            format!("{left}, {}/s{eta}{waiting}", bytes(self.bytes_per_s))
        } else {
            format!("{left}, waiting{waiting}")
        }
    }
}

impl Scrub {
    fn text(&self) -> String {
        let mut errors = format!("{} found", count(self.errors_found, "bad shard"));
        if self.unread_shards > 0 {
            errors += &format!(", {} not read", count(self.unread_shards, "shard"));
        }
        match (self.running, self.finished_ms) {
            (true, _) => format!("{} of {} segments read, {errors}", self.segments_done, self.segments_total),
            (false, Some(_)) => format!("complete: {}, {errors}", count(self.segments_done, "segment")),
            (false, None) => String::from("none was completed yet"),
        }
    }
}

impl Log {
    /// Segments of which more shards are missing or damaged than there is parity. Where each shard is damaged at another place all of them can still be read.
    fn beyond_parity(&self) -> u64 {
        let parity = self.geometry.split_once('+').and_then(|(_, parity)| parity.parse().ok());
        parity.map_or(0, |parity: usize| self.redundancy.iter().skip(parity.saturating_add(1)).sum())
    }
}

/// How many segments lack how many shards.
fn redundancy(lacking: &[u64]) -> String {
    let parts = lacking.iter().enumerate().filter(|&(missing, &segments)| missing == 0 || segments > 0);
    let part = |(missing, &segments): (usize, &u64)| match missing {
        0 => format!("{} whole", count(segments, "segment")),
        missing => format!("{segments} lacking {}", count(missing as u64, "shard")),
    };
    parts.map(part).collect::<Vec<_>>().join(", ")
}

pub(super) fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { u64::try_from(u128::from(part) * 100 / u128::from(whole)).unwrap_or(100) }
}

pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

fn duration(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours} h {minutes} min")
    } else if minutes > 0 {
        format!("{minutes} min {seconds} s")
    } else {
        format!("{seconds} s")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(state: &str, available_bytes: u64) -> Value {
        json!({ "name": "/mnt/a", "id": "7", "failure_domain": "rack 1", "state": state,
            "available_bytes": available_bytes, "total_bytes": 1_000_000, "last_error": null })
    }

    fn status(change: impl FnOnce(&mut Value)) -> Status {
        let mut value = json!({
            "version": "0.1.0", "phase": "serving",
            "store": {
                "log": { "deployment": "d", "geometry": "4+2", "targets": [target("online", 900_000)], "missing_members": [],
                    "open_segments": 1, "sealed_segments": 2, "unreadable_segments": 0, "lanes": [] },
                "index": { "disk_bytes": 1, "journal_bytes": 1 },
                "live_bytes": 50, "written_bytes": 1200, "punched_bytes": 1000, "segments_to_free": 1, "unavailable": null,
            },
        });
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_sound_server_gives_no_trouble() {
        let status = status(|_| {});
        assert!(status.troubles().is_empty());
        let text = status.text(&[]);
        for part in [
            "1 of 1 online",
            "878.9 KiB free of 976.6 KiB",
            "50 B live of 200 B kept (75 % dead)",
            "1 segment to free",
            "all is well",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn every_trouble_is_named_with_its_page() {
        type Change = fn(&mut Value);
        let table: [(Change, &str); 17] = [
            (|v| v["store"]["unavailable"] = json!("why"), "no writes are taken: why"),
            (|v| v["store"]["log"]["targets"] = json!([target("absent", 0)]), "is not there"),
            (|v| v["store"]["log"]["targets"] = json!([target("failed", 9)]), "target /mnt/a failed"),
            (|v| v["store"]["log"]["targets"] = json!([target("full", 9)]), "is full"),
            (
                |v| {
                    v["store"]["log"]["targets"] = json!([target("online", 900_000)]);
                    v["store"]["log"]["targets"][0]["silent"] = json!(true);
                },
                "target /mnt/a does not answer",
            ),
            (|v| v["store"]["log"]["targets"] = json!([target("online", 9)]), "only 9 B left"),
            (|v| v["store"]["log"]["missing_members"] = json!(["8"]), "1 member of the deployment"),
            (|v| v["store"]["log"]["unreadable_segments"] = json!(2), "2 segments can not be read"),
            (|v| v["store"]["segments_kept"] = json!(7), "7 segments give back no space"),
            (
                |v| v["store"]["unsettled"] = json!({ "uploads": 2, "buckets": ["a", "b"] }),
                "changes of 2 uploads and 2 buckets (a, b) are refused: ",
            ),
            (
                |v| v["store"]["unsettled"] = json!({ "uploads": 0, "buckets": ["a"] }),
                "changes of 1 bucket (a) are refused: ",
            ),
            (|v| v["store"]["log"]["at_risk"] = json!(1), "1 segment at risk"),
            (
                |v| {
                    v["store"]["compaction"] = json!({ "candidates": 3, "debt_bytes": 1, "holds_back_writers": true,
                        "writers_waiting": 2 });
                },
                "2 writers waiting",
            ),
            (|v| v["store"]["log"]["redundancy"] = json!([5, 3, 1]), "4 segments without full redundancy"),
            (
                |v| v["store"]["log"]["redundancy"] = json!([5, 0, 0, 0, 2]),
                "2 segments with more shards missing or damaged than parity replaces",
            ),
            (
                |v| {
                    v["store"]["log"]["repair"] = json!({ "running": true, "segments_left": 1, "bytes_left": 1,
                        "bytes_per_s": 1, "eta_s": 1, "blocked": 2, "last_error": null });
                },
                "2 shards have no target",
            ),
            (
                |v| {
                    v["store"]["log"]["repair"] = json!({ "running": false, "segments_left": 0, "bytes_left": 0,
                        "bytes_per_s": 0, "eta_s": null, "overflowed": true, "last_error": null });
                },
                "the next scrub finds the rest",
            ),
        ];
        for (change, expected) in table {
            let troubles = status(change).troubles();
            assert_eq!(troubles.len(), 1, "{troubles:?}");
            assert!(troubles[0].contains(expected), "{troubles:?}");
            let page = troubles[0].rsplit_once('(').and_then(|(_, page)| page.strip_suffix(')')).unwrap();
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
            assert!(path.is_file(), "{page} is not there");
        }
        let damaged = status(|v| {
            v["store"]["log"]["redundancy"] = json!([5, 1]);
            v["store"]["log"]["repairs"] = json!([{ "segment": "1", "shard": 0 }]);
        });
        assert!(damaged.troubles()[0].contains("checksums-mismatch"), "{:?}", damaged.troubles());
        let healed = status(|v| {
            v["store"]["scrub"] = json!({ "running": false, "segments_done": 1, "segments_total": 1,
                "errors_found": 3, "finished_ms": 1 });
        });
        assert!(healed.troubles().is_empty(), "what a scrub found and repair built anew is over");
        let starting = Status { version: "0".into(), phase: "starting".into(), store: None };
        assert!(starting.troubles()[0].contains("starting"));
    }

    #[test]
    fn what_is_waited_for_and_not_read_is_said() {
        let repair = |left: u64, waiting: u64| Repair {
            running: true,
            segments_left: left,
            bytes_left: left << 20,
            bytes_per_s: 1 << 20,
            eta_s: Some(left),
            blocked: 0,
            shards_waiting: waiting,
            overflowed: false,
            last_error: None,
        };
        assert_eq!(repair(0, 0).text(), "nothing to do");
        assert_eq!(repair(0, 2).text(), "nothing to do; 2 shards wait for targets that may come back");
        assert_eq!(
            repair(3, 1).text(),
            "3 segments and 3.0 MiB left, 1.0 MiB/s, done in 3 s; 1 shard wait for targets that may come back"
        );
        let scrub = Scrub {
            running: false,
            segments_done: 4,
            segments_total: 4,
            errors_found: 0,
            unread_shards: 3,
            finished_ms: Some(1),
        };
        assert_eq!(scrub.text(), "complete: 4 segments, 0 bad shards found, 3 shards not read");
        let rebalance = Rebalance {
            until_percent: 5,
            spread_percent: 40,
            shards_left: 1,
            bytes_left: 1 << 20,
            shards_moved: 2,
            bytes_moved: 2 << 20,
        };
        assert_eq!(
            rebalance.text(),
            "2 shards (2.0 MiB) moved, 1 shard (1.0 MiB) left; the targets are 40 % apart, 5 % are aimed at"
        );
    }

    #[test]
    fn the_shards_of_a_target_are_told_for_what_they_are() {
        let with = |shards: u64, open: u64| {
            let mut out = String::new();
            let status = status(|v| {
                v["store"]["log"]["targets"][0]["shards"] = json!(shards);
                v["store"]["log"]["targets"][0]["open_shards"] = json!(open);
            });
            status.store.unwrap().log.describe_targets(&mut out);
            out
        };
        assert!(with(3, 0).contains("  3 sealed shards  domain"), "{}", with(3, 0));
        assert!(with(0, 2).contains("  0 sealed shards, 2 open  domain"), "{}", with(0, 2));
    }

    #[test]
    fn figures_are_for_people() {
        assert_eq!(
            (bytes(0), bytes(1023), bytes(1024), bytes(u64::MAX)),
            ("0 B".into(), "1023 B".into(), "1.0 KiB".into(), "16384.0 PiB".into())
        );
        assert_eq!(
            (duration(59), duration(61), duration(7260)),
            ("59 s".into(), "1 min 1 s".into(), "2 h 1 min".into())
        );
        assert_eq!(redundancy(&[5, 0, 2]), "5 segments whole, 2 lacking 2 shards");
    }
}
