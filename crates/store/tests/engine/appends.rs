//! Appends: what they make of an object, what they write, and what they refuse.

use bytes::Bytes;
use gabion_metadata::{
    Table, keys,
    rows::{Layout, ObjectRow, Row},
};
use gabion_store::{
    AppendObject, Attributes, Checksum, ChecksumAlgorithm, ChecksumKind, ConfigScope, Encrypt, EtagMatch, GetObject,
    ObjectBody, RangeRequest, SecretKey, StoreError, VERSIONING, Versioning, WriteConditions,
};

use crate::{
    compaction::check_rebuild,
    harness::{truth::check_counters, *},
};

fn row(world: &World, name: &str) -> ObjectRow {
    let index = world.index.current.lock();
    let row = gabion_metadata::Index::get(&*index, Table::Object, &keys::object(&bucket("bucket"), &key(name)));
    ObjectRow::decode(&row.unwrap().unwrap()).unwrap()
}

/// Small and large ones in any order, read as a whole and in ranges, moved, and rebuilt.
#[tokio::test]
async fn an_object_grows_at_its_end() {
    let (mut world, mut store) = compacting(1).await;
    let mut whole = Vec::new();
    for (count, size) in [0, 10, 2_500_000, 10, 20, 0, 700_000, 900_000, 1 << 20, 5, 3_000_000].into_iter().enumerate()
    {
        let more = bytes(count as u64, size);
        let put = append(&store, "k", whole.len() as u64, &more).await.unwrap();
        whole.extend_from_slice(&more);
        assert_eq!(put.size, whole.len() as u64);
        let expected = crc64(&whole);
        assert_eq!((put.checksums.len(), &put.checksums[0].value[..]), (1, &expected[..]), "after {count}");
        assert_eq!(get(&store, "bucket", "k").await.unwrap(), whole);
        let middle = whole.len() as u64 / 2;
        for (first, last) in [(0, 0), (middle.saturating_sub(7), middle + 7), (middle, u64::MAX)] {
            if first < whole.len() as u64 {
                let part = get_range(&store, "bucket", "k", RangeRequest::Between(first, last)).await.unwrap();
                assert_eq!(part, whole[first as usize..whole.len().min(last.saturating_add(1) as usize)]);
            }
        }
    }
    for round in 0..3_u64 {
        put(&store, "bucket", "dead", &bytes(round, 1_500_000)).await;
        delete(&store, "bucket", "dead").await;
        store = world.restart(store).await;
        let compacted = store.compact().await.unwrap();
        assert_eq!(compacted.rows_failed, 0);
        assert_eq!(get(&store, "bucket", "k").await.unwrap(), whole);
        check_counters(&world.index.current.lock());
        store = check_rebuild(&mut world, store).await;
        store.copy_object(copy_request("k", "copy")).await.unwrap();
        assert_eq!(get(&store, "bucket", "copy").await.unwrap(), whole);
        let more = bytes(round, 1000);
        append(&store, "k", whole.len() as u64, &more).await.unwrap();
        whole.extend_from_slice(&more);
    }
}

fn crc64(bytes: &[u8]) -> [u8; 8] {
    let mut crc = gabion_erasure::Crc64::new();
    crc.update(bytes);
    crc.finish().to_be_bytes()
}

/// What a thousand tiny appends leave is a few extents, and they cost what they should.
#[tokio::test]
async fn tiny_appends_are_gathered() {
    let (mut world, store) = compacting(2).await;
    let mut whole = Vec::new();
    for count in 0..1000_u64 {
        let more = bytes(count, 100);
        append(&store, "log", whole.len() as u64, &more).await.unwrap();
        whole.extend_from_slice(&more);
    }
    assert_eq!(get(&store, "bucket", "log").await.unwrap(), whole);
    match row(&world, "log").layout {
        Layout::Extents(extents) => assert!(extents.len() <= 10, "{} extents", extents.len()),
        layout => panic!("{layout:?}"),
    }
    assert_eq!(store.metrics().appends.get(), 999, "the first one made it");
    check_counters(&world.index.current.lock());
    let store = check_rebuild(&mut world, store).await;
    assert_eq!(get(&store, "bucket", "log").await.unwrap(), whole);
    // A copy begins to count anew, and it is another object.
    store.copy_object(copy_request("log", "copy")).await.unwrap();
    assert_eq!((row(&world, "log").attributes.appends, row(&world, "copy").attributes.appends), (Some(999), None));
}

/// Of all that append at one place one succeeds, and nothing of the others is seen.
#[tokio::test]
async fn of_two_at_one_place_one_is_refused() {
    let (mut world, store) = compacting(3).await;
    for size in [100, 1_500_000] {
        let before = bytes(1, size);
        put(&store, "bucket", "k", &before).await;
        let bodies: Vec<Bytes> = (0..8).map(|seed| bytes(10 + seed, size)).collect();
        let appends = bodies.iter().map(|body| append(&store, "k", size as u64, body));
        let done = futures::future::join_all(appends).await;
        let won: Vec<usize> = (0..8).filter(|&at| done[at].is_ok()).collect();
        assert_eq!(won.len(), 1);
        for refused in done.iter().filter_map(|done| done.as_ref().err()) {
            assert!(matches!(refused, StoreError::InvalidWriteOffset { .. }), "{refused}");
        }
        assert_eq!(get(&store, "bucket", "k").await.unwrap(), [&before[..], &bodies[won[0]][..]].concat());
    }
    // Of those who make an object as well.
    let done = futures::future::join_all((0..4).map(|_| async { append(&store, "new", 0, &bytes(1, 10)).await })).await;
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1);
    check_rebuild(&mut world, store).await;
}

#[tokio::test]
async fn who_reads_goes_on_with_what_he_began() {
    let (mut world, mut store) = compacting(4).await;
    for size in [4000, 2_500_000] {
        let body = bytes(1, size);
        put(&store, "bucket", "k", &body).await;
        let mut read = store.get_object(GetObject::whole(bucket("bucket"), key("k"))).await.unwrap();
        append(&store, "k", size as u64, &bytes(2, 5000)).await.unwrap();
        store.compact().await.unwrap();
        let mut got = Vec::new();
        while let Some(piece) = futures::StreamExt::next(&mut read.body).await {
            got.extend_from_slice(&piece.unwrap());
        }
        assert_eq!(got, body);
        drop(read);
        store = world.restart(store).await;
    }
}

#[tokio::test]
async fn checksums_and_tags_are_told_on() {
    let (_world, store) = compacting(5).await;
    for (algorithm, kept) in [
        (ChecksumAlgorithm::Crc32, ChecksumAlgorithm::Crc32),
        (ChecksumAlgorithm::Crc32c, ChecksumAlgorithm::Crc32c),
        (ChecksumAlgorithm::Crc64Nvme, ChecksumAlgorithm::Crc64Nvme),
        (ChecksumAlgorithm::Sha256, ChecksumAlgorithm::Crc64Nvme),
    ] {
        for size in [1000, 1_400_000] {
            let (first, second) = (bytes(1, 3000), bytes(2, size));
            let body = ObjectBody { compute: vec![algorithm], ..ObjectBody::from_bytes(first.clone()) };
            let before = store.put_object(put_request("bucket", "k"), body).await.unwrap();
            let after = append(&store, "k", 3000, &second).await.unwrap();
            let whole = Bytes::from([first, second].concat());
            let body = ObjectBody { compute: vec![kept], ..ObjectBody::from_bytes(whole.clone()) };
            let expected = store.put_object(put_request("bucket", "other"), body).await.unwrap();
            assert_eq!(after.checksums, expected.checksums, "{algorithm}");
            assert_eq!(after.checksums[0].kind, ChecksumKind::FullObject);
            let (etag, before) = (after.etag.to_string(), before.etag.to_string());
            assert!(etag.ends_with("-2") && etag != before, "{etag}");
        }
    }
    // A checksum that the client gives is of what it appends.
    let object = put_request("bucket", "k");
    let size = store.head_object(&GetObject::whole(bucket("bucket"), key("k"))).unwrap().info.size;
    let wrong = Checksum::new(ChecksumAlgorithm::Crc32, &[1, 2, 3, 4]).unwrap();
    let body = ObjectBody { checksums: vec![wrong], ..ObjectBody::from_bytes(bytes(1, 10)) };
    let refused = store.append_object(AppendObject { object, offset_bytes: size }, body).await;
    assert!(matches!(refused, Err(StoreError::BadDigest(_))));
}

#[tokio::test]
async fn what_can_not_be_appended_to_stays_as_it_is() {
    let (world, store) = compacting(6).await;
    put(&store, "bucket", "k", &bytes(1, 10)).await;
    let size = |refused: Result<_, StoreError>| match refused {
        Err(StoreError::InvalidWriteOffset { size }) => size,
        other => panic!("{other:?}"),
    };
    assert_eq!(size(append(&store, "k", 0, &bytes(2, 5)).await), 10);
    assert_eq!(size(append(&store, "k", 11, &bytes(2, 5)).await), 10);
    assert_eq!(size(append(&store, "absent", 1, &bytes(2, 5)).await), 0);
    let conditions = |conditions| AppendObject {
        object: gabion_store::PutObject { conditions, ..put_request("bucket", "k") },
        offset_bytes: 10,
    };
    let other = EtagMatch::OneOf(vec!["other".into()]);
    for refusing in [
        WriteConditions { if_match: Some(other), if_none_match: None },
        WriteConditions { if_match: None, if_none_match: Some(EtagMatch::Any) },
    ] {
        let refused = store.append_object(conditions(refusing), ObjectBody::from_bytes(bytes(2, 5))).await;
        assert!(matches!(refused, Err(StoreError::PreconditionFailed(_))));
    }
    let is_invalid = |refused: Result<_, StoreError>| matches!(refused, Err(StoreError::InvalidRequest(_)));
    let encrypt = Some(Box::new(Encrypt::with_customer(SecretKey::filled(|key| key.fill(1)))));
    let sealed = || ObjectBody { encrypt: encrypt.clone(), ..ObjectBody::from_bytes(bytes(2, 5)) };
    assert!(is_invalid(store.append_object(conditions(WriteConditions::default()), sealed()).await));
    store.put_object(put_request("bucket", "sealed"), sealed()).await.unwrap();
    assert!(is_invalid(append(&store, "sealed", 5, &bytes(2, 5)).await));
    let held = Attributes { legal_hold: Some(true), ..Attributes::default() };
    let request = gabion_store::PutObject { attributes: held, ..put_request("bucket", "held") };
    store.put_object(request, ObjectBody::from_bytes(bytes(1, 5))).await.unwrap();
    assert!(matches!(append(&store, "held", 5, &bytes(2, 5)).await, Err(StoreError::AccessDenied(_))));
    assert_eq!(get(&store, "bucket", "k").await.unwrap(), bytes(1, 10));
    assert_eq!(row(&world, "k").attributes.appends, None);
    store
        .put_config(ConfigScope::Bucket(bucket("bucket")), VERSIONING, Versioning::Suspended.document().into())
        .await
        .unwrap();
    assert!(is_invalid(append(&store, "k", 10, &bytes(2, 5)).await));
}

#[tokio::test]
async fn an_object_has_ten_thousand_parts_at_most() {
    let (_world, store) = compacting(7).await;
    let attributes = Attributes { appends: Some(9998), ..Attributes::default() };
    let request = gabion_store::PutObject { attributes, ..put_request("bucket", "k") };
    store.put_object(request, ObjectBody::from_bytes(bytes(1, 10))).await.unwrap();
    let last = append(&store, "k", 10, &bytes(2, 5)).await.unwrap();
    assert!(last.etag.to_string().ends_with("-2"), "one more than the tag before said");
    assert!(matches!(append(&store, "k", 15, &bytes(2, 5)).await, Err(StoreError::TooManyParts)));
    store.copy_object(copy_request("k", "copy")).await.unwrap();
    append(&store, "copy", 15, &bytes(2, 5)).await.unwrap();
}
