//! Quotas of buckets, accounts and users.

use std::sync::Arc;

use bytes::Bytes;
use gabion_store::{
    Attributes, CompletedPart, ConfigScope, Configs, CopyObject, CreateUpload, DeleteObject, Holder, Limit, Limits,
    ObjectBody, PartResult, PutObject, QuotaKeeper, Store, StoreError, UploadPart, UploadRef, VERSIONING, VersionId,
};
use parking_lot::Mutex;

use crate::harness::{truth::check_counters, *};

/// The same limits for everything.
#[derive(Default)]
struct Keeper(Mutex<Limits>);

impl QuotaKeeper for Keeper {
    fn limits(&self, _: &Configs, _: Option<&str>) -> Result<Limits, StoreError> {
        Ok(*self.0.lock())
    }
}

impl Keeper {
    fn of(store: &Store) -> Arc<Self> {
        let keeper = Arc::new(Self::default());
        store.set_quota_keeper(Arc::clone(&keeper) as _);
        keeper
    }

    fn set(&self, limits: Limits) {
        *self.0.lock() = limits;
    }
}

const NONE: Limit = Limit { bytes: None, objects: None };

fn bytes_of(bytes: u64) -> Limit {
    Limit { bytes: Some(bytes), ..NONE }
}

fn by(creator: &str) -> Attributes {
    Attributes { creator: Some(creator.into()), ..Attributes::default() }
}

async fn put_by(store: &Store, at: &str, creator: &str, len: usize) -> Result<(), StoreError> {
    let (bucket, name) = at.split_once('/').unwrap();
    let request = PutObject { attributes: by(creator), ..put_request(bucket, name) };
    store.put_object(request, ObjectBody::from_bytes(bytes(1, len))).await.map(drop)
}

async fn begin_by(store: &Store, name: &str, creator: &str) -> UploadRef {
    let (bucket, key) = (bucket("bucket"), key(name));
    let request = CreateUpload { bucket: bucket.clone(), key: key.clone(), attributes: by(creator), checksum: None };
    UploadRef { bucket, key, upload: store.create_upload(request).await.unwrap() }
}

async fn part(store: &Store, target: &UploadRef, part_number: u16, len: usize) -> Result<PartResult, StoreError> {
    let part = UploadPart { target: target.clone(), part_number };
    store.upload_part(part, ObjectBody::from_bytes(bytes(part_number.into(), len))).await
}

async fn complete(store: &Store, target: &UploadRef, parts: &[(u16, &PartResult)]) -> Result<(), StoreError> {
    let named = |(part_number, part): &(u16, &PartResult)| CompletedPart {
        part_number: *part_number,
        etag: part.etag.to_string(),
        checksums: Vec::new(),
    };
    let request = complete_request(target.clone(), parts.iter().map(named).collect());
    store.complete_upload(request).await.map(drop)
}

fn holding(store: &Store, holder: &Holder) -> (u64, u64, u64, u64) {
    let held = store.holding(holder).unwrap();
    (held.objects, held.bytes, held.parts, held.part_bytes)
}

fn of_bucket(name: &str) -> Holder {
    Holder::Bucket(bucket(name))
}

fn of_user(id: &str) -> Holder {
    Holder::User(id.into())
}

fn exceeded<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::QuotaExceeded)), "{result:?}");
}

/// However many write at once, exactly as many get in as there is room for, and the rest are told.
#[tokio::test]
async fn writers_at_once_never_go_over_a_quota() {
    let world = World::new(1, config(2, 1));
    let store = world.open().await;
    let keeper = Keeper::of(&store);
    store.create_bucket(bucket("one"), None).await.unwrap();
    store.create_bucket(bucket("two"), None).await.unwrap();
    let limits = |bucket, account, user| Limits { bucket, account, user };
    let objects = Limit { objects: Some(7), ..NONE };
    // Of 40 objects of 100 bytes, in turn to two buckets: limits, and how many get in.
    let table = [
        (limits(bytes_of(1099), NONE, NONE), 20),
        (limits(NONE, bytes_of(1099), NONE), 10),
        (limits(NONE, NONE, bytes_of(1100)), 11),
        (limits(objects, NONE, NONE), 14),
        (limits(NONE, objects, bytes_of(1100)), 7),
        (Limits::default(), 40),
    ];
    for (round, (limits, expected)) in table.into_iter().enumerate() {
        keeper.set(limits);
        let user = format!("user {round}");
        let refused_before = store.metrics().quota_refusals.get();
        let puts = (0..40).map(|i| {
            let at = format!("{}/{round} {i}", if i % 2 == 0 { "one" } else { "two" });
            let (store, user) = (store.clone(), user.clone());
            tokio::spawn(async move { put_by(&store, &at, &user, 100).await })
        });
        let puts = futures::future::join_all(puts).await;
        let stored = puts.iter().filter(|put| put.as_ref().unwrap().is_ok()).count();
        assert_eq!(stored, expected, "{limits:?}");
        assert_eq!(holding(&store, &of_user(&user)), (stored as u64, stored as u64 * 100, 0, 0));
        puts.into_iter().map(Result::unwrap).filter(Result::is_err).for_each(exceeded);
        assert_eq!(store.metrics().quota_refusals.get() - refused_before, 40 - stored as u64);
        for name in keys(&store, "one").await {
            delete(&store, "one", &name).await;
        }
        for name in keys(&store, "two").await {
            delete(&store, "two", &name).await;
        }
        assert_eq!(holding(&store, &Holder::Account(store.owner().id.clone())), (0, 0, 0, 0));
    }
    store.shutdown().await;
    check_counters(&world.index.current.lock());
}

#[tokio::test]
async fn what_is_replaced_or_deleted_makes_room() {
    let world = World::new(2, config(2, 1));
    let store = world.open().await;
    let keeper = Keeper::of(&store);
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let limits = Limits { bucket: Limit { bytes: Some(100), objects: Some(2) }, ..Limits::default() };
    keeper.set(limits);
    put_by(&store, "bucket/a", "one", 60).await.unwrap();
    exceeded(put_by(&store, "bucket/b", "one", 41).await);
    put_by(&store, "bucket/b", "one", 40).await.unwrap();
    exceeded(put_by(&store, "bucket/c", "one", 0).await);
    exceeded(put_by(&store, "bucket/a", "one", 61).await);
    put_by(&store, "bucket/a", "two", 60).await.unwrap();
    assert_eq!(holding(&store, &of_user("one")), (1, 40, 0, 0));
    assert_eq!(holding(&store, &of_user("two")), (1, 60, 0, 0));
    // A limit that was lowered takes nothing away, and what needs less is let in.
    keeper.set(Limits { bucket: Limit { bytes: Some(10), objects: Some(1) }, ..Limits::default() });
    put_by(&store, "bucket/a", "two", 50).await.unwrap();
    exceeded(put_by(&store, "bucket/a", "two", 51).await);
    // Another user's object makes no room for him.
    keeper.set(Limits { user: bytes_of(60), ..Limits::default() });
    exceeded(put_by(&store, "bucket/b", "two", 20).await);
    keeper.set(limits);
    delete(&store, "bucket", "a").await;
    // Copies belong to who makes them.
    store.copy_object(CopyObject { creator: Some("two".into()), ..copy_request("b", "c") }).await.unwrap();
    exceeded(store.copy_object(copy_request("b", "d")).await);
    assert_eq!(holding(&store, &of_user("two")), (1, 40, 0, 0));
    store.check_room(&bucket("bucket"), &key("c"), None, 60).unwrap();
    exceeded(store.check_room(&bucket("bucket"), &key("c"), None, 61));
    store.shutdown().await;
    check_counters(&world.index.current.lock());
}

/// It may be there after the next start: its room is taken, and nobody waits for it.
#[tokio::test]
async fn what_may_take_effect_later_takes_room_and_holds_up_nobody() {
    let mut world = World::new(12, config(1, 0));
    let store = world.open().await;
    let keeper = Keeper::of(&store);
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    keeper.set(Limits { bucket: bytes_of(100), ..Limits::default() });
    world.disks[0].fail_writes(1, std::io::ErrorKind::Other);
    let outcome = put_by(&store, "bucket/a", "one", 60).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    // As long as there is no target, nothing is written: nothing can take effect.
    for _ in 0..3 {
        let outcome = put_by(&store, "bucket/b", "one", 40).await;
        assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    }
    world.clock.advance(std::time::Duration::from_secs(60));
    let put = put_by(&store, "bucket/b", "one", 41);
    exceeded(tokio::time::timeout(std::time::Duration::from_secs(60), put).await.expect("it waits for nobody"));
    put_by(&store, "bucket/b", "one", 40).await.unwrap();
    let store = world.restart(store).await;
    Keeper::of(&store).set(Limits { bucket: bytes_of(100), ..Limits::default() });
    let (objects, held, ..) = holding(&store, &of_bucket("bucket"));
    assert!((objects, held) == (1, 40) || (objects, held) == (2, 100), "{objects} {held}");
    // Now it is known.
    exceeded(put_by(&store, "bucket/c", "one", 101 - held as usize).await);
    put_by(&store, "bucket/c", "one", 100 - held as usize).await.unwrap();
    store.shutdown().await;
    check_counters(&world.index.current.lock());
}

#[tokio::test]
async fn all_versions_count() {
    let world = World::new(3, config(2, 1));
    let store = world.open().await;
    let keeper = Keeper::of(&store);
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    put_by(&store, "bucket/a", "one", 10).await.unwrap();
    let scope = || ConfigScope::Bucket(bucket("bucket"));
    store.put_config(scope(), VERSIONING, Bytes::from_static(b"Enabled")).await.unwrap();
    keeper.set(Limits { bucket: bytes_of(30), user: Limit { objects: Some(3), ..NONE }, ..Limits::default() });
    put_by(&store, "bucket/a", "one", 10).await.unwrap();
    exceeded(put_by(&store, "bucket/a", "one", 11).await);
    // A delete marker is no object and takes nothing away.
    delete(&store, "bucket", "a").await;
    assert_eq!(holding(&store, &of_bucket("bucket")), (2, 20, 0, 0));
    put_by(&store, "bucket/a", "one", 10).await.unwrap();
    exceeded(put_by(&store, "bucket/a", "one", 0).await);
    // Where versions are suspended only the null version is replaced.
    store.put_config(scope(), VERSIONING, Bytes::from_static(b"Suspended")).await.unwrap();
    put_by(&store, "bucket/a", "one", 10).await.unwrap();
    exceeded(put_by(&store, "bucket/a", "one", 11).await);
    let null = DeleteObject { version: Some(VersionId::Null), ..DeleteObject::current(key("a")) };
    store.delete_object(bucket("bucket"), null).await.unwrap();
    assert_eq!(holding(&store, &of_user("one")), (2, 20, 0, 0));
    store.shutdown().await;
    check_counters(&world.index.current.lock());
}

#[tokio::test]
async fn parts_count_until_they_are_an_object() {
    let mut world = World::new(4, config(2, 1));
    let mut store = world.open().await;
    let mut keeper = Keeper::of(&store);
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let limits = Limits { bucket: Limit { bytes: Some(100), objects: Some(1) }, user: bytes_of(90), account: NONE };
    keeper.set(limits);
    let upload = begin_by(&store, "a", "one").await;
    let first = part(&store, &upload, 1, 50).await.unwrap();
    exceeded(part(&store, &upload, 2, 41).await);
    exceeded(store.check_part_room(&UploadPart { target: upload.clone(), part_number: 2 }, 41));
    let second = part(&store, &upload, 2, 30).await.unwrap();
    // The part of a number makes room for its successor.
    let first = match part(&store, &upload, 1, 60).await {
        Ok(again) => again,
        Err(error) => panic!("{error} instead of what takes the place of {first:?}"),
    };
    exceeded(put_by(&store, "bucket/b", "two", 11).await);
    for round in 0..2 {
        assert_eq!(holding(&store, &of_bucket("bucket")), (0, 0, 2, 90), "{round}");
        assert_eq!(holding(&store, &of_user("one")), (0, 0, 2, 90));
        world.lose_index();
        store = world.crash_and_open(store, 0).await;
        keeper = Keeper::of(&store);
        keeper.set(limits);
    }
    complete(&store, &upload, &[(1, &first), (2, &second)]).await.unwrap();
    assert_eq!(holding(&store, &of_bucket("bucket")), (1, 90, 0, 0));
    assert_eq!(holding(&store, &of_user("one")), (1, 90, 0, 0));
    // It brings an object, if not bytes.
    let upload = begin_by(&store, "c", "two").await;
    let only = part(&store, &upload, 1, 10).await.unwrap();
    exceeded(complete(&store, &upload, &[(1, &only)]).await);
    store.abort_upload(upload).await.unwrap();
    let upload = begin_by(&store, "a", "two").await;
    let only = part(&store, &upload, 1, 10).await.unwrap();
    complete(&store, &upload, &[(1, &only)]).await.unwrap();
    assert_eq!((holding(&store, &of_user("one")), holding(&store, &of_user("two"))), ((0, 0, 0, 0), (1, 10, 0, 0)));
    store.shutdown().await;
    check_counters(&world.index.current.lock());
}

/// What was counted is what a rebuild counts, wherever compaction has moved it.
#[tokio::test]
async fn counters_survive_compaction_and_the_loss_of_the_index() {
    let mut world = World::new(5, config(2, 1));
    let mut store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for i in 0..40 {
        put_by(&store, &format!("bucket/{i:02}"), ["one", "two"][i % 2], 40_000 + i).await.unwrap();
    }
    let upload = begin_by(&store, "upload", "one").await;
    part(&store, &upload, 1, 30_000).await.unwrap();
    for i in (0..40).filter(|i| i % 4 < 2) {
        delete(&store, "bucket", &format!("{i:02}")).await;
    }
    put_object_tags(&store, bucket("bucket"), key("02"), vec![("a".into(), "b".into())]).await.unwrap();
    store = world.restart(store).await;
    assert!(store.compact().await.unwrap().rows_moved > 0);
    let expected = [of_user("one"), of_user("two"), of_bucket("bucket")];
    let expected = expected.map(|holder| (holding(&store, &holder), holder));
    assert_eq!(expected[0].0.0 + expected[1].0.0, 20);
    assert_eq!(expected[0].0.3, 30_000);
    world.lose_index();
    store = world.crash_and_open(store, 0).await;
    for (before, holder) in expected {
        assert_eq!(holding(&store, &holder), before, "{holder:?}");
    }
    store.shutdown().await;
    check_counters(&world.index.current.lock());
}

/// What an account holds is added up once, and again when a bucket of its own comes or goes: not for those of others, nor for one that compaction moves.
#[tokio::test]
async fn buckets_of_others_do_not_have_an_account_added_up_again() {
    const OTHERS: usize = 20;
    let (mut world, mut store) = compacting(6).await;
    let create = async |store: &Store, name: String| {
        store.create_bucket_of(bucket(&name), None, "somebody else".into(), Vec::new()).await.unwrap();
    };
    for number in 0..OTHERS {
        create(&store, format!("other-{number}")).await;
    }
    put(&store, "bucket", "filler", &bytes(1, 100_000)).await;
    delete(&store, "bucket", "filler").await;
    store = world.restart(store).await;
    let limits = Limits { account: bytes_of(100), ..Limits::default() };
    Keeper::of(&store).set(limits);
    put_by(&store, "bucket/a", "one", 10).await.unwrap();
    let scanned = || world.index.scanned.count();
    // It counts for the account, whatever that costs.
    let put_and_count = async |at: &str, len: usize| {
        let before = scanned();
        put_by(&store, at, "one", len).await.unwrap();
        scanned() - before
    };
    assert_eq!(put_and_count("bucket/b", 10).await, 0);
    create(&store, "other".into()).await;
    store.delete_bucket(&bucket("other-0")).await.unwrap();
    assert_eq!(put_and_count("bucket/c", 10).await, 0);
    assert!(store.compact().await.unwrap().rows_moved as usize >= OTHERS);
    assert_eq!(put_and_count("bucket/d", 10).await, 0);
    store.create_bucket(bucket("mine"), None).await.unwrap();
    assert!(put_and_count("mine/a", 20).await as usize >= OTHERS);
    assert_eq!(put_and_count("mine/b", 10).await, 0);
    let account = Holder::Account(store.owner().id.clone());
    assert_eq!(holding(&store, &account), (6, 70, 0, 0));
    exceeded(put_by(&store, "bucket/e", "one", 31).await);
    for name in ["a", "b"] {
        delete(&store, "mine", name).await;
    }
    store.delete_bucket(&bucket("mine")).await.unwrap();
    assert_eq!(holding(&store, &account), (4, 40, 0, 0));
    exceeded(put_by(&store, "bucket/e", "one", 61).await);
    // Somebody else's bucket of that name is none of his.
    create(&store, "mine".into()).await;
    put_by(&store, "mine/a", "two", 90).await.unwrap();
    assert_eq!(holding(&store, &account), (4, 40, 0, 0));
    put_by(&store, "bucket/e", "one", 60).await.unwrap();
}
