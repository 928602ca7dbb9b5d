//! Multipart uploads: checksums, manifests, what is refused.

use gabion_erasure::{Digester, composite};
use gabion_metadata::Table;
use gabion_store::{
    Checksum, ChecksumAlgorithm, ChecksumKind, CompleteUpload, CompletedPart, CopyMetadata, CopyObject, CopySource,
    CreateUpload, GetAttributes, GetObject, ListParts, ObjectBody, PartResult, RangeRequest, ReadConditions, Store,
    StoreError, UploadPart, UploadPartCopy, UploadRef, WriteConditions,
};
use gabion_types::UploadId;

use crate::harness::{truth::check_counters, *};

async fn fresh(seed: u64) -> (World, Store) {
    let world = World::new(seed, config(1, 0));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    (world, store)
}

async fn begin(store: &Store, checksum: Option<(ChecksumAlgorithm, Option<ChecksumKind>)>) -> UploadRef {
    let (bucket, key) = (bucket("bucket"), key("key"));
    let request = CreateUpload { bucket: bucket.clone(), key: key.clone(), attributes: Default::default(), checksum };
    UploadRef { bucket, key, upload: store.create_upload(request).await.unwrap() }
}

async fn part(store: &Store, target: &UploadRef, part_number: u16, body: ObjectBody) -> Result<PartResult, StoreError> {
    store.upload_part(UploadPart { target: target.clone(), part_number }, body).await
}

fn completion(target: &UploadRef, parts: &[(u16, &PartResult)]) -> CompleteUpload {
    let named = |(part_number, part): &(u16, &PartResult)| CompletedPart {
        part_number: *part_number,
        etag: part.etag.to_string(),
        checksums: Vec::new(),
    };
    complete_request(target.clone(), parts.iter().map(named).collect())
}

fn checksum(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> Checksum {
    let mut digester = Digester::new(false, &[algorithm]);
    digester.update(bytes);
    digester.finish().checksums[0]
}

#[tokio::test]
async fn whole_and_composite_checksums() {
    use ChecksumAlgorithm::*;
    let (_world, store) = fresh(1).await;
    let (first, second) = (bytes(1, 100), bytes(2, 50));
    let whole = [&first[..], &second[..]].concat();
    for (asked, kind) in [
        (None, ChecksumKind::FullObject),
        (Some((Crc64Nvme, None)), ChecksumKind::FullObject),
        (Some((Crc32, Some(ChecksumKind::FullObject))), ChecksumKind::FullObject),
        (Some((Crc32c, None)), ChecksumKind::Composite),
        (Some((Sha256, None)), ChecksumKind::Composite),
    ] {
        let algorithm = asked.map_or(Crc64Nvme, |(algorithm, _)| algorithm);
        let target = begin(&store, asked).await;
        let bare = part(&store, &target, 1, ObjectBody::from_bytes(first.clone())).await;
        assert_eq!(bare.is_err(), kind == ChecksumKind::Composite, "{algorithm}");
        let body =
            |bytes: &bytes::Bytes| ObjectBody { compute: vec![algorithm], ..ObjectBody::from_bytes(bytes.clone()) };
        let one = part(&store, &target, 1, body(&first)).await.unwrap();
        let two = part(&store, &target, 2, body(&second)).await.unwrap();
        let expected = match kind {
            ChecksumKind::FullObject => checksum(algorithm, &whole),
            ChecksumKind::Composite => {
                composite(algorithm, &[checksum(algorithm, &first), checksum(algorithm, &second)])
            }
        };
        let mut request = completion(&target, &[(1, &one), (2, &two)]);
        if kind == ChecksumKind::Composite {
            let refused = store.complete_upload(request.clone()).await;
            assert!(matches!(refused, Err(StoreError::InvalidRequest(_))), "the parts' checksums are missing");
            for (part, bytes) in request.parts.iter_mut().zip([&first, &second]) {
                part.checksums = vec![checksum(algorithm, bytes)];
            }
        }
        let wrong = CompleteUpload { checksum: Some(checksum(algorithm, b"x")), ..request.clone() };
        assert!(matches!(store.complete_upload(wrong).await, Err(StoreError::BadDigest(_))));
        let wrong = CompleteUpload { expected_size: Some(151), ..request.clone() };
        assert!(matches!(store.complete_upload(wrong).await, Err(StoreError::InvalidRequest(_))));
        let right = CompleteUpload {
            checksum: Some(expected),
            expected_size: Some(150),
            checksum_kind: asked.map(|_| kind),
            ..request.clone()
        };
        let put = store.complete_upload(right.clone()).await.unwrap();
        assert_eq!((put.checksums.len(), put.checksums[0].kind), (1, kind));
        assert_eq!(put.checksums[0].value, expected.as_bytes());
        assert!(put.etag.to_string().ends_with("-2"));
        // The answer was lost: who asks again is told the same, of the same parts.
        let again = store.complete_upload(right.clone()).await.unwrap();
        assert_eq!((&again.etag, again.seq, again.checksums), (&put.etag, put.seq, put.checksums));
        let fewer = CompleteUpload { parts: right.parts[..1].to_vec(), ..right.clone() };
        assert!(matches!(store.complete_upload(fewer).await, Err(StoreError::NoSuchUpload)));
        let wrong = [
            CompleteUpload { checksum: Some(checksum(algorithm, b"x")), ..right.clone() },
            CompleteUpload { expected_size: Some(151), ..right.clone() },
            CompleteUpload { parts: vec![right.parts[0].clone(); 2], ..right.clone() },
        ];
        for wrong in wrong {
            assert!(matches!(store.complete_upload(wrong).await, Err(StoreError::NoSuchUpload)));
        }
        let mut other = right.clone();
        other.parts[0].etag = right.parts[1].etag.clone();
        assert!(matches!(store.complete_upload(other).await, Err(StoreError::NoSuchUpload)));
        assert_eq!(get(&store, "bucket", "key").await.unwrap(), whole);
        crate::harness::put(&store, "bucket", "key", &whole.clone().into()).await;
        assert!(matches!(store.complete_upload(right).await, Err(StoreError::NoSuchUpload)), "it is another object");
    }
}

#[tokio::test]
async fn parts_are_refused_where_they_do_not_belong() {
    let (_world, store) = fresh(2).await;
    let target = begin(&store, Some((ChecksumAlgorithm::Sha1, None))).await;
    let body = || ObjectBody::from_bytes(bytes(1, 20));
    for number in [0, 10_001] {
        assert!(matches!(part(&store, &target, number, body()).await, Err(StoreError::InvalidPartNumber)));
    }
    let crc = ObjectBody { compute: vec![ChecksumAlgorithm::Crc32], ..body() };
    assert!(matches!(part(&store, &target, 1, crc).await, Err(StoreError::InvalidRequest(_))));
    let unknown = UploadRef { upload: UploadId::from_u128(1), ..target.clone() };
    assert!(matches!(part(&store, &unknown, 1, body()).await, Err(StoreError::NoSuchUpload)));
    let other_key = UploadRef { key: key("other"), ..target.clone() };
    assert!(matches!(part(&store, &other_key, 1, body()).await, Err(StoreError::NoSuchUpload)));
    let no_bucket = UploadRef { bucket: bucket("nothing"), ..target };
    assert!(matches!(part(&store, &no_bucket, 1, body()).await, Err(StoreError::NoSuchBucket)));
}

/// More than 128 extents, in pages; copies of it; ranges and parts of it.
#[tokio::test]
async fn a_manifest_of_many_extents() {
    let (mut world, mut store) = fresh(3).await;
    let body = bytes(7, 3_000_000);
    put(&store, "bucket", "source", &body).await;
    let source = CopySource {
        bucket: bucket("bucket"),
        key: key("source"),
        version: None,
        conditions: ReadConditions::default(),
    };
    let target = begin(&store, None).await;
    let mut parts = Vec::new();
    for number in 1..=20 {
        let request =
            UploadPartCopy { target: target.clone(), part_number: number, source: source.clone(), range: None };
        parts.push(store.upload_part_copy(request).await.unwrap());
    }
    let named: Vec<(u16, &PartResult)> = (1..).zip(&parts).collect();
    store.complete_upload(completion(&target, &named)).await.unwrap();
    // The same again, as parts that are manifests themselves.
    let big = CopySource { key: key("key"), ..source.clone() };
    let target = UploadRef { key: key("huge"), ..target };
    let create =
        CreateUpload { bucket: bucket("bucket"), key: key("huge"), attributes: Default::default(), checksum: None };
    let target = UploadRef { upload: store.create_upload(create).await.unwrap(), ..target };
    let mut parts = Vec::new();
    for number in [2, 5] {
        let request = UploadPartCopy { target: target.clone(), part_number: number, source: big.clone(), range: None };
        parts.push(store.upload_part_copy(request).await.unwrap());
    }
    let named: Vec<(u16, &PartResult)> = [2, 5].into_iter().zip(&parts).collect();
    store.complete_upload(completion(&target, &named)).await.unwrap();
    let copy = CopyObject {
        source: big,
        is_version_named: false,
        bucket: bucket("bucket"),
        key: key("copy"),
        metadata: CopyMetadata::Copy { own: Box::default() },
        tags: None,
        owner: None,
        creator: None,
        acl: None,
        conditions: WriteConditions::default(),
        checksum_algorithm: None,
    };
    store.copy_object(copy).await.unwrap();
    delete(&store, "bucket", "source").await;
    for round in 0..3 {
        check_counters(&world.index.current.lock());
        for (name, times) in [("key", 20), ("copy", 20), ("huge", 40)] {
            let whole = body.repeat(times);
            assert_eq!(get(&store, "bucket", name).await.unwrap(), whole);
            for (first, last) in [(0, 0), (2_999_999, 3_000_000), (17_000_000, 33_333_333), (59_999_999, 59_999_999)] {
                let got = get_range(&store, "bucket", name, RangeRequest::Between(first, last)).await.unwrap();
                assert_eq!(got, whole[first as usize..=last as usize]);
            }
        }
        let attributes = GetAttributes {
            version: None,
            bucket: bucket("bucket"),
            key: key("copy"),
            conditions: ReadConditions::default(),
            parts_after: 17,
            parts_max: 2,
            customer: None,
        };
        let page = store.get_attributes(attributes).await.unwrap().parts.unwrap();
        let numbers: Vec<u16> = page.parts.iter().map(|part| part.part_number).collect();
        assert_eq!((page.total, numbers, page.next, page.truncated), (20, vec![18, 19], 19, true));
        store = if round == 0 {
            store.free_dead_segments().await.unwrap();
            world.restart(store).await
        } else {
            world.crash(store, 0).await;
            world.lose_index();
            world.open().await
        };
    }
    for name in ["key", "copy", "huge"] {
        delete(&store, "bucket", name).await;
    }
    check_counters(&world.index.current.lock());
    assert!(store.status().live_bytes < 1000, "only the bucket is left");
}

/// An upload of one part that waits to be completed.
async fn uploaded(store: &Store, seed: u64) -> CompleteUpload {
    let target = begin(store, None).await;
    let one = part(store, &target, 1, ObjectBody::from_bytes(bytes(seed, 100))).await.unwrap();
    completion(&target, &[(1, &one)])
}

/// Has an upload completed right before a table is read for the next time.
fn completed_before(world: &World, table: Table, store: &Store, request: CompleteUpload) {
    let (store, runtime) = (store.clone(), tokio::runtime::Handle::current());
    world.index.interruption.before(table, move || {
        // Who reads is in the runtime, and waits here.
        let completing = std::thread::spawn(move || runtime.block_on(store.complete_upload(request)).unwrap());
        completing.join().unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_is_read_of_an_object_that_is_replaced_meanwhile() {
    let (world, store) = fresh(7).await;
    store.complete_upload(uploaded(&store, 1).await).await.unwrap();
    let first = GetObject { part_number: Some(1), ..GetObject::whole(bucket("bucket"), key("key")) };
    completed_before(&world, Table::Manifest, &store, uploaded(&store, 2).await);
    assert_eq!(store.head_object(&first).unwrap().len, 100);
    assert!(world.index.interruption.is_over());
    completed_before(&world, Table::Manifest, &store, uploaded(&store, 3).await);
    assert_eq!(read(&store, first.clone()).await.unwrap(), bytes(3, 100));
    assert!(world.index.interruption.is_over());
    let second = GetObject { part_number: Some(2), ..first };
    assert!(matches!(store.head_object(&second), Err(StoreError::InvalidPartNumber)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_are_listed_of_an_upload_that_ends_meanwhile() {
    let (world, store) = fresh(8).await;
    let request = uploaded(&store, 1).await;
    let list = ListParts { target: request.target.clone(), after: 0, max: 10 };
    completed_before(&world, Table::Part, &store, request);
    assert_eq!(store.list_parts(list.clone()).await.unwrap().parts.len(), 1);
    assert!(world.index.interruption.is_over());
    assert!(matches!(store.list_parts(list).await, Err(StoreError::NoSuchUpload)));
}

/// What a bucket's uploads have may be more than a commit should hold: they end before the bucket does, some at a time.
#[tokio::test]
async fn a_bucket_with_many_parts_goes_in_several_commits() {
    let (world, store) = fresh(40).await;
    for (uploads, parts, ends) in [(3, 5, 0), (3, 7000, 2)] {
        for _ in 0..uploads {
            let target = begin(&store, None).await;
            let number = |part: u16| part + 1;
            let put = |number| part(&store, &target, number, ObjectBody::from_bytes(bytes(1, 1)));
            for some in (0..parts).map(number).collect::<Vec<_>>().chunks(500) {
                for put in futures::future::join_all(some.iter().map(|&number| put(number))).await {
                    put.unwrap();
                }
            }
        }
        let before = store.log_metrics().small_records.get();
        store.delete_bucket(&bucket("bucket")).await.unwrap();
        assert_eq!(store.log_metrics().small_records.get() - before, ends + 1, "{uploads} {parts}");
        store.create_bucket(bucket("bucket"), None).await.unwrap();
    }
    check_counters(&world.index.current.lock());
}
