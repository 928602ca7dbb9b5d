//! Encrypted objects, where bytes are moved without being read: compaction, rebuilt indexes, copies, repaired shards. With customers' keys, so that
//! nobody needs to keep any.

use bytes::Bytes;
use gabion_store::{
    CompleteUpload, CompletedPart, CopyKeys, CreateUpload, Encrypt, GetObject, KeyError, ObjectBody, RangeRequest,
    SecretKey, Store, StoreError, UploadPart, UploadRef, WriteConditions,
};

use crate::{
    compaction::{check_rebuild, fresh},
    harness::{truth::check_counters, *},
};

/// A byte, one frame and two, two stripes; what goes into records, and what does not.
const SIZES: [usize; 6] = [1, 3000, 65_536, 100_000, 1 << 20, 2_500_000];
/// Parts of the large object: in records and in stripes.
const PARTS: [usize; 5] = [400, 1_300_000, 70_000, 80_000, 300];

fn secret(seed: u8) -> SecretKey {
    SecretKey::filled(|key| key.fill(seed))
}

fn sealed(body: &Bytes) -> ObjectBody {
    let encrypt = Some(Box::new(Encrypt::with_customer(secret(1))));
    ObjectBody { encrypt, ..ObjectBody::from_bytes(body.clone()) }
}

fn with_key(name: &str) -> GetObject {
    GetObject { customer: Some(secret(1)), ..GetObject::whole(bucket("bucket"), key(name)) }
}

async fn put_all(store: &Store) {
    for (seed, size) in (0..).zip(SIZES) {
        let body = bytes(seed, size);
        store.put_object(put_request("bucket", &format!("{size}")), sealed(&body)).await.unwrap();
        put(store, "bucket", "dead", &bytes(seed, 100_000)).await;
    }
    let request =
        CreateUpload { bucket: bucket("bucket"), key: key("large"), attributes: Default::default(), checksum: None };
    let encrypt = Encrypt::with_customer(secret(1));
    let upload = store.create_encrypted_upload(request, Some(&encrypt)).await.unwrap().upload;
    let target = UploadRef { bucket: bucket("bucket"), key: key("large"), upload };
    let mut parts = Vec::new();
    for (number, size) in (1..).zip(PARTS) {
        let part = UploadPart { target: target.clone(), part_number: number };
        let put = store.upload_part(part, sealed(&bytes(number.into(), size))).await.unwrap();
        parts.push(CompletedPart { part_number: number, etag: put.etag.to_string(), checksums: vec![] });
    }
    let complete = complete_request(target, parts);
    store.complete_upload(complete).await.unwrap();
    let keys = CopyKeys { source: Some(secret(1)), target: Some(encrypt), is_asked: false };
    let copy = store.copy_encrypted(copy_request("large", "copy"), keys).await.unwrap();
    assert_eq!(copy.parts_count, Some(5), "a copy with the same key keeps its parts");
    delete(store, "bucket", "dead").await;
}

async fn check(store: &Store) {
    for (seed, size) in (0..).zip(SIZES) {
        let name = format!("{size}");
        assert_eq!(read(store, with_key(&name)).await.unwrap(), bytes(seed, size), "{size}");
        let wrong = GetObject { customer: Some(secret(2)), ..with_key(&name) };
        assert!(matches!(read(store, wrong).await, Err(StoreError::Key(KeyError::Wrong))));
    }
    let whole: Vec<u8> = (1..).zip(PARTS).flat_map(|(number, size)| bytes(number, size).to_vec()).collect();
    for name in ["large", "copy"] {
        assert!(read(store, with_key(name)).await.unwrap() == whole, "{name}");
        for (first, last) in [(399, 400), (1_300_399, 1_370_401), (1_450_000, 1_450_699)] {
            let range = Some(RangeRequest::Between(first, last));
            let part = read(store, GetObject { range, ..with_key(name) }).await.unwrap();
            assert!(part == whole[first as usize..=last as usize], "{name} {first}");
        }
        for (number, size) in (1..).zip(PARTS) {
            let part = GetObject { part_number: Some(number), ..with_key(name) };
            assert_eq!(read(store, part).await.unwrap(), bytes(number.into(), size), "{name} {number}");
        }
    }
}

/// Moved as one, and part by part.
#[tokio::test]
async fn what_moves_is_opened_all_the_same() {
    for (seed, move_bytes_max) in [(300, 1 << 20), (301, 700)] {
        let (mut world, mut store) = fresh(seed, (2, 1)).await;
        world.config.compaction.live_ratio_max = 1.0;
        world.config.move_bytes_max = move_bytes_max;
        store = world.restart(store).await;
        put_all(&store).await;
        check(&store).await;
        for round in 0..2_u64 {
            put(&store, "bucket", "filler", &bytes(round, 1_060_000)).await;
            put(&store, "bucket", "dead", &bytes(round, 1_060_000)).await;
            delete(&store, "bucket", "dead").await;
            store = world.restart(store).await;
            let compacted = store.compact().await.unwrap();
            assert!(compacted.rows_moved >= 1 && compacted.rows_failed == 0, "{compacted:?}");
            check(&store).await;
            check_counters(&world.index.current.lock());
            store = check_rebuild(&mut world, store).await;
            check(&store).await;
        }
    }
}

/// Compaction goes by uploads that are open, too.
#[tokio::test]
async fn open_uploads_move_with_what_seals_them() {
    let (mut world, mut store) = fresh(302, (2, 1)).await;
    world.config.compaction.live_ratio_max = 1.0;
    let request =
        CreateUpload { bucket: bucket("bucket"), key: key("k"), attributes: Default::default(), checksum: None };
    let encrypt = Encrypt::with_customer(secret(1));
    let upload = store.create_encrypted_upload(request, Some(&encrypt)).await.unwrap().upload;
    let target = UploadRef { bucket: bucket("bucket"), key: key("k"), upload };
    let mut parts = Vec::new();
    for (number, size) in [(1_u16, 70_000), (2, 1_200_000), (3, 0)] {
        let part = UploadPart { target: target.clone(), part_number: number };
        let put = store.upload_part(part, sealed(&bytes(number.into(), size))).await.unwrap();
        parts.push(CompletedPart { part_number: number, etag: put.etag.to_string(), checksums: vec![] });
    }
    put(&store, "bucket", "dead", &bytes(1, 1_060_000)).await;
    delete(&store, "bucket", "dead").await;
    store = world.restart(store).await;
    let compacted = store.compact().await.unwrap();
    assert!(compacted.rows_moved >= 4 && compacted.rows_failed == 0, "{compacted:?}");
    store = check_rebuild(&mut world, store).await;
    let complete = CompleteUpload {
        target,
        parts,
        conditions: WriteConditions::default(),
        expected_size: Some(1_270_000),
        checksum: None,
        checksum_kind: None,
        default_retention: None,
    };
    store.complete_upload(complete).await.unwrap();
    let whole = [bytes(1, 70_000), bytes(2, 1_200_000)].concat();
    assert!(read(&store, with_key("k")).await.unwrap() == whole);
}
