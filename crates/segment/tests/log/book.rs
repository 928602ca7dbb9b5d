//! A model of the store: it applies stripes, knows segments, and can be thrown away and rebuilt.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion_segment::{
    AppliedRecord, AppliedStripe, Applier, ApplyError, KnownSegment, Log, LogError, RecordBody, Recovery,
    SegmentChange, SegmentInfo,
};
use gabion_types::{SegmentId, Seq};
use parking_lot::Mutex;

use crate::world::data_of;

#[derive(Default)]
pub(crate) struct Book {
    pub(crate) page: Mutex<Page>,
    pub(crate) fail: AtomicBool,
    pub(crate) behind: AtomicBool,
}

/// What an index holds; a copy of it is what an older checkpoint held.
#[derive(Clone, Default)]
pub(crate) struct Page {
    pub(crate) segments: BTreeMap<SegmentId, KnownSegment>,
    pub(crate) records: BTreeMap<Seq, AppliedRecord>,
    pub(crate) removed: Vec<SegmentId>,
}

impl Book {
    pub(crate) fn from_page(page: Page) -> Self {
        Self { page: Mutex::new(page), fail: AtomicBool::new(false), behind: AtomicBool::new(false) }
    }

    pub(crate) fn known(&self) -> Vec<KnownSegment> {
        self.page.lock().segments.values().cloned().collect()
    }

    pub(crate) fn snapshot(&self) -> Page {
        self.page.lock().clone()
    }

    /// The mutations that are there, by sequence.
    pub(crate) fn mutations(&self) -> BTreeMap<Seq, String> {
        let page = self.page.lock();
        page.records.iter().map(|(seq, record)| (*seq, text(record))).collect()
    }

    /// Takes over what recovery found, as a store does.
    pub(crate) async fn replay(&self, log: &Log, recovery: &Recovery) {
        let lost = self.replay_what_is_left(log, recovery).await;
        assert!(lost.is_empty(), "{lost:?}");
    }

    /// Takes over what recovery found and can be read; returns the errors.
    pub(crate) async fn replay_what_is_left(&self, log: &Log, recovery: &Recovery) -> Vec<LogError> {
        let mut lost = Vec::new();
        for id in &recovery.freed {
            let mut page = self.page.lock();
            page.forget_records(*id);
            if let Some(known) = page.segments.get_mut(id) {
                known.freed = true;
            }
        }
        for info in &recovery.moved {
            if let Some(known) = self.page.lock().segments.get_mut(&info.id) {
                known.targets.clone_from(&info.targets);
                known.former.clone_from(&info.former);
            }
        }
        for id in &recovery.removed {
            self.page.lock().segments.remove(id);
        }
        for segment in &recovery.segments {
            self.page.lock().segments.entry(segment.info.id).or_insert_with(|| row(&segment.info));
            let mut stream = log.mutations(segment.info.id, segment.applied_from).await.unwrap();
            loop {
                match stream.next().await {
                    Ok(Some(stripe)) => self.page.lock().apply(&stripe),
                    Ok(None) => break,
                    Err(error) => {
                        lost.push(error);
                        self.page.lock().segments.get_mut(&segment.info.id).unwrap().applied_stripes += 1;
                    }
                }
            }
            let mut page = self.page.lock();
            let known = page.segments.get_mut(&segment.info.id).unwrap();
            known.sealed = Some(segment.seal);
            known.applied_stripes = segment.seal.stripes;
            known.next_offset = segment.seal.end_offset;
            known.written_bytes = segment.seal.written_bytes;
        }
        lost
    }

    /// Reads everything back and compares.
    pub(crate) async fn verify(&self, log: &Log) {
        let unreadable = self.unreadable(log).await;
        assert!(unreadable.is_empty(), "{unreadable:?}");
    }

    /// Reads everything back and compares what can be read; returns the errors.
    pub(crate) async fn unreadable(&self, log: &Log) -> BTreeMap<Seq, LogError> {
        let records: Vec<AppliedRecord> = self.page.lock().records.values().cloned().collect();
        let mut unreadable = BTreeMap::new();
        for record in records {
            if let Err(error) = verify_record(log, &record).await {
                unreadable.insert(record.seq, error);
            }
        }
        unreadable
    }
}

/// Reads the data of one record and compares it with what its mutation says it is.
async fn verify_record(log: &Log, record: &AppliedRecord) -> Result<(), LogError> {
    let mut found = Vec::new();
    for extent in &record.extents {
        for piece in log.read(extent, 0..extent.len).await? {
            found.extend_from_slice(&piece);
        }
    }
    if !record.carried {
        assert!(found == data_of(&text(record)), "wrong data of {}", text(record));
    }
    Ok(())
}

fn text(record: &AppliedRecord) -> String {
    match &record.body {
        RecordBody::Mutation(mutation) => String::from_utf8(mutation.to_vec()).unwrap(),
        RecordBody::Freed(id) => format!("freed {id}"),
    }
}

fn row(info: &SegmentInfo) -> KnownSegment {
    KnownSegment {
        id: info.id,
        kind: info.kind,
        geometry: info.geometry,
        targets: info.targets.clone(),
        former: info.former.clone(),
        sealed: None,
        applied_stripes: 0,
        next_offset: 0,
        min_seq: Seq::ZERO,
        max_seq: Seq::ZERO,
        written_bytes: 0,
        freed: false,
    }
}

impl Page {
    fn apply(&mut self, stripe: &AppliedStripe) {
        let known = self.segments.get_mut(&stripe.segment.id).expect("it was opened");
        assert_eq!(stripe.stripe_index, known.applied_stripes, "stripes come in order");
        assert!(stripe.next_offset > known.next_offset);
        known.applied_stripes += 1;
        known.next_offset = stripe.next_offset;
        known.written_bytes += stripe.payload_bytes;
        for record in &stripe.records {
            known.max_seq = known.max_seq.max(record.seq);
            known.min_seq = if known.min_seq == Seq::ZERO { record.seq } else { known.min_seq.min(record.seq) };
        }
        let mut last = Seq::ZERO;
        for record in &stripe.records {
            assert!(record.seq > last, "records come in order of their sequence");
            last = record.seq;
            match &record.body {
                // Once carried, the record no longer depends on the segment that it was first written to.
                RecordBody::Mutation(_) if record.carried => drop(self.records.insert(record.seq, record.clone())),
                RecordBody::Mutation(_) => {
                    self.records.entry(record.seq).or_insert_with(|| record.clone());
                }
                RecordBody::Freed(id) => {
                    self.forget_records(*id);
                    if let Some(known) = self.segments.get_mut(id) {
                        known.freed = true;
                    }
                }
            }
        }
    }

    /// The tests free segments of which nothing is needed but what is carried.
    fn forget_records(&mut self, id: SegmentId) {
        self.records.retain(|_, record| record.home.segment != id);
    }
}

impl Applier for Book {
    fn is_behind(&self) -> bool {
        self.behind.load(Ordering::SeqCst)
    }

    fn apply(&self, stripe: &AppliedStripe) -> Result<(), ApplyError> {
        if self.fail.load(Ordering::SeqCst) {
            return Err(ApplyError("told to".to_owned()));
        }
        self.page.lock().apply(stripe);
        Ok(())
    }

    fn segment_changed(&self, change: SegmentChange) -> Result<(), ApplyError> {
        let mut page = self.page.lock();
        match change {
            SegmentChange::Opened(info) => {
                assert!(page.segments.insert(info.id, row(&info)).is_none());
            }
            SegmentChange::Sealed { id, seal } => {
                let known = page.segments.get_mut(&id).expect("it was opened");
                assert_eq!(known.applied_stripes, seal.stripes, "sealed after its last stripe");
                assert_eq!(known.written_bytes, seal.written_bytes);
                assert_eq!((known.min_seq, known.max_seq), (seal.min_seq, seal.max_seq));
                known.next_offset = seal.end_offset;
                known.sealed = Some(seal);
            }
            SegmentChange::Moved(info) => {
                let known = page.segments.get_mut(&info.id).expect("it was opened");
                assert!(known.sealed.is_some(), "moved after its end is known");
                known.targets = info.targets;
                known.former = info.former;
            }
            SegmentChange::Removed(ids) => {
                page.segments.retain(|id, _| !ids.contains(id));
                page.removed.extend(ids);
            }
        }
        Ok(())
    }
}
