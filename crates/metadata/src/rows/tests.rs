use gabion_types::{Extent, Geometry, ManifestId, Place, SegmentId, Seq, ShardCopy, TargetId, UploadId};
use proptest::prelude::*;

use super::*;

fn home() -> Home {
    Home { segment: SegmentId::from_u128(7), bytes: 300 }
}

fn extents() -> Vec<Extent> {
    let segment = SegmentId::from_u128(8);
    let place = Place::Chunk { shard: 3, start: 128 };
    vec![
        Extent { segment, stripe_offset: 4096, place, len: 10, crc64: u64::MAX },
        Extent { segment, stripe_offset: 1 << 30, place: Place::Cells { cell_bytes: 65536 }, len: u32::MAX, crc64: 1 },
    ]
}

fn attributes() -> Attributes {
    let text = |text: &str| Some(text.to_owned());
    Attributes {
        content_type: text("text/plain"),
        cache_control: text("no-cache"),
        content_disposition: text("inline"),
        content_encoding: text("gzip"),
        content_language: text("de"),
        expires: text("never"),
        website_redirect: text("/x"),
        storage_class: text("STANDARD"),
        user: vec![("name".into(), "wert ü".into())],
        tags: vec![("k".into(), "v".into())],
        ..Attributes::default()
    }
}

fn checksums() -> Vec<StoredChecksum> {
    vec![
        StoredChecksum { algorithm: 2, kind: ChecksumKind::FullObject, value: vec![1; 8] },
        StoredChecksum { algorithm: 4, kind: ChecksumKind::Composite, value: vec![2; 32] },
    ]
}

fn bucket() -> BucketRow {
    let seq = Seq::from_u64(5);
    BucketRow { created_ms: 1, owner: "root".into(), region: "us-east-1".into(), seq, home: home(), moved: None }
}

fn object() -> ObjectRow {
    ObjectRow {
        seq: Seq::from_u64(u64::MAX),
        modified_ms: 1_700_000_000_000,
        size: 5 << 40,
        etag: Etag::Multipart([9; 16], 10_000),
        layout: Layout::Extents(extents()),
        attributes: attributes(),
        checksums: checksums(),
        parts: Some(PartsSummary { count: 10_000, manifest: ManifestId::from_u128(4), upload: None }),
        home: home(),
        kind: Some(VersionKind::Version),
        moved: None,
        former_homes: None,
    }
}

fn encryption() -> Encryption {
    Encryption {
        scheme: EncryptionScheme::KeyService,
        frame_bytes: 65_536,
        wrapped_key: vec![1; 80],
        salt: Salt([2; 16]),
        key_id: Some("key".into()),
        service_key: vec![3; 40],
        context: Some("e30=".into()),
        bucket_key: true,
    }
}

fn upload() -> UploadRow {
    UploadRow {
        bucket: "abc".into(),
        key: "k".into(),
        created_ms: 1,
        seq: Seq::from_u64(2),
        attributes: attributes(),
        checksum_algorithm: Some(0),
        checksum_kind: Some(ChecksumKind::Composite),
        owner: "root".into(),
        home: home(),
        moved: None,
    }
}

fn part() -> PartRow {
    PartRow {
        size: 5 << 30,
        tag: PartTag::Md5([3; 16]),
        modified_ms: 4,
        seq: Seq::from_u64(2),
        checksums: checksums(),
        layout: Layout::Manifest(ManifestId::from_u128(1)),
        home: home(),
        moved: None,
        salt: None,
        counts: None,
    }
}

fn manifest_part() -> ManifestPart {
    ManifestPart {
        part_number: 10_000,
        start: 1 << 40,
        size: 5 << 20,
        checksums: checksums(),
        tag: PartTag::Md5([4; 16]),
        home: home(),
        sealed: None,
    }
}

fn config() -> ConfigRow {
    ConfigRow { seq: Seq::from_u64(3), home: home(), document: b"<x/>".to_vec(), moved: None }
}

fn segment() -> SegmentRow {
    SegmentRow {
        geometry: Geometry::new(4, 2).unwrap(),
        targets: vec![TargetId::from_u128(1), TargetId::NONE],
        state: SegmentState::Sealed,
        kind: LaneKind::Large,
        applied_stripes: 9,
        next_offset: 1 << 30,
        sealed_stripes: Some(10),
        min_seq: Seq::ZERO,
        max_seq: Seq::from_u64(3),
        live_bytes: -1,
        written_bytes: 1 << 30,
        creates_min_seq: None,
        former: None,
        punched: None,
        punched_bytes: None,
    }
}

fn round_trips<R: Row + PartialEq + std::fmt::Debug>(field_count: u64, row: R) {
    let bytes = row.encode();
    assert_eq!(R::decode(&bytes).unwrap(), row);
    // A row cut short is never read as another one, whatever is missing.
    for end in 0..bytes.len() {
        assert!(R::decode(&bytes[..end]).is_err(), "{} cut at {end}", R::NAME);
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(R::decode(&longer), Err(RowError::Malformed { .. })));
    let mut newer = bytes.clone();
    newer[0] = 2;
    assert_eq!(R::decode(&newer), Err(RowError::Version { row: R::NAME, version: 2 }));
    // A later program may have added a field of any kind at the end.
    let mut fields = minicbor::Decoder::new(&bytes[1..]);
    let count = fields.array().unwrap().unwrap();
    let mut extended = vec![bytes[0]];
    let mut encoder = minicbor::Encoder::new(&mut extended);
    encoder.array(field_count + 2).unwrap();
    extended.extend_from_slice(&bytes[1 + fields.position()..]);
    // Absent values at the end are left out where nothing follows.
    extended.extend((count..field_count).map(|_| 0xf6));
    extended.extend(minicbor::to_vec((1_u8, vec![Some("x"), None])).unwrap());
    extended.extend(minicbor::to_vec(1.5_f64).unwrap());
    assert_eq!(R::decode(&extended).unwrap(), row);
}

#[test]
fn rows_round_trip() {
    round_trips(6, bucket());
    round_trips(6, BucketRow { moved: Some(Seq::from_u64(6)), ..bucket() });
    round_trips(12, object());
    round_trips(12, ObjectRow { moved: Some(Seq::from_u64(u64::MAX)), ..object() });
    round_trips(12, ObjectRow { former_homes: Some(Vec::new()), ..object() });
    round_trips(12, ObjectRow { former_homes: Some(vec![SegmentId::from_u128(9); 8]), ..object() });
    let parts = PartsSummary { count: 2, manifest: ManifestId::from_u128(4), upload: Some(UploadId::from_u128(5)) };
    round_trips(12, ObjectRow { parts: Some(parts), ..object() });
    round_trips(12, ObjectRow { layout: Layout::Empty, parts: None, kind: None, ..object() });
    round_trips(12, ObjectRow { etag: Etag::Crc64 { crc64: u64::MAX, parts: 10_000 }, ..object() });
    round_trips(10, upload());
    round_trips(10, UploadRow { moved: Some(Seq::from_u64(7)), ..upload() });
    round_trips(10, part());
    round_trips(10, PartRow { moved: Some(Seq::from_u64(7)), ..part() });
    round_trips(10, PartRow { tag: PartTag::Crc64(u64::MAX), ..part() });
    round_trips(10, PartRow { salt: Some(Salt([1; 16])), ..part() });
    let counts = CountsFor { bucket: "abc".into(), creator: Some("AIDA1".into()) };
    round_trips(10, PartRow { counts: Some(counts), ..part() });
    round_trips(7, ManifestPart { sealed: Some(SealedPart { salt: Salt([1; 16]), start: 7 }), ..manifest_part() });
    let sealed = Attributes { encryption: Some(Box::new(encryption())), ..attributes() };
    round_trips(12, ObjectRow { attributes: sealed.clone(), ..object() });
    round_trips(10, UploadRow { attributes: sealed, ..upload() });
    round_trips(4, config());
    round_trips(4, ConfigRow { moved: Some(Seq::from_u64(7)), ..config() });
    round_trips(12, ObjectRow { kind: Some(VersionKind::NullMarker), ..object() });
    round_trips(1, ManifestPage { extents: extents() });
    round_trips(7, manifest_part());
    round_trips(7, ManifestPart { tag: PartTag::Crc64(1), ..manifest_part() });
    round_trips(15, segment());
    round_trips(15, SegmentRow { punched: Some(vec![4096]), punched_bytes: Some(7), ..segment() });
    round_trips(15, SegmentRow { creates_min_seq: Some(Seq::from_u64(2)), ..segment() });
    let former = ShardCopy { shard: 3, target: TargetId::from_u128(9) };
    round_trips(15, SegmentRow { former: Some(vec![former]), ..segment() });
    round_trips(2, UsageRow { objects: u64::MAX, bytes: 0 });
    assert_eq!(UsageRow::decode(&[]), Err(RowError::Empty { row: "usage" }));
}

/// What version 1 wrote must open for ever: these bytes never change.
#[test]
fn fixtures_of_version_1() {
    let fixtures = include_str!("fixtures-v1.txt");
    let rows = [
        ("bucket", bucket().encode()),
        ("object", object().encode()),
        ("upload", upload().encode()),
        ("part", part().encode()),
        ("manifest page", ManifestPage { extents: extents() }.encode()),
        ("manifest part", manifest_part().encode()),
        ("segment", segment().encode()),
        ("usage", UsageRow { objects: 1, bytes: 2 }.encode()),
        ("config", config().encode()),
    ];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let written: String = rows.iter().map(|(name, bytes)| format!("{name}: {}\n", hex(bytes))).collect();
    assert_eq!(written, fixtures);
}

#[test]
fn a_small_object_has_a_small_row() {
    let extent = Extent {
        segment: SegmentId::new(u64::MAX, 1000),
        stripe_offset: 1 << 29,
        place: Place::Chunk { shard: 3, start: 1 << 20 },
        len: 4096,
        crc64: u64::MAX,
    };
    let row = ObjectRow {
        seq: Seq::from_u64(u64::MAX),
        size: 4096,
        etag: Etag::Md5([9; 16]),
        layout: Layout::Extents(vec![extent]),
        attributes: Attributes { content_type: Some("application/octet-stream".into()), ..Attributes::default() },
        checksums: vec![StoredChecksum { algorithm: 2, kind: ChecksumKind::FullObject, value: vec![1; 8] }],
        parts: None,
        kind: None,
        former_homes: Some(Vec::new()),
        ..object()
    };
    assert!(row.encode().len() <= 192, "{} bytes", row.encode().len());
}

#[test]
fn geometries_are_checked() {
    let mut bytes = segment().encode();
    // Version, array of 11, array of 2, data shards.
    assert_eq!(bytes[..5], [1, 0x8b, 0x82, 4, 2]);
    bytes[3] = 0;
    assert!(matches!(SegmentRow::decode(&bytes), Err(RowError::Malformed { .. })));
}

/// Arrays and strings that claim to be as long as can be, in a few bytes.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![0x80_u8, 0x82, 0x8b, 0x9b, 0x9f, 0x5b, 0x7b, 0xbb, 0xbf, 0xff, 0xf6, 0xc1, 0x1b]),
    ];
    prop::collection::vec(byte, 0..60)
}

fn decode_all(bytes: &[u8]) {
    let _ = BucketRow::decode(bytes);
    let _ = ObjectRow::decode(bytes);
    let _ = UploadRow::decode(bytes);
    let _ = PartRow::decode(bytes);
    let _ = ManifestPage::decode(bytes);
    let _ = ManifestPart::decode(bytes);
    let _ = SegmentRow::decode(bytes);
    let _ = UsageRow::decode(bytes);
    let _ = ConfigRow::decode(bytes);
}

#[test]
fn a_listing_reads_what_the_row_says() {
    let row = object();
    let listed = ListedObject::decode(&row.encode()).unwrap();
    assert_eq!((listed.modified_ms, listed.size, listed.etag), (row.modified_ms, row.size, row.etag));
    assert_eq!(listed.attributes.storage_class, row.attributes.storage_class);
    let checksums = row.checksums.iter().map(|c| ListedChecksum { algorithm: c.algorithm, kind: c.kind });
    assert_eq!(listed.checksums, checksums.collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in hostile()) {
        decode_all(&bytes);
        bytes.insert(0, 1);
        decode_all(&bytes);
    }

    #[test]
    fn damaged_rows_never_panic(at in 0..400_usize, byte in any::<u8>(), which in 0..6_usize) {
        let mut bytes = match which {
            0 => bucket().encode(),
            1 => object().encode(),
            2 => upload().encode(),
            3 => part().encode(),
            4 => ManifestPage { extents: extents() }.encode(),
            _ => segment().encode(),
        };
        let at = at % bytes.len();
        bytes[at] = byte;
        decode_all(&bytes);
    }
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    // In a place that is skipped because no field is known there.
    let mut bytes = UsageRow::default().encode();
    bytes[1] = 0x83;
    bytes.extend(std::iter::repeat_n(0x81, 100_000));
    assert!(UsageRow::decode(&bytes).is_err());
    bytes.push(0);
    let _ = UsageRow::decode(&bytes);
}
