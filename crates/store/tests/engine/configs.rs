//! Documents that configure buckets and the site.

use bytes::Bytes;
use gabion_store::{CONFIG_BYTES_MAX, ConfigScope, Store, StoreError};

use crate::harness::{truth::check_counters, *};

fn scope(name: &str) -> ConfigScope {
    ConfigScope::Bucket(bucket(name))
}

async fn write(store: &Store, scope: ConfigScope, name: &str, document: &'static str) {
    store.put_config(scope, name, Bytes::from_static(document.as_bytes())).await.unwrap();
}

fn read(store: &Store, bucket_name: &str, name: &str) -> Option<String> {
    let configs = store.bucket_configs(&bucket(bucket_name)).unwrap();
    configs.get(name).map(|document| String::from_utf8(document.to_vec()).unwrap())
}

#[tokio::test]
async fn they_are_read_as_they_were_written() {
    let mut world = World::new(1, config(2, 1));
    let mut store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    store.create_bucket(bucket("bucket2"), None).await.unwrap();
    assert_eq!(read(&store, "bucket", "cors"), None);
    write(&store, scope("bucket"), "cors", "one").await;
    assert_eq!(read(&store, "bucket", "cors").as_deref(), Some("one"));
    write(&store, scope("bucket"), "cors", "two").await;
    write(&store, scope("bucket"), "policy", "p").await;
    write(&store, scope("bucket2"), "cors", "other").await;
    write(&store, ConfigScope::Site, "iam/user/a", "a").await;
    write(&store, ConfigScope::Site, "iam/user/b", "b").await;
    write(&store, ConfigScope::Site, "quota", "q").await;
    store.delete_config(scope("bucket"), "policy").await.unwrap();
    store.delete_config(scope("bucket"), "never").await.unwrap();
    for round in 0..3 {
        assert_eq!(read(&store, "bucket", "cors").as_deref(), Some("two"), "{round}");
        assert_eq!(read(&store, "bucket", "policy"), None);
        assert_eq!(read(&store, "bucket2", "cors").as_deref(), Some("other"));
        assert_eq!(store.site_config("quota").unwrap().unwrap(), "q");
        assert_eq!(store.site_config("iam/user").unwrap(), None);
        let users = store.list_site_configs("iam/", None, 10).unwrap();
        assert_eq!(users, [("iam/user/a".into(), "a".into()), ("iam/user/b".into(), "b".into())]);
        assert_eq!(store.list_site_configs("iam/", Some("iam/user/a"), 1).unwrap()[0].0, "iam/user/b");
        store = match round {
            0 => world.restart(store).await,
            _ => {
                world.lose_index();
                world.crash_and_open(store, 0).await
            }
        };
    }
    store.shutdown().await;
    check_counters(&world.index.current.lock());
}

/// Also after a crash at any moment: a bucket that is there has all of them, as they come with it in one record.
#[tokio::test]
async fn a_bucket_is_created_with_them() {
    let mut world = World::new(4, config(2, 1));
    world.config.compaction.live_ratio_max = 1.0;
    let mut store = world.open().await;
    let create = |store: &Store| {
        let (store, owner) = (store.clone(), store.owner().id.clone());
        let document = |text: &'static str| Bytes::from_static(text.as_bytes());
        let configs = vec![("cors", document("c")), ("acl", document("a")), ("lock", document("l"))];
        async move { store.create_bucket_of(bucket("bucket"), None, owner, configs).await }
    };
    create(&store).await.unwrap();
    assert!(matches!(create(&store).await, Err(StoreError::BucketAlreadyOwnedByYou)));
    write(&store, scope("bucket"), "acl", "changed").await;
    store.delete_config(scope("bucket"), "lock").await.unwrap();
    for round in 0..5 {
        let read = |name| read(&store, "bucket", name);
        assert_eq!(
            (read("cors"), read("acl"), read("lock")),
            (Some("c".into()), Some("changed".into()), None),
            "{round}"
        );
        store = match round {
            0 => world.restart(store).await,
            2 => {
                assert!(store.compact().await.unwrap().rows_moved > 1);
                world.restart(store).await
            }
            _ => {
                world.lose_index();
                world.crash_and_open(store, 0).await
            }
        };
        check_counters(&world.index.current.lock());
    }
    store.delete_bucket(&bucket("bucket")).await.unwrap();
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    world.lose_index();
    let store = world.crash_and_open(store, 0).await;
    assert_eq!(read(&store, "bucket", "cors"), None, "they went with the bucket that had them");
    let large = Bytes::from(vec![b'x'; CONFIG_BYTES_MAX]);
    let configs = vec![("cors", large), ("acl", Bytes::from_static(b"x"))];
    let refused = store.create_bucket_of(bucket("large"), None, "me".into(), configs).await;
    assert!(matches!(refused, Err(StoreError::InvalidRequest(_))));
    assert!(matches!(store.head_bucket(&bucket("large")).await, Err(StoreError::NoSuchBucket)));
    store.shutdown().await;
    check_counters(&world.index.current.lock());
}

#[tokio::test]
async fn they_end_with_their_bucket() {
    let mut world = World::new(2, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    write(&store, scope("bucket"), "policy", "old").await;
    store.delete_bucket(&bucket("bucket")).await.unwrap();
    assert_eq!(read(&store, "bucket", "policy"), None);
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    assert_eq!(read(&store, "bucket", "policy"), None);
    world.lose_index();
    let store = world.crash_and_open(store, 0).await;
    assert_eq!(read(&store, "bucket", "policy"), None, "also when all is read again");
    store.shutdown().await;
    check_counters(&world.index.current.lock());
}

#[tokio::test]
async fn what_can_not_be_is_refused() {
    let world = World::new(3, config(2, 1));
    let store = world.open().await;
    let document = Bytes::from_static(b"x");
    let error = store.put_config(scope("none"), "cors", document.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::NoSuchBucket));
    assert!(matches!(store.delete_config(scope("none"), "cors").await.unwrap_err(), StoreError::NoSuchBucket));
    assert_eq!(read(&store, "none", "cors"), None);
    let large = Bytes::from(vec![b'x'; CONFIG_BYTES_MAX + 1]);
    for (name, document) in [("", document.clone()), (&*"n".repeat(513), document), ("large", large)] {
        let error = store.put_config(ConfigScope::Site, name, document).await.unwrap_err();
        assert!(matches!(error, StoreError::InvalidRequest(_)), "{name}");
    }
    let largest = Bytes::from(vec![b'x'; CONFIG_BYTES_MAX]);
    store.put_config(ConfigScope::Site, &"n".repeat(512), largest.clone()).await.unwrap();
    assert_eq!(store.site_config(&"n".repeat(512)).unwrap().unwrap(), largest);
}
