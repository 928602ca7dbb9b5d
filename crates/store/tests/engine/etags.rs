//! Entity tags that are CRCs: of bodies, parts, uploads and copies, also when the setting changes; they stay what they are.

use std::sync::Arc;

use futures::future::BoxFuture;
use gabion_erasure::{Md5, crc64};
use gabion_store::{
    BodyError, Checksum, ChecksumAlgorithm, CompletedPart, CopySource, CreateUpload, DigestKind, Encrypt, Encryption,
    EncryptionScheme, Etag, EtagKind, EtagMatch, KeyError, KeyKeeper, ListParts, ObjectBody, PartResult, PutResult,
    RangeRequest, ReadConditions, SecretKey, Store, StoreError, UploadPart, UploadPartCopy, UploadRef, WrappingKey,
};

use super::compaction::{check_rebuild, fresh};
use crate::harness::*;

/// In the record, in one stripe, in many.
const SIZES: [usize; 5] = [0, 1, 4096, 200_000, 2_500_000];

fn crc_tag(bytes: &[u8]) -> Etag {
    Etag::Crc64 { crc64: crc64(bytes), parts: 1 }
}

fn md5(bytes: &[u8]) -> [u8; 16] {
    let mut md5 = Md5::default();
    md5.update(bytes);
    md5.finish()
}

/// The store with another setting.
async fn set(world: &mut World, store: Store, kind: EtagKind) -> Store {
    world.config.etag = kind;
    world.restart(store).await
}

async fn begin(store: &Store, name: &str) -> UploadRef {
    let (bucket, key) = (bucket("bucket"), key(name));
    let request =
        CreateUpload { bucket: bucket.clone(), key: key.clone(), attributes: Default::default(), checksum: None };
    UploadRef { bucket, key, upload: store.create_upload(request).await.unwrap() }
}

async fn part(store: &Store, target: &UploadRef, part_number: u16, bytes: &[u8]) -> PartResult {
    let part = UploadPart { target: target.clone(), part_number };
    store.upload_part(part, ObjectBody::from_bytes(bytes.to_vec().into())).await.unwrap()
}

async fn copied(store: &Store, target: &UploadRef, part_number: u16, from: &str, range: Option<RangeRequest>) -> Etag {
    let source =
        CopySource { bucket: bucket("bucket"), key: key(from), version: None, conditions: ReadConditions::default() };
    let request = UploadPartCopy { target: target.clone(), part_number, source, range: range.map(between) };
    store.upload_part_copy(request).await.unwrap().etag
}

fn between(range: RangeRequest) -> gabion_store::ByteRange {
    range.resolve(u64::MAX).unwrap().unwrap()
}

async fn complete(store: &Store, target: &UploadRef, etags: &[&Etag]) -> PutResult {
    let parts = etags.iter().zip(1..);
    let named = |(etag, part_number): (&&Etag, u16)| CompletedPart {
        part_number,
        etag: etag.to_string(),
        checksums: Vec::new(),
    };
    complete_parts(store, target, parts.map(named).collect()).await
}

async fn complete_parts(store: &Store, target: &UploadRef, parts: Vec<CompletedPart>) -> PutResult {
    let request = complete_request(target.clone(), parts);
    store.complete_upload(request).await.unwrap()
}

async fn tags(store: &Store) -> Vec<(String, Etag)> {
    list_all(store, "bucket").await.entries.into_iter().map(|entry| (entry.key, entry.etag)).collect()
}

#[tokio::test]
async fn a_crc_is_the_tag_of_bodies_uploads_and_copies_and_stays_so() {
    let (mut world, store) = fresh(1, (2, 1)).await;
    let mut store = set(&mut world, store, EtagKind::Crc64Nvme).await;
    let mut expected = Vec::new();
    for size in SIZES {
        // Shares segments with the rest, and dies.
        put(&store, "bucket", "filler", &bytes(1, 300_000)).await;
        let (body, name) = (bytes(size as u64, size), format!("size {size:07}"));
        let put = put(&store, "bucket", &name, &body).await;
        assert_eq!((put.etag.clone(), put.parts_count), (crc_tag(&body), None), "{size}");
        let copy = store.copy_object(copy_request(&name, &format!("copy {size:07}"))).await.unwrap();
        assert_eq!(copy.etag, put.etag);
        expected.push((format!("copy {size:07}"), put.etag.clone()));
        expected.push((name, put.etag));
    }
    let target = begin(&store, "upload").await;
    let bodies = [bytes(1, 4096), bytes(2, 2_500_000), bytes(3, 10)];
    let mut etags = Vec::new();
    for (body, part_number) in bodies.iter().zip(1..) {
        put(&store, "bucket", "filler", &bytes(1, 300_000)).await;
        etags.push(part(&store, &target, part_number, body).await.etag);
        assert_eq!(etags.last(), Some(&crc_tag(body)));
    }
    let listed = store.list_parts(ListParts { target: target.clone(), after: 0, max: 10 }).await.unwrap();
    assert_eq!(listed.parts.into_iter().map(|part| part.etag).collect::<Vec<_>>(), etags);
    // One stays open: its rows are rebuilt and moved as those of objects are.
    let open = begin(&store, "open").await;
    part(&store, &open, 1, &bodies[0]).await;
    let whole = Etag::Crc64 { crc64: crc64(&bodies.concat()), parts: 3 };
    let done = complete(&store, &target, &etags.iter().collect::<Vec<_>>()).await;
    assert_eq!((&done.etag, done.parts_count), (&whole, Some(3)));
    assert_eq!(whole.to_string(), format!("{:016x}-3", crc64(&bodies.concat())));
    let copy = store.copy_object(copy_request("upload", "copy of upload")).await.unwrap();
    assert_eq!((&copy.etag, copy.parts_count), (&whole, Some(3)));
    expected.extend([("upload".to_owned(), whole.clone()), ("copy of upload".to_owned(), whole)]);
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    delete(&store, "bucket", "filler").await;
    assert_eq!(tags(&store).await, expected);

    store = check_rebuild(&mut world, store).await;
    assert_eq!(tags(&store).await, expected);
    let compacted = store.compact().await.unwrap();
    assert!(compacted.rows_moved > SIZES.len() as u64 && compacted.rows_failed == 0, "{compacted:?}");
    store = check_rebuild(&mut world, store).await;
    assert_eq!(tags(&store).await, expected);
    let listed = store.list_parts(ListParts { target: open.clone(), after: 0, max: 10 }).await.unwrap();
    assert_eq!(listed.parts[0].etag, crc_tag(&bodies[0]));
    // What is stored keeps its tag when the setting changes.
    store = set(&mut world, store, EtagKind::Md5).await;
    assert_eq!(store.copy_object(copy_request("upload", "later")).await.unwrap().etag, done.etag);
    assert_eq!(put(&store, "bucket", "new", &bodies[0]).await.etag, Etag::Md5(md5(&bodies[0])));
}

#[tokio::test]
async fn conditions_take_crcs() {
    let (mut world, store) = fresh(2, (1, 0)).await;
    let store = set(&mut world, store, EtagKind::Crc64Nvme).await;
    let (first, second) = (bytes(1, 100), bytes(2, 100));
    put(&store, "bucket", "key", &first).await;
    let tag = crc_tag(&first).to_string();
    let request = |tag: &str| {
        let mut request = put_request("bucket", "key");
        request.conditions.if_match = Some(EtagMatch::parse(&format!("\"{tag}\"")));
        request
    };
    let bare = tag.strip_suffix("-1").unwrap();
    for other in [bare, &crc_tag(&second).to_string(), &Etag::Md5(md5(&first)).to_string()] {
        let refused = store.put_object(request(other), ObjectBody::from_bytes(second.clone())).await;
        assert!(matches!(refused, Err(StoreError::PreconditionFailed("If-Match"))), "{other}");
    }
    store.put_object(request(&tag), ObjectBody::from_bytes(second.clone())).await.unwrap();
    assert_eq!(get(&store, "bucket", "key").await.unwrap(), second);
}

#[tokio::test]
async fn an_md5_that_the_client_sends_is_verified_all_the_same() {
    let (mut world, store) = fresh(3, (1, 0)).await;
    let store = set(&mut world, store, EtagKind::Crc64Nvme).await;
    for size in SIZES {
        let bytes = bytes(7, size);
        let body = |content_md5| ObjectBody { content_md5: Some(content_md5), ..ObjectBody::from_bytes(bytes.clone()) };
        let wrong = store.put_object(put_request("bucket", "key"), body([0; 16])).await;
        assert!(matches!(wrong, Err(StoreError::BadDigest(DigestKind::Md5))), "{size}");
        let right = store.put_object(put_request("bucket", "key"), body(md5(&bytes))).await.unwrap();
        assert_eq!(right.etag, crc_tag(&bytes), "{size}");
    }
    let cut = ObjectBody {
        stream: Box::new(futures::stream::iter([Err(BodyError::Incomplete)])),
        ..ObjectBody::from_bytes(bytes(1, 10))
    };
    assert!(matches!(store.put_object(put_request("bucket", "cut"), cut).await, Err(StoreError::Body(_))));
}

#[tokio::test]
async fn a_completion_of_parts_with_both_kinds_of_tag_has_the_crc_of_the_whole() {
    let (mut world, mut store) = fresh(4, (2, 1)).await;
    let bodies = [bytes(1, 2_500_000), bytes(2, 4096), bytes(3, 100)];
    for (first, second) in [(EtagKind::Md5, EtagKind::Crc64Nvme), (EtagKind::Crc64Nvme, EtagKind::Md5)] {
        store = set(&mut world, store, first).await;
        let target = begin(&store, "mixed").await;
        let one = part(&store, &target, 1, &bodies[0]).await.etag;
        let two = part(&store, &target, 2, &bodies[1]).await.etag;
        store = set(&mut world, store, second).await;
        let three = part(&store, &target, 3, &bodies[2]).await.etag;
        let of = |kind, body: &[u8]| match kind {
            EtagKind::Md5 => Etag::Md5(md5(body)),
            EtagKind::Crc64Nvme => crc_tag(body),
        };
        let expected = [of(first, &bodies[0]), of(first, &bodies[1]), of(second, &bodies[2])];
        assert_eq!([&one, &two, &three], expected.each_ref());
        let done = complete(&store, &target, &[&one, &two, &three]).await;
        assert_eq!(done.etag, Etag::Crc64 { crc64: crc64(&bodies.concat()), parts: 3 });
        assert_eq!(get(&store, "bucket", "mixed").await.unwrap(), bodies.concat());
        store = check_rebuild(&mut world, store).await;
        assert_eq!(tags(&store).await, [("mixed".to_owned(), done.etag)]);
    }
    // Parts that all have an MD5 make what they always made.
    store = set(&mut world, store, EtagKind::Md5).await;
    let target = begin(&store, "md5").await;
    let one = part(&store, &target, 1, &bodies[0]).await.etag;
    let two = part(&store, &target, 2, &bodies[1]).await.etag;
    store = set(&mut world, store, EtagKind::Crc64Nvme).await;
    let md5s = [md5(&bodies[0]), md5(&bodies[1])].concat();
    assert_eq!(complete(&store, &target, &[&one, &two]).await.etag, Etag::Multipart(md5(&md5s), 2));
}

/// Has one key, the site's.
struct OneKey;

impl KeyKeeper for OneKey {
    fn wrapping_key<'a>(
        &'a self,
        _: EncryptionScheme,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<WrappingKey, KeyError>> {
        let key = SecretKey::filled(|key| key.fill(1));
        Box::pin(async { Ok(WrappingKey { id: "site".into(), key, service_key: Vec::new() }) })
    }

    fn key_of<'a>(&'a self, _: &'a Encryption) -> BoxFuture<'a, Result<SecretKey, KeyError>> {
        Box::pin(async { Ok(SecretKey::filled(|key| key.fill(1))) })
    }

    fn is_same(&self, one: &str, other: &str) -> bool {
        one == other
    }
}

/// The CRC that the log has of sealed bytes is not that of the object's.
#[tokio::test]
async fn encrypted_parts_with_both_kinds_of_tag_have_the_crc_of_what_clients_know() {
    let (mut world, mut store) = fresh(6, (2, 1)).await;
    let bodies = [bytes(1, 2_500_000), bytes(2, 4096)];
    let encrypt = Encrypt::by(EncryptionScheme::Master);
    for checksum in [None, Some((ChecksumAlgorithm::Sha256, None))] {
        for (first, second) in [(EtagKind::Md5, EtagKind::Crc64Nvme), (EtagKind::Crc64Nvme, EtagKind::Md5)] {
            store = set(&mut world, store, first).await;
            store.keep_keys(Arc::new(OneKey));
            let (bucket, key) = (bucket("bucket"), key("k"));
            let request =
                CreateUpload { bucket: bucket.clone(), key: key.clone(), attributes: Default::default(), checksum };
            let upload = store.create_encrypted_upload(request, Some(&encrypt)).await.unwrap().upload;
            let target = UploadRef { bucket, key, upload };
            let compute: Vec<_> = checksum.iter().map(|(algorithm, _)| *algorithm).collect();
            let mut parts = Vec::new();
            let mut tags = Vec::new();
            for (part_number, body) in (1_u16..).zip(&bodies) {
                let part = UploadPart { target: target.clone(), part_number };
                let body = ObjectBody { compute: compute.clone(), ..ObjectBody::from_bytes(body.clone()) };
                let put = store.upload_part(part, body).await.unwrap();
                match &put.etag {
                    Etag::Md5(md5) => tags.extend_from_slice(md5),
                    Etag::Crc64 { crc64, .. } => tags.extend_from_slice(&crc64.to_be_bytes()),
                    other => panic!("{other}"),
                }
                let shown = put.checksums.iter().filter(|_| checksum.is_some());
                let checksums = shown.filter_map(|it| Checksum::new(ChecksumAlgorithm::Sha256, &it.value).ok());
                let (etag, checksums) = (put.etag.to_string(), checksums.collect());
                parts.push(CompletedPart { part_number, etag, checksums });
                store = set(&mut world, store, second).await;
                store.keep_keys(Arc::new(OneKey));
            }
            let done = complete_parts(&store, &target, parts).await;
            let expected = match checksum {
                None => Etag::Crc64 { crc64: crc64(&bodies.concat()), parts: 2 },
                // Nobody knows it of the one that has an MD5.
                Some(_) => Etag::Multipart(md5(&tags), 2),
            };
            assert_eq!(done.etag, expected, "{checksum:?} {first:?}");
            assert_eq!(get(&store, "bucket", "k").await.unwrap(), bodies.concat());
        }
    }
}

/// The tag takes a CRC of what is encrypted that nobody asked for.
#[tokio::test]
async fn encrypted_bodies_have_the_checksums_that_were_asked_for() {
    let (mut world, store) = fresh(8, (2, 1)).await;
    let store = set(&mut world, store, EtagKind::Crc64Nvme).await;
    store.keep_keys(Arc::new(OneKey));
    let body = bytes(1, 1000);
    for (compute, kept) in [
        (vec![ChecksumAlgorithm::Sha256], vec![ChecksumAlgorithm::Sha256]),
        (vec![], vec![ChecksumAlgorithm::Crc64Nvme]),
        (vec![ChecksumAlgorithm::Crc64Nvme], vec![ChecksumAlgorithm::Crc64Nvme]),
    ] {
        let encrypt = Some(Box::new(Encrypt::by(EncryptionScheme::Master)));
        let body = ObjectBody { compute, encrypt, ..ObjectBody::from_bytes(body.clone()) };
        let put = store.put_object(put_request("bucket", "k"), body).await.unwrap();
        let has: Vec<_> = put.checksums.iter().map(|it| it.algorithm).collect();
        assert_eq!(has, kept.iter().map(|algorithm| algorithm.index()).collect::<Vec<_>>());
        assert_eq!(put.etag, crc_tag(&bytes(1, 1000)));
    }
}

#[tokio::test]
async fn what_is_appended_to_renamed_and_kept_in_versions_has_a_crc() {
    let (mut world, store) = fresh(7, (2, 1)).await;
    let mut store = set(&mut world, store, EtagKind::Crc64Nvme).await;
    let mut whole = bytes(1, 3000).to_vec();
    put(&store, "bucket", "k", &whole.clone().into()).await;
    for (count, size) in [(2, 10), (3, 1_400_000), (4, 0)] {
        let more = bytes(size as u64, size);
        let put = append(&store, "k", whole.len() as u64, &more).await.unwrap();
        whole.extend_from_slice(&more);
        assert_eq!(put.etag, Etag::Crc64 { crc64: crc64(&whole), parts: count });
    }
    let expected = Etag::Crc64 { crc64: crc64(&whole), parts: 4 };
    store.rename_object(rename_request("k", "renamed")).await.unwrap();
    assert_eq!(tags(&store).await, [("renamed".to_owned(), expected.clone())]);
    store = check_rebuild(&mut world, store).await;
    assert_eq!(tags(&store).await, [("renamed".to_owned(), expected)]);
    assert_eq!(get(&store, "bucket", "renamed").await.unwrap(), whole);
    // With an MD5 before, an append takes the tag that the setting says.
    store = set(&mut world, store, EtagKind::Md5).await;
    put(&store, "bucket", "md5", &bytes(1, 100)).await;
    store = set(&mut world, store, EtagKind::Crc64Nvme).await;
    let put = append(&store, "md5", 100, &bytes(2, 100)).await.unwrap();
    let both = [bytes(1, 100), bytes(2, 100)].concat();
    assert_eq!(put.etag, Etag::Crc64 { crc64: crc64(&both), parts: 2 });
}

#[tokio::test]
async fn copied_parts_have_the_tag_that_the_setting_says() {
    let (mut world, mut store) = fresh(5, (2, 1)).await;
    let body = bytes(1, 2_500_000);
    put(&store, "bucket", "md5", &body).await;
    store = set(&mut world, store, EtagKind::Crc64Nvme).await;
    put(&store, "bucket", "crc", &body).await;
    let other = ObjectBody { compute: vec![ChecksumAlgorithm::Sha256], ..ObjectBody::from_bytes(body.clone()) };
    store.put_object(put_request("bucket", "sha"), other).await.unwrap();
    let range = Some(RangeRequest::Between(5, 1_500_000));
    for (kind, whole, cut) in [
        (EtagKind::Crc64Nvme, crc_tag(&body), crc_tag(&body[5..=1_500_000])),
        (EtagKind::Md5, Etag::Md5(md5(&body)), Etag::Md5(md5(&body[5..=1_500_000]))),
    ] {
        store = set(&mut world, store, kind).await;
        for from in ["md5", "crc", "sha"] {
            let target = begin(&store, "target").await;
            assert_eq!(copied(&store, &target, 1, from, None).await, whole, "{from} {kind:?}");
            assert_eq!(copied(&store, &target, 2, from, range).await, cut, "{from} {kind:?}");
            complete(&store, &target, &[&whole, &cut]).await;
            let expected = [&body[..], &body[5..=1_500_000]].concat();
            assert_eq!(get(&store, "bucket", "target").await.unwrap(), expected);
        }
    }
}
