//! Many at once.

use futures::{channel::mpsc, future::join_all};
use gabion_store::{DeleteObject, EtagMatch, GetObject, ObjectBody, StoreError, WriteConditions};

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_that_want_to_be_first_exactly_one_is() {
    let world = World::new(1, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for round in 0..8 {
        let puts = (0..16_u64).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut request = put_request("bucket", &format!("key {round}"));
                request.conditions = WriteConditions { if_none_match: Some(EtagMatch::Any), if_match: None };
                let body = bytes(writer, if writer.is_multiple_of(4) { 1_100_000 } else { 500 });
                (writer, store.put_object(request, ObjectBody::from_bytes(body)).await)
            })
        });
        let outcomes: Vec<_> = join_all(puts).await.into_iter().map(Result::unwrap).collect();
        let winners: Vec<u64> = outcomes.iter().filter(|(_, put)| put.is_ok()).map(|(writer, _)| *writer).collect();
        assert_eq!(winners.len(), 1, "{outcomes:?}");
        for (writer, put) in outcomes {
            assert!(winners == [writer] || matches!(put, Err(StoreError::PreconditionFailed("If-None-Match"))));
        }
        let size = if winners[0].is_multiple_of(4) { 1_100_000 } else { 500 };
        assert_eq!(get(&store, "bucket", &format!("key {round}")).await.unwrap(), bytes(winners[0], size));
    }
    store.shutdown().await;
}

/// Who may write into a bucket is asked when a put begins; its body may be hours on its way.
#[tokio::test]
async fn a_put_that_was_begun_does_not_end_in_another_bucket_of_that_name() {
    let world = World::new(3, config(2, 1));
    let store = world.open().await;
    for size in [500, 1_100_000] {
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        let put = |key: &str| {
            let (send, receive) = mpsc::unbounded();
            let body = ObjectBody::from_stream(Box::pin(receive), Some(size as u64));
            (send, Box::pin(store.put_object(put_request("bucket", key), body)))
        };
        let (late, mut is_late) = put("late");
        assert!(futures::poll!(is_late.as_mut()).is_pending());
        store.delete_bucket(&bucket("bucket")).await.unwrap();
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        let (good, is_good) = put("good");
        for send in [late, good] {
            send.unbounded_send(Ok(bytes(1, size))).unwrap();
        }
        assert!(matches!(is_late.await, Err(StoreError::NoSuchBucket)), "{size}");
        is_good.await.unwrap();
        assert_eq!(keys(&store, "bucket").await, ["good"]);
        delete(&store, "bucket", "good").await;
        store.delete_bucket(&bucket("bucket")).await.unwrap();
    }
    store.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_writers_and_frees_do_not_disturb_each_other() {
    let world = World::new(2, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let body = |version: u64| bytes(version, if version.is_multiple_of(3) { 1_300_000 } else { 60_000 });
    put(&store, "bucket", "key", &body(0)).await;
    let etags: std::sync::Arc<Vec<_>> = std::sync::Arc::new((0..60).map(body).collect());
    let writer = tokio::spawn({
        let (store, bodies) = (store.clone(), etags.clone());
        async move {
            for version in &bodies[1..] {
                put(&store, "bucket", "key", version).await;
                store.free_dead_segments().await.unwrap();
            }
        }
    });
    let readers = (0..3).map(|_| {
        let (store, bodies) = (store.clone(), etags.clone());
        tokio::spawn(async move {
            for _ in 0..60 {
                let got = get(&store, "bucket", "key").await.unwrap();
                assert!(bodies.contains(&got), "a body that nobody wrote");
                tokio::task::yield_now().await;
            }
        })
    });
    for task in readers.chain([writer]).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    store.shutdown().await;
}

#[tokio::test]
async fn deletes_share_stripes() {
    let world = World::new(3, config(1, 0));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    join_all((0..200).map(|i| {
        let store = &store;
        async move { put(store, "bucket", &format!("{i}"), &bytes(i, 100)).await }
    }))
    .await;
    let before = store.log_metrics().small_stripes.get();
    let requests: Vec<_> = (0..201).map(|i| DeleteObject::current(key(&format!("{i}")))).collect();
    let deleted = store.delete_objects(bucket("bucket"), requests).await.unwrap();
    let existed: Vec<bool> = deleted.into_iter().map(|(_, deleted)| deleted.unwrap().existed).collect();
    assert_eq!(existed, [vec![true; 200], vec![false]].concat());
    assert!(store.log_metrics().small_stripes.get() - before <= 20);
    assert!(keys(&store, "bucket").await.is_empty());
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_stop_its_commit() {
    let world = World::new(4, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for polls in 1..40 {
        let name = format!("key {polls}");
        let put = store.put_object(put_request("bucket", &name), ObjectBody::from_bytes(bytes(polls, 3000)));
        let mut put = Box::pin(put);
        for _ in 0..polls {
            if futures::poll!(&mut put).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(put);
        // Whatever became of it, it did not get in the way of the next.
        put_and_check(&store, &name).await;
    }
    store.shutdown().await;
}

#[tokio::test]
async fn what_the_log_was_given_takes_effect_before_anyone_else_decides() {
    let world = World::new(6, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let only_if_new = || {
        let mut request = put_request("bucket", "key");
        request.conditions = WriteConditions { if_none_match: Some(EtagMatch::Any), if_match: None };
        store.put_object(request, ObjectBody::from_bytes(bytes(1, 3000)))
    };
    let mut first = Box::pin(only_if_new());
    assert!(futures::poll!(&mut first).is_pending());
    drop(first);
    assert!(matches!(only_if_new().await, Err(StoreError::PreconditionFailed("If-None-Match"))));
    let delete = || store.delete_object(bucket("bucket"), DeleteObject::current(key("key")));
    let mut first = Box::pin(delete());
    assert!(futures::poll!(&mut first).is_pending());
    drop(first);
    assert!(!delete().await.unwrap().existed);
    only_if_new().await.unwrap();
    store.shutdown().await;
}

async fn put_and_check(store: &gabion_store::Store, name: &str) {
    put(store, "bucket", name, &bytes(77, 10)).await;
    let head = store.head_object(&GetObject::whole(bucket("bucket"), key(name))).unwrap();
    assert_eq!(head.len, 10);
}

#[tokio::test]
async fn after_shutdown_nothing_is_taken() {
    let world = World::new(5, config(1, 0));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    store.shutdown().await;
    let put = store.put_object(put_request("bucket", "key"), ObjectBody::from_bytes(bytes(1, 10))).await;
    assert!(matches!(put, Err(StoreError::Unavailable(_))));
    assert!(store.status().unavailable.is_some());
}
