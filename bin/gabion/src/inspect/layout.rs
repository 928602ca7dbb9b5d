//! What lies on targets: membership, segments, stripes. Reads the files as they are, also while a server runs.

use std::fmt::Write;
use std::future::Future;
use std::path::PathBuf;

use gabion_platform::{DriverChoice, DriverOptions, open_disk};
use gabion_segment::inspect::{self, ChunkState, SegmentView, StripeView, TargetView};
use gabion_segment::{LogError, LogTarget};
use gabion_types::SegmentId;

use super::show;
use crate::exit::Failure;

pub(super) fn target(path: PathBuf, json: bool) -> Result<(), Failure> {
    let targets = open(&[path])?;
    let view = run(inspect::inspect_target(&targets[0]))?;
    show(&view, json, target_text)
}

pub(super) fn segment(id: &str, paths: &[PathBuf], json: bool) -> Result<(), Failure> {
    let (id, targets) = (parse(id)?, open(paths)?);
    let view = run(inspect::inspect_segment(&targets, id))?;
    show(&view, json, segment_text)
}

pub(super) fn stripe(id: &str, stripe_index: u32, paths: &[PathBuf], json: bool) -> Result<(), Failure> {
    let (id, targets) = (parse(id)?, open(paths)?);
    let view = run(inspect::inspect_stripe(&targets, id, stripe_index))?;
    show(&view, json, stripe_text)
}

fn parse(id: &str) -> Result<SegmentId, Failure> {
    id.parse().map_err(|error| {
        Failure::config(format!("segment: {error}; gabion inspect target DIR lists those of a target"))
    })
}

fn open(paths: &[PathBuf]) -> Result<Vec<LogTarget>, Failure> {
    let open_one = |path: &PathBuf| {
        let name = path.display().to_string();
        let opened = open_disk(path, DriverChoice::Threads, DriverOptions::default(), None)
            .map_err(|error| Failure::targets(format!("target {name} can not be opened: {error}")))?;
        Ok(LogTarget { name: name.clone(), disk: Some(opened.disk), failure_domain: name })
    };
    paths.iter().map(open_one).collect()
}

fn run<T>(work: impl Future<Output = Result<T, LogError>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| Failure::failed(format!("the runtime can not be started: {error}")))?;
    runtime.block_on(work).map_err(|error| Failure::failed(error.to_string()))
}

fn state_text(state: &ChunkState) -> String {
    match state {
        ChunkState::Valid => "valid".to_owned(),
        ChunkState::Missing => "missing".to_owned(),
        ChunkState::Corrupt(detail) => format!("CORRUPT: {detail}"),
        ChunkState::Punched => "zeros: punched out when nothing needed it any more, or lost".to_owned(),
        ChunkState::Unreadable(detail) => format!("UNREADABLE: {detail}"),
    }
}

/// All states in a word each, or one word if they are the same.
fn states_text(states: &[ChunkState]) -> String {
    if states.iter().all(|state| *state == ChunkState::Valid) {
        return "all valid".to_owned();
    }
    let bad = states.iter().enumerate().filter(|(_, state)| **state != ChunkState::Valid);
    bad.map(|(shard, state)| format!("shard {shard} {}", state_text(state))).collect::<Vec<_>>().join("; ")
}

fn target_text(view: &TargetView) -> String {
    let mut out = format!(
        "target          {}\nid              {}\ndeployment      {} ({}, {} members)\nfailure domain  {}\nspace           {} of {} bytes available\nshard files     {} bytes in {} segments{}\n",
        view.name,
        view.target,
        view.deployment,
        view.geometry,
        view.members.len(),
        view.failure_domain,
        view.available_bytes,
        view.total_bytes,
        view.shard_bytes,
        view.segments.len(),
        if view.other_files > 0 {
            format!(", and {} files that are no shards", view.other_files)
        } else {
            String::new()
        },
    );
    for segment in &view.segments {
        let shards: Vec<String> = segment.shards.iter().map(ToString::to_string).collect();
        // Writing to a String can not fail.
        let _ = writeln!(out, "  {}  shard {}  {} bytes", segment.segment, shards.join(","), segment.bytes);
    }
    out
}

fn segment_text(view: &SegmentView) -> String {
    let mut out = format!(
        "segment     {}\ndeployment  {}\nholds       {}\ngeometry    {}\ncreated     {} ms after 1970\nplanned     {} bytes per shard\nstate       {}{}\n",
        view.segment,
        view.deployment,
        if view.kind == "small" { "small records" } else { "stripes of large objects" },
        view.geometry,
        view.created_ms,
        view.planned_bytes,
        if view.sealed { "sealed" } else { "open" },
        if view.relaxed { ", written with relaxed durability" } else { "" },
    );
    for shard in &view.shards {
        let place = shard.found_on.as_deref().unwrap_or("on none of the given targets");
        let bytes = shard.file_bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes"));
        let seal = shard.seal.as_ref().map_or("no seal".to_owned(), |seal| {
            let distrusted = if seal.distrusted { ", DISTRUSTED: it failed while it was written" } else { "" };
            format!("sealed ({}) after {} stripes at {}{distrusted}", seal.reason, seal.stripes, seal.end_offset)
        });
        let header = state_text(&shard.header);
        let _ = writeln!(out, "  shard {:3}  {place}{bytes}; header {header}; {seal}", shard.shard);
    }
    for stripe in &view.stripes {
        let _ = writeln!(
            out,
            "  stripe {:6}  at {:10}  {:9} bytes of payload, {:9} stored; headers {}",
            stripe.stripe_index,
            stripe.stripe_offset,
            stripe.payload_bytes,
            stripe.stored_bytes,
            states_text(&stripe.headers)
        );
    }
    out
}

fn stripe_text(view: &StripeView) -> String {
    let mut out = format!(
        "segment    {}\nstripe     {} at {}\nchunks     {} bytes of header, {} of payload at most{}\nsequences  {} to {}\n",
        view.segment,
        view.stripe_index,
        view.stripe_offset,
        view.header_bytes,
        view.chunk_bytes,
        if view.cell_bytes > 0 { format!(", cells of {} bytes", view.cell_bytes) } else { String::new() },
        view.min_seq,
        view.max_seq,
    );
    for chunk in &view.chunks {
        let _ = writeln!(
            out,
            "  chunk {:3}  {:6}  {:8} bytes, {:6} of them records; {}",
            chunk.shard,
            chunk.role,
            chunk.payload_bytes,
            chunk.index_bytes,
            state_text(&chunk.state)
        );
    }
    for record in &view.records {
        let carried = if record.carried { ", carried" } else { "" };
        let frees = record.frees.as_ref().map_or(String::new(), |segment| format!(" of segment {segment}"));
        let _ = writeln!(
            out,
            "  record {}  {}{frees} in chunk {}, {} bytes{carried}",
            record.seq, record.kind, record.shard, record.mutation_bytes
        );
        for piece in &record.pieces {
            let _ = writeln!(
                out,
                "    data in chunk {} at {}: {} bytes, crc64 {}, {}",
                piece.shard,
                piece.start,
                piece.len,
                piece.crc64,
                state_text(&piece.state)
            );
        }
    }
    out
}
