//! Mutations applied to an index in memory, in the odd orders that a replay may bring.

use bytes::Bytes;
use gabion_metadata::{
    MemoryIndex, ScanRange, Table, keys,
    rows::{ChecksumKind, Etag, ObjectRow, PartTag, Row, SegmentRow, StoredChecksum, UsageRow},
};
use gabion_segment::{LaneKind, RecordHome, SegmentInfo};
use gabion_types::{BucketName, Geometry, ObjectKey, Place, TargetId, UploadId};

use super::*;
use crate::mutation::{
    CompleteUploadMutation, CreateBucketMutation, CreateUploadMutation, Data, DeleteBucketMutation,
    DeleteConfigMutation, DeleteObjectMutation, EndUploadMutation, FirstConfig, NamedPart, PutConfigMutation,
    PutObjectMutation, PutPartMutation,
};

const SEGMENT: SegmentId = SegmentId::new(1, 1);
const UPLOAD: UploadId = UploadId::from_u128(5);

struct Bench {
    index: MemoryIndex,
    apply: Apply,
}

impl Bench {
    fn new() -> Self {
        let index = MemoryIndex::new();
        let apply = Apply::load(Arc::new(index.clone()), Arc::default(), u64::MAX).unwrap();
        let info = SegmentInfo {
            id: SEGMENT,
            kind: LaneKind::Small,
            geometry: Geometry::SINGLE,
            targets: vec![TargetId::NONE],
            former: Vec::new(),
        };
        apply.segment_changed(SegmentChange::Opened(info)).unwrap();
        Self { index, apply }
    }

    /// Applies one batch.
    fn apply(&self, records: &[(u64, Mutation)]) {
        let record = |(seq, mutation): &(u64, Mutation)| AppliedRecord {
            seq: Seq::from_u64(*seq),
            carried: false,
            body: RecordBody::Mutation(Bytes::from(mutation.encode())),
            extents: vec![extent(*seq, 10)],
            home: RecordHome { segment: SEGMENT, bytes: 100 },
        };
        let records: Vec<AppliedRecord> = records.iter().map(record).collect();
        self.apply.replay(&records, |_| Ok(())).unwrap();
    }

    fn object(&self) -> Option<ObjectRow> {
        let key = keys::object(&BucketName::new("bucket").unwrap(), &ObjectKey::new("key").unwrap());
        self.index.get(Table::Object, &key).unwrap().map(|row| ObjectRow::decode(&row).unwrap())
    }

    fn rows(&self, table: Table) -> usize {
        self.index.scan(ScanRange::all(table), usize::MAX).unwrap().len()
    }

    fn live_bytes(&self) -> i64 {
        let row = self.index.get(Table::Segment, &keys::segment(SEGMENT)).unwrap().unwrap();
        SegmentRow::decode(&row).unwrap().live_bytes
    }

    fn usage(&self) -> UsageRow {
        let row = self.index.get(Table::Usage, b"bucket").unwrap();
        row.map_or_else(UsageRow::default, |row| UsageRow::decode(&row).unwrap())
    }
}

fn extent(number: u64, len: u32) -> Extent {
    let place = Place::Chunk { shard: 0, start: 0 };
    Extent { segment: SEGMENT, stripe_offset: number * 4096, place, len, crc64: number }
}

fn put() -> Mutation {
    put_extents(Data::Record, 10)
}

fn put_extents(data: Data, size: u64) -> Mutation {
    Mutation::PutObject(Box::new(PutObjectMutation {
        bucket: "bucket".into(),
        key: "key".into(),
        modified_ms: 1,
        size,
        etag: Etag::Md5([1; 16]),
        attributes: Default::default(),
        checksums: vec![StoredChecksum { algorithm: 2, kind: ChecksumKind::FullObject, value: vec![0; 8] }],
        data,
        parts: Vec::new(),
        kind: None,
    }))
}

fn delete() -> Mutation {
    Mutation::DeleteObject(DeleteObjectMutation { bucket: "bucket".into(), key: "key".into(), taken: None })
}

fn part(part_number: u16) -> Mutation {
    Mutation::PutPart(Box::new(PutPartMutation {
        upload: UPLOAD,
        part_number,
        size: 10,
        tag: PartTag::Md5([part_number as u8; 16]),
        modified_ms: 1,
        checksums: Vec::new(),
        data: Data::Record,
        salt: None,
        counts: None,
    }))
}

fn complete(parts: &[(u16, u64)]) -> Mutation {
    let named = |&(part_number, seq): &(u16, u64)| NamedPart { part_number, seq: Seq::from_u64(seq) };
    Mutation::CompleteUpload(Box::new(CompleteUploadMutation {
        bucket: "bucket".into(),
        key: "key".into(),
        upload: UPLOAD,
        modified_ms: 1,
        attributes: Default::default(),
        etag: Etag::Multipart([7; 16], parts.len() as u32),
        checksums: Vec::new(),
        parts: parts.iter().map(named).collect(),
        kind: None,
    }))
}

fn begin() -> Mutation {
    Mutation::CreateUpload(Box::new(CreateUploadMutation {
        bucket: "bucket".into(),
        key: "key".into(),
        upload: UPLOAD,
        created_ms: 1,
        attributes: Default::default(),
        checksum_algorithm: None,
        checksum_kind: None,
        owner: "me".into(),
    }))
}

fn create_bucket() -> Mutation {
    Mutation::CreateBucket(CreateBucketMutation {
        bucket: "bucket".into(),
        created_ms: 1,
        owner: "me".into(),
        region: "here".into(),
        configs: None,
    })
}

/// Which names no uploads.
fn delete_bucket() -> Mutation {
    Mutation::DeleteBucket(DeleteBucketMutation { bucket: "bucket".into(), uploads: Vec::new(), had_configs: None })
}

fn end() -> Mutation {
    Mutation::EndUpload(EndUploadMutation { bucket: "bucket".into(), key: "key".into(), upload: UPLOAD })
}

#[test]
fn every_record_twice_is_every_record_once() {
    let history = [
        (10, put()),
        (20, put()),
        (30, begin()),
        (40, part(1)),
        (50, part(1)),
        (60, part(2)),
        (70, complete(&[(1, 50)])),
        (80, delete()),
        (90, put()),
    ];
    for len in 0..=history.len() {
        let (once, twice, batched) = (Bench::new(), Bench::new(), Bench::new());
        for record in &history[..len] {
            once.apply(std::slice::from_ref(record));
            twice.apply(std::slice::from_ref(record));
            twice.apply(std::slice::from_ref(record));
        }
        batched.apply(&history[..len]);
        for table in Table::ALL {
            let rows = |bench: &Bench| bench.index.scan(ScanRange::all(table), usize::MAX).unwrap();
            assert_eq!(rows(&once), rows(&twice), "{table} after {len}");
            assert_eq!(rows(&once), rows(&batched), "{table} after {len}");
        }
    }
}

#[test]
fn older_mutations_do_not_touch_newer_rows() {
    let bench = Bench::new();
    bench.apply(&[(20, put())]);
    bench.apply(&[(10, put()), (15, delete()), (20, delete())]);
    assert_eq!(bench.object().unwrap().seq, Seq::from_u64(20));
    assert_eq!((bench.live_bytes(), bench.usage().objects), (110, 1));
    bench.apply(&[(21, delete())]);
    assert_eq!((bench.live_bytes(), bench.usage().objects, bench.rows(Table::Usage)), (0, 0, 0));
}

#[test]
fn an_upload_moves_its_parts_into_the_object() {
    let bench = Bench::new();
    bench.apply(&[(10, begin()), (20, part(1)), (30, part(2)), (40, part(3))]);
    assert_eq!(bench.live_bytes(), 100 + 3 * 110);
    bench.apply(&[(50, complete(&[(1, 20), (3, 40)]))]);
    // The completion's record, and two parts with their records; upload and part 2 are gone.
    assert_eq!(bench.live_bytes(), 100 + 2 * 110);
    assert_eq!((bench.object().unwrap().size, bench.usage().bytes), (20, 20));
    assert_eq!((bench.rows(Table::Part), bench.rows(Table::Upload), bench.rows(Table::Manifest)), (0, 0, 2));
    bench.apply(&[(60, delete())]);
    assert_eq!((bench.live_bytes(), bench.rows(Table::Manifest)), (0, 0));
}

#[test]
fn a_completion_without_its_parts_makes_nothing_and_takes_nothing_away() {
    let bench = Bench::new();
    // The record of part 1 at 25 is gone with its segment; an older one is still there. What replaced the object or deleted it comes later, and takes what is here as well.
    bench.apply(&[(5, put()), (20, part(1)), (40, complete(&[(1, 25)]))]);
    assert_eq!(bench.object().unwrap().seq, Seq::from_u64(5));
    assert_eq!((bench.live_bytes(), bench.rows(Table::Part), bench.rows(Table::Manifest)), (110, 0, 0));
    bench.apply(&[(50, delete())]);
    assert!(bench.object().is_none());
    assert_eq!(bench.live_bytes(), 0);
}

#[test]
fn a_completion_that_took_effect_after_all_is_not_undone_by_the_next() {
    let bench = Bench::new();
    bench.apply(&[(10, begin()), (20, part(1)), (30, complete(&[(1, 20)])), (40, complete(&[(1, 20)]))]);
    assert_eq!(bench.object().unwrap().seq, Seq::from_u64(30));
    assert_eq!(bench.live_bytes(), 210);
}

#[test]
fn a_part_whose_upload_is_gone_goes_with_its_end() {
    let bench = Bench::new();
    bench.apply(&[(20, part(1)), (30, part(2)), (40, end())]);
    assert_eq!((bench.live_bytes(), bench.rows(Table::Part)), (0, 0));
}

#[test]
fn a_bucket_takes_along_what_should_not_be_there() {
    let bench = Bench::new();
    let (create, gone) = (create_bucket(), delete_bucket());
    bench.apply(&[(10, create.clone()), (20, put())]);
    assert_eq!(bench.apply.buckets(), 1);
    bench.apply(&[(30, gone)]);
    assert_eq!((bench.apply.buckets(), bench.live_bytes(), bench.rows(Table::Usage)), (0, 0, 0));
    bench.apply(&[(10, create)]);
    assert_eq!(
        bench.apply.buckets(),
        1,
        "nothing is left of the deletion: it must be carried while the creation may come"
    );
}

/// A creation that failed, as it seemed, may take effect at the next start after all: before another one of the name, or behind it.
#[test]
fn documents_are_those_of_the_bucket_that_is_there() {
    let create = |owner: &str, document: Option<&[u8]>| {
        let configs = document.map(|document| vec![FirstConfig { name: "acl".into(), document: document.to_vec() }]);
        let (bucket, region) = ("bucket".into(), "here".into());
        Mutation::CreateBucket(CreateBucketMutation { bucket, created_ms: 1, owner: owner.into(), region, configs })
    };
    let (other, own) = ((10, create("other", Some(b"x"))), (20, create("me", None)));
    let put = PutConfigMutation { bucket: Some("bucket".into()), name: "acl".into(), document: b"y".to_vec() };
    let late = (15, Mutation::PutConfig(put));
    for order in [[other.clone(), late.clone(), own.clone()], [own.clone(), other.clone(), late.clone()]] {
        let bench = Bench::new();
        bench.apply(&order);
        assert_eq!((bench.rows(Table::Config), bench.rows(Table::Bucket), bench.live_bytes()), (0, 1, 100));
    }
    // Every row counts, also that of an empty document; and both together what one record takes.
    let bench = Bench::new();
    bench.apply(&[(30, create("me", Some(b""))), (30, create("me", Some(b"")))]);
    assert_eq!((bench.rows(Table::Config), bench.live_bytes()), (1, 100));
    bench.apply(&[(
        40,
        Mutation::DeleteConfig(DeleteConfigMutation { bucket: Some("bucket".into()), name: "acl".into() }),
    )]);
    assert_eq!((bench.rows(Table::Config), bench.live_bytes()), (0, 97));
}

#[test]
fn many_extents_are_paged_and_unpaged() {
    let bench = Bench::new();
    let extents: Vec<Extent> = (0..1000).map(|number| extent(number, 7)).collect();
    bench.apply(&[(10, put_extents(Data::Extents(extents), 7000))]);
    assert_eq!((bench.rows(Table::Manifest), bench.live_bytes()), (8, 7100));
    bench.apply(&[(20, put())]);
    assert_eq!((bench.rows(Table::Manifest), bench.live_bytes()), (0, 110));
}

#[test]
fn a_segment_is_dead_only_when_it_is_sealed_and_unreferenced() {
    let bench = Bench::new();
    bench.apply(&[(10, put())]);
    let seal = gabion_segment::Seal {
        stripes: 1,
        end_offset: 4096,
        min_seq: Seq::from_u64(10),
        max_seq: Seq::from_u64(20),
        written_bytes: 200,
    };
    assert!(bench.apply.dead_segments().is_empty());
    bench.apply.segment_changed(SegmentChange::Sealed { id: SEGMENT, seal }).unwrap();
    assert!(bench.apply.dead_segments().is_empty());
    bench.apply(&[(20, delete())]);
    assert_eq!(bench.apply.dead_segments(), [SEGMENT]);
    // A deletion at 20 must stay while this segment does: it may bring the object of 10 back.
    bench.apply.with_segments(|segments| {
        assert!(segments.may_create_before(SegmentId::new(9, 9), Seq::from_u64(20)));
        assert!(!segments.may_create_before(SegmentId::new(9, 9), Seq::from_u64(10)));
        assert!(!segments.may_create_before(SEGMENT, Seq::from_u64(20)), "it goes itself");
    });
}

/// Of an upload whose beginning failed, as it seemed, the deletion of the bucket knows nothing.
#[test]
fn no_upload_outlives_its_bucket() {
    let (create, gone) = (create_bucket(), delete_bucket());
    let all = [(10, create.clone()), (20, begin()), (25, part(1)), (30, gone), (40, create)];
    for batch in 1..=all.len() {
        let bench = Bench::new();
        all.chunks(batch).for_each(|records| bench.apply(records));
        assert_eq!((bench.rows(Table::Upload), bench.rows(Table::Part), bench.live_bytes()), (0, 0, 100));
    }
    // A deletion that comes again ends nothing that was begun since.
    let bench = Bench::new();
    bench.apply(&all);
    bench.apply(&[(50, begin()), (60, put())]);
    bench.apply(&[(30, delete_bucket())]);
    assert_eq!((bench.rows(Table::Upload), bench.rows(Table::Object)), (1, 1));
}
