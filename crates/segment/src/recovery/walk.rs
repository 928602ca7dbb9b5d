//! Walking one segment to its end, and ending it there for ever.

use std::io;
use std::sync::Arc;

use futures::future::join_all;
use gabion_types::{SegmentId, Seq};

use super::listing::Listing;
use super::roll_forward::{NotRebuilt, check_chunk, rebuild_chunk, rewrite_chunk};
use super::shards::{Head, Headers, Shards};
use super::{Outcome, Walked, write_seals};
use crate::applier::RecordBody;
use crate::core::{Core, min_seq};
use crate::error::LogError;
use crate::format::{ChunkHeader, SealBlock, SealReason, StripeShape, shard_header_bytes};
use crate::lane::writer::sealed_len;
use crate::media::ChunkError;
use crate::replay::read_stripe;
use crate::segment_info::{KnownSegment, LaneKind, Seal};

/// What is at the position.
enum Step {
    /// A stripe that counts.
    Stripe(StripeShape),
    /// The segment ends here, as a seal says.
    Sealed(Seal),
    /// It ends here: nothing, or (`true`) a stripe that was never acknowledged.
    End { voided: bool },
    /// Too many shards are out of sight to tell.
    Unclear(String),
}

/// A walk through one segment.
struct Walk<'a> {
    core: &'a Core,
    shards: Shards,
    /// The position, and what was passed on the way to it.
    at: Seal,
    frees: Vec<SegmentId>,
    rolled_forward: u64,
    damage: Option<String>,
    /// The last stripe that was passed.
    last_shape: Option<StripeShape>,
    /// Its valid chunks by shard, where they were checked.
    last: Vec<Option<Arc<ChunkHeader>>>,
    /// The shard that showed the last header: in a sealed segment one is enough.
    favourite: usize,
    /// Shards whose medium may lack what they show, or what they should.
    distrusted: Vec<bool>,
}

/// Recovers one segment that the index does not know as sealed and applied.
pub(super) async fn recover_segment(
    core: &Core,
    listing: &Listing,
    id: SegmentId,
    known: Option<&KnownSegment>,
) -> Result<Outcome, LogError> {
    if let (Some(known), true) = (known, listing.found(id).is_empty()) {
        return Ok(without_files(core, listing, known));
    }
    let shards = match Shards::look(core, listing, id, known).await {
        Headers::Shards(shards) => shards,
        // It was never opened. All headers are durable before the first stripe, so if a stripe of it was acknowledged, every shard whose target was
        // neither lost nor damaged since shows its header, and there are `k` of these at least. None of those in sight shows one: they all would
        // have to be damaged, besides the targets that are absent. And should that be, a blank file is still no loss: should the others come back,
        // their headers tell what it was, and its shard is built anew.
        Headers::Blank => return Ok(Outcome::Empty),
        Headers::Lost(detail) => return Ok(Outcome::Unreadable(detail)),
    };
    let start = shard_header_bytes(shards.info.geometry.shards()) as u64;
    let seal = match (known.and_then(|known| known.sealed), shards.seal_at_end(core).await) {
        // An index that was lost may have held the only word of an end that was never on the media: a stripe behind it was taken for acknowledged
        // then, and was seen. So a copy of that index must not cut it off again.
        (Some(known), Some(found)) if found.end_offset > known.end_offset && shards.has_stripe(core, known).await => {
            return Err(LogError::IndexBehind { segment: id });
        }
        // A longer seal without its stripes is that of a recovery that did not come to its end, and the index knows what was decided then.
        (known, found) => known.or(found),
    };
    let at = match known {
        // What a relaxed writer acknowledged may be lost even where the index has it: only the media tell.
        Some(known) if known.applied_stripes > 0 && !shards.relaxed => Seal {
            stripes: known.applied_stripes,
            end_offset: known.next_offset,
            min_seq: known.min_seq,
            max_seq: known.max_seq,
            written_bytes: known.written_bytes,
        },
        _ => Seal { stripes: 0, end_offset: start, min_seq: Seq::ZERO, max_seq: Seq::ZERO, written_bytes: 0 },
    };
    let needed = shards.info.geometry.data();
    let present = shards.present().count();
    if present < needed {
        let is_applied = known.is_some_and(|known| known.applied_stripes > 0);
        return few_shards(core, shards, seal, start, is_applied).await;
    }
    // A parity chunk or the longest data chunk is among any k shards: the longest file reaches to the end of all stripes.
    let longest = shards.files.iter().flatten().max().copied().unwrap_or(0);
    let is_open = known.is_some_and(|known| known.sealed.is_none());
    if is_open && at.stripes > 0 && longest < at.end_offset {
        return Err(LogError::IndexAhead { segment: id });
    }
    let replay_from = match known {
        Some(known) if known.applied_stripes > 0 => (known.applied_stripes, known.next_offset),
        _ => (0, start),
    };
    let (last, distrusted) = (vec![None; shards.files.len()], vec![false; shards.files.len()]);
    let walk = Walk {
        core,
        shards,
        at,
        frees: Vec::new(),
        rolled_forward: 0,
        damage: None,
        last_shape: None,
        last,
        favourite: 0,
        distrusted,
    };
    let outcome = walk.run(seal, replay_from).await?;
    let stripes = match &outcome {
        Outcome::Recovered(walked) => walked.seal.stripes,
        Outcome::Empty => 0,
        Outcome::Unreadable(_) => return Ok(outcome),
    };
    if known.is_some_and(|known| known.applied_stripes > stripes) {
        return Err(LogError::IndexAhead { segment: id });
    }
    Ok(outcome)
}

/// A segment that the index knows, but no target in sight does.
fn without_files(core: &Core, listing: &Listing, known: &KnownSegment) -> Outcome {
    if listing.is_in_sight(core, &known.info()) && known.applied_stripes == 0 {
        return Outcome::Empty;
    }
    Outcome::Unreadable("none of its shard files is there".to_owned())
}

/// A segment with fewer than `k` shard files: the rest of an interrupted opening, or of one that is half freed or lost.
///
/// Where no file has anything behind its header the opening was interrupted, also with targets absent: of a segment with an acknowledged stripe `k`
/// shards show that stripe, or more are lost than it bears. Files that can not be read show nothing, and are no proof.
///
/// A seal of no stripes says the same of its shard, where no target is absent that may say otherwise: the removal of a voided segment was interrupted.
async fn few_shards(
    core: &Core,
    shards: Shards,
    seal: Option<Seal>,
    start: u64,
    is_applied: bool,
) -> Result<Outcome, LogError> {
    let heads = shards.heads(core, start).await;
    let heads: Vec<&Head> = shards.present().map(|shard| &heads[shard]).collect();
    let untouched = seal.is_none() && heads.iter().all(|head| matches!(head, Head::Nothing));
    let is_void =
        |head: &&Head| matches!(head, Head::Nothing | Head::Seal(SealBlock { seal: Seal { stripes: 0, .. }, .. }));
    let voided = seal.is_none_or(|seal| seal.stripes == 0) && heads.iter().all(is_void);
    let is_empty = match shards.in_sight {
        true => untouched || (voided && !is_applied),
        false => untouched && !is_applied && !heads.is_empty(),
    };
    if is_empty {
        return Ok(Outcome::Empty);
    }
    Ok(Outcome::Unreadable(format!(
        "{} of its {} shard files are there, {} are needed",
        shards.present().count(),
        shards.info.geometry.shards(),
        shards.info.geometry.data()
    )))
}

impl Walk<'_> {
    async fn run(mut self, mut seal: Option<Seal>, replay_from: (u32, u64)) -> Result<Outcome, LogError> {
        let begin = self.at.end_offset;
        let voided = loop {
            if let Some(seal) = seal {
                self.walk_sealed(seal).await;
                self.complete_last(seal).await;
                break false;
            }
            match self.step().await? {
                Step::Stripe(shape) => match self.pass(&shape).await {
                    // What stands in it is lost, and what follows is not.
                    Err(error) if error.lacks_bytes() => {
                        self.damage = Some(error.to_string());
                    }
                    passed => passed?,
                },
                Step::Sealed(found) => seal = Some(found),
                Step::End { voided } => break voided,
                Step::Unclear(detail) => return Ok(Outcome::Unreadable(detail)),
            }
        };
        if self.at.stripes == 0 && seal.is_none() && self.shards.in_sight && self.void_first_stripe().await {
            return Ok(Outcome::Empty);
        }
        let at = match seal {
            Some(seal) => seal,
            None => {
                self.distrust_short(begin).await;
                self.make_durable().await?;
                self.at
            }
        };
        self.seal_all(at, voided).await?;
        Ok(Outcome::Recovered(Walked {
            info: self.shards.info,
            seal: at,
            replay_from,
            frees: self.frees,
            rolled_forward: self.rolled_forward,
            voided,
            damage: self.damage,
        }))
    }

    /// Writes the seal over what is left of a first stripe that was never acknowledged; whether all shards that may show it took that. The files are
    /// removed one by one, and chunks on the last few of them would look like what is left of a segment that was lost.
    async fn void_first_stripe(&self) -> bool {
        let heads = self.shards.heads(self.core, self.at.end_offset).await;
        let shown = self.shards.present().filter(|&shard| !matches!(heads[shard], Head::Nothing));
        let shown = shown.map(|shard| (shard, true));
        let outcomes = write_seals(self.core, &self.shards.info, self.at, SealReason::Voided, shown).await;
        outcomes.iter().all(|(_, outcome)| outcome.is_ok())
    }

    /// Looks at the position of a segment that was not sealed: everything is checked, nothing is trusted.
    async fn step(&mut self) -> Result<Step, LogError> {
        let heads = self.shards.heads(self.core, self.at.end_offset).await;
        let seal = heads.iter().find_map(|head| if let Head::Seal(block) = head { Some(block.seal) } else { None });
        let headers: Vec<Option<Arc<ChunkHeader>>> = heads
            .iter()
            .map(|head| match head {
                Head::Chunk(header) if header.shape.stripe_index == self.at.stripes => Some(Arc::clone(header)),
                _ => None,
            })
            .collect();
        let out_of_sight: Vec<bool> = heads.iter().map(|head| matches!(head, Head::OutOfSight)).collect();
        let shape = headers.iter().flatten().next().map(|header| header.shape.clone());
        if let Some(seal) = seal {
            // Two recoveries may have decided differently, if the first did not come to its end and the second did not see
            // its seals: the later decision, which is the longer one, is the one that a log was opened with.
            let longer = match &shape {
                Some(shape) => self.seal_beyond(shape).await,
                None => None,
            };
            return Ok(Step::Sealed(longer.unwrap_or(seal)));
        }
        let Some(shape) = shape else { return Ok(self.end_or_unclear(out_of_sight, false)) };
        self.check_stripe(shape, headers, out_of_sight).await
    }

    /// Checks all chunks of the stripe at the position, and completes it if that can be.
    async fn check_stripe(
        &mut self,
        shape: StripeShape,
        headers: Vec<Option<Arc<ChunkHeader>>>,
        out_of_sight: Vec<bool>,
    ) -> Result<Step, LogError> {
        let (valid, mut out_of_sight) = self.check_chunks(&shape, headers, out_of_sight).await;
        let are_enough = self.are_enough(&valid);
        let is_whole = are_enough && self.complete(&shape, valid.clone(), &mut out_of_sight).await;
        if is_whole {
            self.last = valid;
            return Ok(Step::Stripe(shape));
        }
        // The stripe counts, says a seal after it: it was acknowledged.
        if let Some(seal) = self.seal_beyond(&shape).await {
            // Large stripes may be holes by now, and hold nothing that a replay needs; others are damaged beyond repair.
            if !are_enough && self.shards.info.kind == LaneKind::Small {
                self.note_lost(&shape);
            }
            return Ok(Step::Sealed(seal));
        }
        // What was relaxed may be torn though more was written behind it.
        if (are_enough || !self.shards.relaxed) && self.is_followed(&shape).await {
            if !are_enough {
                self.note_lost(&shape);
            }
            self.last = valid;
            return Ok(Step::Stripe(shape));
        }
        Ok(self.end_or_unclear(out_of_sight, true))
    }

    fn note_lost(&mut self, shape: &StripeShape) {
        self.damage = Some(format!("too many chunks of stripe {} are lost", shape.stripe_index));
    }

    /// Whether anything lies behind a stripe. Stripes are written one after the other: then this one was acknowledged, unless writers do not wait for the drives; and what is
    /// behind it must not be cut off with it.
    async fn is_followed(&self, shape: &StripeShape) -> bool {
        let heads = self.shards.heads(self.core, shape.next_offset()).await;
        heads.iter().any(|head| match head {
            Head::Chunk(header) => header.shape.stripe_index == shape.stripe_index + 1,
            head => matches!(head, Head::Seal(_)),
        })
    }

    /// Whether these chunks give back all of their stripe.
    fn are_enough(&self, valid: &[Option<Arc<ChunkHeader>>]) -> bool {
        valid.iter().flatten().count() >= self.shards.info.geometry.data()
    }

    /// Checks the chunks whose headers are given; what is not valid is taken out, and what can not be read is marked.
    async fn check_chunks(
        &self,
        shape: &StripeShape,
        headers: Vec<Option<Arc<ChunkHeader>>>,
        mut out_of_sight: Vec<bool>,
    ) -> (Vec<Option<Arc<ChunkHeader>>>, Vec<bool>) {
        let checks = join_all(headers.iter().map(async |header| match header {
            Some(header) if header.shape == *shape => check_chunk(self.core, &self.shards.info, header).await,
            _ => Err(ChunkError::Corrupt("no header".to_owned())),
        }))
        .await;
        let mut valid = headers;
        for (shard, check) in checks.iter().enumerate() {
            if let Err(error) = check {
                valid[shard] = None;
                out_of_sight[shard] |= !matches!(error, ChunkError::Corrupt(_));
            }
        }
        (valid, out_of_sight)
    }

    /// Rebuilds the chunks of a stripe that are not valid, where their shard can be written. Whether the stripe could be had: of chunks that were
    /// valid just now some may not be readable again. What can not be completed on their account must not count if it is the last: a replay would not find it, and a later one might.
    async fn complete(
        &mut self,
        shape: &StripeShape,
        mut valid: Vec<Option<Arc<ChunkHeader>>>,
        out_of_sight: &mut [bool],
    ) -> bool {
        let (core, info) = (self.core, &self.shards.info);
        let missing: Vec<usize> = (0..valid.len()).filter(|&at| valid[at].is_none() && !out_of_sight[at]).collect();
        for &shard in &missing {
            match rebuild_chunk(core, info, shape, &valid, shard).await {
                Ok(header) => valid[shard] = Some(Arc::new(header)),
                Err(NotRebuilt::TooFew(failed)) => {
                    for (shard, error) in failed {
                        out_of_sight[shard] |= !matches!(error, ChunkError::Corrupt(_));
                    }
                    missing.iter().for_each(|&shard| core.media.ask_repair(info.id, shard));
                    return false;
                }
                Err(NotRebuilt::Failed(error)) => {
                    tracing::warn!(segment = %info.id, shard, %error, "a torn chunk could not be completed");
                    self.distrusted[shard] = true;
                }
            }
        }
        self.rolled_forward += u64::from(!missing.is_empty());
        true
    }

    /// The segment ends at the position, unless more than `m` shards are out of sight: one of them may tell otherwise.
    fn end_or_unclear(&self, out_of_sight: Vec<bool>, voided: bool) -> Step {
        let hidden = out_of_sight.iter().filter(|hidden| **hidden).count();
        let parity = self.shards.info.geometry.parity();
        if hidden > parity {
            return Step::Unclear(format!("{hidden} of its shards can not be read, {parity} at most may be missing"));
        }
        Step::End { voided }
    }

    /// A seal that lies after stripes of which at least a header is left; the longest, should there be several.
    async fn seal_beyond(&self, shape: &StripeShape) -> Option<Seal> {
        let mut offset = shape.next_offset();
        let mut stripe_index = shape.stripe_index + 1;
        let mut longest = None;
        loop {
            let mut next = None;
            for head in self.shards.heads(self.core, offset).await {
                match head {
                    Head::Seal(block) => longest = Some(block.seal),
                    Head::Chunk(header) if header.shape.stripe_index == stripe_index => next = Some(header),
                    _ => {}
                }
            }
            let Some(header) = next else { return longest };
            offset = header.shape.next_offset();
            stripe_index += 1;
        }
    }

    /// Walks the headers of a sealed segment to its end: what counts is decided, only what it holds is looked for.
    async fn walk_sealed(&mut self, seal: Seal) {
        while self.at.end_offset < seal.end_offset {
            let Some(shape) = self.shape_at(self.at.end_offset, self.at.stripes).await else {
                self.damage = Some(format!("stripe {} of {} can not be found", self.at.stripes, seal.stripes));
                return;
            };
            if let Err(error) = self.pass(&shape).await {
                self.damage = Some(error.to_string());
            }
        }
        if self.at.stripes != seal.stripes || self.at.end_offset != seal.end_offset {
            self.damage = Some(format!("its seal counts {} stripes, {} were found", seal.stripes, self.at.stripes));
        }
    }

    /// Completes the last stripe of a sealed segment on shards that were away when it was sealed: recovery may have completed it
    /// without them, and on them it may be torn.
    async fn complete_last(&mut self, seal: Seal) {
        let all_sealed = self.shards.files.iter().flatten().all(|&len| len == sealed_len(seal));
        if all_sealed || seal.stripes == 0 {
            return;
        }
        let ends = self.shards.heads(self.core, seal.end_offset).await;
        let said = self.shards.distrusted(&ends, seal);
        self.distrusted.iter_mut().zip(said).for_each(|(distrusted, said)| *distrusted |= said);
        if self.last_shape.is_none() {
            // The index knew the end, so nothing was walked: the last stripe is found from the front.
            let end_offset = shard_header_bytes(self.shards.files.len()) as u64;
            self.at = Seal { stripes: 0, end_offset, min_seq: Seq::ZERO, max_seq: Seq::ZERO, written_bytes: 0 };
            self.walk_sealed(seal).await;
        }
        let is_last = |shape: &StripeShape| shape.stripe_index + 1 == seal.stripes;
        let last = self.last_shape.clone().filter(is_last);
        self.distrust_short(last.as_ref().map_or(seal.end_offset, |shape| shape.stripe_offset)).await;
        let Some(shape) = last else { return };
        let heads = self.shards.heads(self.core, shape.stripe_offset).await;
        let out_of_sight = heads.iter().map(|head| matches!(head, Head::OutOfSight)).collect();
        let headers = heads.into_iter().map(|head| if let Head::Chunk(header) = head { Some(header) } else { None });
        let (valid, mut out_of_sight) = self.check_chunks(&shape, headers.collect(), out_of_sight).await;
        if !self.are_enough(&valid) {
            self.damage = Some(format!("too many chunks of stripe {} are lost or out of sight", shape.stripe_index));
            return;
        }
        // It counts in any case: what is not completed now is repaired.
        self.complete(&shape, valid.clone(), &mut out_of_sight).await;
        self.rewrite_last(&ends, &valid).await;
    }

    /// Makes durable what shards show of the last stripe of a sealed segment that have no seal: it was read from a page cache, perhaps. What was before that stripe is durable.
    async fn rewrite_last(&mut self, ends: &[Head], valid: &[Option<Arc<ChunkHeader>>]) {
        let (core, info) = (self.core, &self.shards.info);
        for (shard, end) in ends.iter().enumerate() {
            if self.distrusted[shard] || matches!(end, Head::Seal(_) | Head::OutOfSight) {
                continue;
            }
            // What is not valid was completed just now, or could not be.
            let Some(header) = &valid[shard] else { continue };
            if let Err(error) = rewrite_chunk(core, info, header).await {
                tracing::warn!(segment = %info.id, shard, %error, "a chunk could not be made durable");
                self.distrusted[shard] = true;
            }
        }
    }

    /// Distrusts shards whose files ended too early for the stripes in front of `offset`, none of which was looked at in full: what is written to them now, a seal above all, would make them look
    /// whole. A crash takes no more of a shard than its chunk of the last stripe.
    async fn distrust_short(&mut self, offset: u64) {
        if self.shards.files.iter().flatten().all(|&len| len >= offset) {
            return;
        }
        let (mut at, mut stripe_index) = (shard_header_bytes(self.shards.files.len()) as u64, 0);
        // Of data chunks only the longest ends where the next stripe begins.
        let mut ends = vec![at; self.shards.files.len()];
        while at < offset {
            let Some(shape) = self.shape_at(at, stripe_index).await else {
                // Nothing tells where they should end.
                ends.fill(offset);
                break;
            };
            for (shard, end) in ends.iter_mut().enumerate() {
                *end = at + (shape.header_bytes() + shape.payload_bytes(shard)) as u64;
            }
            at = shape.next_offset();
            stripe_index += 1;
        }
        for (shard, end) in ends.into_iter().enumerate() {
            if self.shards.files[shard].is_some_and(|len| len < end) {
                tracing::warn!(segment = %self.shards.info.id, shard, "a shard file is cut short: it is built anew");
                self.distrusted[shard] = true;
            }
        }
    }

    /// The stripe at an offset, from the shard that showed the last one, or else from any.
    async fn shape_at(&mut self, offset: u64, stripe_index: u32) -> Option<StripeShape> {
        let count = self.shards.files.len();
        for turn in 0..count {
            let shard = (self.favourite + turn) % count;
            if let Head::Chunk(header) = self.shards.head(self.core, shard, offset).await
                && header.shape.stripe_index == stripe_index
            {
                self.favourite = shard;
                return Some(header.shape.clone());
            }
        }
        None
    }

    /// Moves the position past a stripe.
    async fn pass(&mut self, shape: &StripeShape) -> Result<(), LogError> {
        let (offset, stripe_index) = (self.at.end_offset, self.at.stripes);
        self.last_shape = Some(shape.clone());
        self.at.stripes += 1;
        self.at.end_offset = shape.next_offset();
        self.at.written_bytes += shape.stripe_payload_bytes();
        self.at.min_seq = min_seq(self.at.min_seq, shape.min_seq);
        self.at.max_seq = self.at.max_seq.max(shape.max_seq);
        if shape.frees {
            let (_, records) = read_stripe(&self.core.media, &self.shards.info, offset, stripe_index).await?;
            self.frees.extend(records.iter().filter_map(|record| match record.body {
                RecordBody::Freed(id) => Some(id),
                RecordBody::Mutation(_) => None,
            }));
        }
        Ok(())
    }

    /// Makes durable what the walk relies on: it was read, but perhaps from a page cache.
    async fn make_durable(&mut self) -> Result<(), LogError> {
        let (core, info) = (self.core, &self.shards.info);
        let mut durable = vec![true; self.shards.files.len()];
        // One chunk at a time: should power fail right now, at most one that was good is half written.
        for header in self.last.iter().flatten() {
            if let Err(error) = rewrite_chunk(core, info, header).await {
                tracing::warn!(segment = %info.id, shard = header.shard, %error, "a chunk could not be made durable");
                durable[usize::from(header.shard)] = false;
            }
        }
        let syncs = join_all(self.shards.present().map(async |shard| match core.media.file(info, shard).await {
            Ok(file) => (shard, file.sync().await.is_ok()),
            Err(_) => (shard, false),
        }))
        .await;
        syncs.iter().for_each(|&(shard, synced)| durable[shard] &= synced);
        let synced = syncs.iter().filter(|&&(shard, _)| durable[shard]).count();
        for (distrusted, durable) in self.distrusted.iter_mut().zip(&durable) {
            *distrusted |= !durable;
        }
        if synced < info.geometry.data() {
            return Err(LogError::Unavailable(format!("segment {}: {synced} of its shards could be synced", info.id)));
        }
        Ok(())
    }

    /// Writes the seal to all shards that are there; also where one is found, since it may be in the page cache only.
    async fn seal_all(&self, seal: Seal, voided: bool) -> Result<(), LogError> {
        let info = &self.shards.info;
        let present: Vec<(usize, bool)> = self.shards.present().map(|shard| (shard, !self.distrusted[shard])).collect();
        for &(shard, _) in present.iter().filter(|(_, is_trusted)| !is_trusted) {
            self.core.media.distrust(info.id, shard);
        }
        let reason = if voided { SealReason::Voided } else { SealReason::Recovered };
        let outcomes = write_seals(self.core, info, seal, reason, present.into_iter()).await;
        let mut failed = 0;
        for (shard, outcome) in outcomes {
            if let Err(error) = outcome {
                tracing::warn!(segment = %info.id, shard, %error, "a shard could not be sealed");
                self.core.media.ask_repair(info.id, shard);
                // A target that is full to the last block must not keep the log from opening: the end is found again from what
                // is there, and the index will know it.
                failed += usize::from(error.kind() != io::ErrorKind::StorageFull);
            }
        }
        for shard in (0..self.shards.files.len()).filter(|&shard| self.shards.files[shard].is_none()) {
            self.core.media.ask_repair(info.id, shard);
        }
        // Fewer than k shards without the seal can not make a stripe that comes back; and as many as may be away altogether keep no log from opening, be they k.
        if failed >= info.geometry.data() && failed > info.geometry.parity() {
            return Err(LogError::Unavailable(format!(
                "segment {}: {failed} of its shards could not be sealed",
                info.id
            )));
        }
        Ok(())
    }
}
