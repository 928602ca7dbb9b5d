//! The mutations of many segments in one order, with bounded memory.
//!
//! Within a segment records come as they were written: ascending, but for those that were carried over from freed
//! segments and keep older sequences. A record's *position* is the highest sequence up to it in its segment; the merge is by
//! position. So a carried deletion comes no earlier than what it deletes, and the order is the same in every replay,
//! which lets one that was cut off go on exactly where its last index commit ended.
//!
//! A segment is opened when the merge comes to its first sequence; of those that are open, only so many hold two stripes in
//! memory, the one that is being applied and the next, which is read and decoded meanwhile. The others remember where they are.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

use gabion_segment::{AppliedRecord, AppliedStripe, Log, LogError, MutationStream};
use gabion_types::{SegmentId, Seq};
use tokio::task::JoinHandle;

use crate::StoreError;

/// Segments that hold stripes in memory at a time.
const LOADED_MAX: usize = 32;

/// A segment whose mutations are to be replayed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub segment: SegmentId,
    /// The first stripe.
    pub from_stripe: u32,
    /// No record in it has a lower sequence.
    pub min_seq: Seq,
    /// What reading it counts for in the progress.
    pub bytes: u64,
}

/// The merge.
pub(super) struct Merge<'a> {
    log: &'a Log,
    cursors: BinaryHeap<Reverse<Cursor>>,
    loaded: usize,
    bytes_done: u64,
    lost: BTreeMap<SegmentId, String>,
    is_silent: bool,
}

/// A place in a segment; ordered by position.
struct Cursor {
    /// Position of its next record; before it is loaded for the first time, a lower bound.
    position: Seq,
    source: Source,
    /// The stripe that its next record lies in.
    stripe: u32,
    /// Records of that stripe that are behind it.
    records_done: usize,
    /// Highest sequence behind it.
    highest: Seq,
    loaded: Option<Loaded>,
}

struct Loaded {
    stripes: Stripes,
    records: VecDeque<AppliedRecord>,
}

/// The stripes of a segment, one ahead of what is asked for.
struct Stripes(Option<UnderWay>);

/// A stripe that is being read, and what reads it.
type UnderWay = JoinHandle<(MutationStream, Result<Option<AppliedStripe>, LogError>)>;

impl<'a> Merge<'a> {
    pub(super) fn new(log: &'a Log, sources: impl IntoIterator<Item = Source>) -> Self {
        let cursors = sources.into_iter().map(|source| {
            Reverse(Cursor {
                position: source.min_seq,
                source,
                stripe: source.from_stripe,
                records_done: 0,
                highest: Seq::ZERO,
                loaded: None,
            })
        });
        Self { log, cursors: cursors.collect(), loaded: 0, bytes_done: 0, lost: BTreeMap::new(), is_silent: false }
    }

    /// Bytes of the segments that were read to their end.
    pub(super) fn bytes_done(&self) -> u64 {
        self.bytes_done
    }

    /// Segments of which some stripes could not be read, with what was wrong with the first.
    pub(super) fn lost(&self) -> &BTreeMap<SegmentId, String> {
        &self.lost
    }

    /// Whether some of them could not be read for now, rather than were found damaged.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// The next record with its position; nothing after the last.
    pub(super) async fn next(&mut self) -> Result<Option<(Seq, AppliedRecord)>, StoreError> {
        while let Some(Reverse(mut cursor)) = self.cursors.pop() {
            if cursor.loaded.is_none() {
                self.unload_one();
                self.loaded += 1;
                let loaded = cursor.load(self.log).await;
                // Its position is known only now: another may come first.
                self.go_on(cursor, loaded).await?;
                continue;
            }
            let next = cursor.take();
            self.go_on(cursor, Ok(())).await?;
            return Ok(Some(next));
        }
        Ok(None)
    }

    /// Puts a cursor back at its next record, if it has one.
    async fn go_on(&mut self, mut cursor: Cursor, loaded: Result<(), LogError>) -> Result<(), StoreError> {
        let mut outcome = loaded;
        loop {
            let settled = match outcome {
                Ok(()) => cursor.settle().await,
                Err(error) => Err(error),
            };
            match settled {
                Ok(true) => {
                    self.cursors.push(Reverse(cursor));
                    return Ok(());
                }
                Ok(false) => break,
                // Its segment stays unsealed in the index and is noted: it is read again when it can be.
                Err(error) if error.lacks_bytes() || matches!(error, LogError::NotFound(_)) => {
                    tracing::error!(%error, "mutations are missing: more targets are lost, damaged or silent than parity replaces");
                    self.is_silent |= matches!(error, LogError::Unreadable { .. });
                    self.lost.entry(cursor.source.segment).or_insert_with(|| error.to_string());
                    // What a stripe lost, those behind it still have.
                    if cursor.loaded.is_none() {
                        break;
                    }
                    outcome = Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.loaded -= 1;
        self.bytes_done += cursor.source.bytes;
        Ok(())
    }

    /// Makes room for one more: the one that is needed last lets go of its stripe.
    fn unload_one(&mut self) {
        if self.loaded < LOADED_MAX {
            return;
        }
        let mut cursors = std::mem::take(&mut self.cursors).into_vec();
        let loaded = cursors.iter_mut().filter(|cursor| cursor.0.loaded.is_some());
        if let Some(Reverse(last)) = loaded.max_by_key(|cursor| cursor.0.position) {
            last.loaded = None;
            self.loaded -= 1;
        }
        self.cursors = cursors.into();
    }
}

impl Stripes {
    fn of(stream: MutationStream) -> Self {
        Self(Some(begin(stream)))
    }

    /// The next one, while the one after it is begun; nothing after the last.
    async fn next(&mut self) -> Result<Option<AppliedStripe>, LogError> {
        let Some(under_way) = self.0.take() else { return Ok(None) };
        let (stream, outcome) = under_way
            .await
            .map_err(|error| LogError::Unavailable(format!("reading mutations was cut off: {error}")))?;
        // After an error the stream goes on behind the stripe that it is about.
        if !matches!(outcome, Ok(None)) {
            self.0 = Some(begin(stream));
        }
        outcome
    }
}

fn begin(mut stream: MutationStream) -> UnderWay {
    tokio::spawn(async move {
        let outcome = stream.next().await;
        (stream, outcome)
    })
}

impl Cursor {
    /// Reads its stripe, and skips what is behind it.
    async fn load(&mut self, log: &Log) -> Result<(), LogError> {
        let stream = log.mutations(self.source.segment, self.stripe).await?;
        let mut loaded = Loaded { stripes: Stripes::of(stream), records: VecDeque::new() };
        let first = loaded.stripes.next().await;
        self.loaded = Some(loaded);
        if let Some(stripe) = first? {
            let loaded = self.loaded.as_mut().expect("it was loaded just now");
            loaded.records = stripe.records.into();
            loaded.records.drain(..self.records_done.min(loaded.records.len()));
        }
        Ok(())
    }

    /// Goes to the next record, over stripes without any; tells whether there is one.
    async fn settle(&mut self) -> Result<bool, LogError> {
        let loaded = self.loaded.as_mut().expect("only a loaded cursor is moved");
        while loaded.records.is_empty() {
            match loaded.stripes.next().await? {
                Some(stripe) => {
                    (self.stripe, self.records_done) = (stripe.stripe_index, 0);
                    loaded.records = stripe.records.into();
                }
                None => return Ok(false),
            }
        }
        self.position = self.highest.max(loaded.records[0].seq);
        Ok(true)
    }

    fn take(&mut self) -> (Seq, AppliedRecord) {
        let loaded = self.loaded.as_mut().expect("only a loaded cursor is taken from");
        let record = loaded.records.pop_front().expect("a settled cursor has a record");
        self.highest = self.position;
        self.records_done += 1;
        (self.position, record)
    }
}

impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Cursor {}

impl PartialOrd for Cursor {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cursor {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Cursor {
    fn key(&self) -> (Seq, SegmentId) {
        (self.position, self.source.segment)
    }
}
