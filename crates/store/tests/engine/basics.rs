//! Buckets and objects, one at a time.

use gabion_store::{DeleteObject, Etag, GetObject, ListBuckets, Owner, RangeRequest, StoreError};

use crate::harness::*;

#[tokio::test]
async fn objects_of_every_size_come_back() {
    for (data, parity) in [(1, 0), (1, 1), (2, 1), (4, 2)] {
        let world = World::new(1, config(data, parity));
        let store = world.open().await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        let stripe = 2 * data * 65536;
        let sizes = [0, 1, 4096, 100_000, 200_000, 1 << 20, (1 << 20) + 1, stripe * 9, stripe * 9 + 7, 3_333_333];
        for (i, size) in sizes.into_iter().enumerate() {
            let body = bytes(i as u64, size);
            let put = put(&store, "bucket", &format!("key {i}"), &body).await;
            assert_eq!(put.size, size as u64);
        }
        for (i, size) in sizes.into_iter().enumerate() {
            let (name, body) = (format!("key {i}"), bytes(i as u64, size));
            assert_eq!(get(&store, "bucket", &name).await.unwrap(), body, "{data}+{parity} {size}");
            for (first, last) in [(0, 0), (size / 2, size / 2 + 100_000), (size / 3, size - size / 4)] {
                if first < size {
                    let range = RangeRequest::Between(first as u64, last as u64);
                    let expected = body.slice(first..(last + 1).min(size));
                    assert_eq!(get_range(&store, "bucket", &name, range).await.unwrap(), expected);
                }
            }
        }
        store.shutdown().await;
    }
}

#[tokio::test]
async fn head_says_what_put_said() {
    let world = World::new(2, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), Some("mars".into())).await.unwrap();
    let mut request = put_request("bucket", "key");
    request.attributes.content_type = Some("text/plain".into());
    request.attributes.storage_class = Some("STANDARD".into());
    request.attributes.user = vec![("a".into(), "b".into())];
    let body = gabion_store::ObjectBody::from_bytes("hello".into());
    let put = store.put_object(request, body).await.unwrap();
    assert_eq!(put.etag.to_string(), "5d41402abc4b2a76b9719d911017c592");
    assert!(matches!(put.etag, Etag::Md5(_)));
    let read = store.head_object(&GetObject::whole(bucket("bucket"), key("key"))).unwrap();
    assert_eq!((read.len, read.info.size, read.info.modified_ms), (5, 5, START_MS));
    assert_eq!(read.info.attributes.content_type.as_deref(), Some("text/plain"));
    assert_eq!(read.info.attributes.storage_class, None);
    assert_eq!(read.info.attributes.user, [("a".into(), "b".into())]);
    // The default checksum is CRC-64/NVME of the whole.
    assert_eq!(read.info.checksums, put.checksums);
    assert_eq!(put.checksums[0].value, gabion_erasure::crc64(b"hello").to_be_bytes());
    assert_eq!(store.head_bucket(&bucket("bucket")).await.unwrap().region, "mars");
}

/// A connection reads its next request into the memory that the body lay in.
#[tokio::test]
async fn nobody_has_a_body_any_more_when_it_is_stored() {
    let world = World::new(3, config(4, 2));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    // One at a time, and many that are taken together.
    for count in [1, 40] {
        let puts = (0..count).map(async |number| {
            let body = bytes(number, 4096);
            let stream = gabion_store::ObjectBody::from_bytes(body.clone());
            store.put_object(put_request("bucket", &format!("key {number}")), stream).await.unwrap();
            body.is_unique()
        });
        assert!(futures::future::join_all(puts).await.into_iter().all(|is_unique| is_unique), "{count}");
    }
}

/// What is applied to the index is applied one after the other, and by then the row cache is to have what each record replaces.
#[tokio::test]
async fn what_a_put_replaces_is_looked_for_before_it_is_queued() {
    let world = World::new(3, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for name in ["key", "key"] {
        let before = world.index.asked_for.count();
        let body = bytes(1, 4096);
        let mut put = std::pin::pin!(put(&store, "bucket", name, &body));
        // It waits for its lane, which runs on this thread, too.
        assert!(futures::poll!(put.as_mut()).is_pending());
        assert_eq!(world.index.asked_for.count() - before, 1);
        put.await;
    }
    store.shutdown().await;
}

/// A future is copied wherever it is handed on, and a request hands it on several times: what few of them have need of is boxed.
#[tokio::test]
async fn futures_of_requests_are_small() {
    let world = World::new(6, config(4, 2));
    let store = world.open().await;
    let put = store.put_object(put_request("bucket", "key"), gabion_store::ObjectBody::from_bytes("hello".into()));
    let get = store.get_object(GetObject::whole(bucket("bucket"), key("key")));
    let delete = store.delete_object(bucket("bucket"), DeleteObject::current(key("key")));
    let sizes = [size_of_val(&put), size_of_val(&get), size_of_val(&delete)];
    assert!(sizes.iter().zip([2600, 1800, 1900]).all(|(size, most)| *size <= most), "{sizes:?}");
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let world = World::new(3, config(1, 0));
    let store = world.open().await;
    assert!(matches!(get(&store, "bucket", "key").await, Err(StoreError::NoSuchBucket)));
    assert!(matches!(store.head_bucket(&bucket("bucket")).await, Err(StoreError::NoSuchBucket)));
    assert!(matches!(store.delete_bucket(&bucket("bucket")).await, Err(StoreError::NoSuchBucket)));
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let again = store.create_bucket(bucket("bucket"), None).await;
    assert!(matches!(again, Err(StoreError::BucketAlreadyOwnedByYou)));
    assert!(matches!(get(&store, "bucket", "key").await, Err(StoreError::NoSuchKey)));
    assert!(!delete(&store, "bucket", "key").await);
    put(&store, "bucket", "key", &bytes(1, 10)).await;
    assert!(matches!(store.delete_bucket(&bucket("bucket")).await, Err(StoreError::BucketNotEmpty)));
    let beyond = get_range(&store, "bucket", "key", RangeRequest::From(10)).await;
    assert!(matches!(beyond, Err(StoreError::InvalidRange { size: 10 })));
    assert!(delete(&store, "bucket", "key").await);
    assert!(!delete(&store, "bucket", "key").await);
    store.delete_bucket(&bucket("bucket")).await.unwrap();
    assert!(matches!(get(&store, "bucket", "key").await, Err(StoreError::NoSuchBucket)));
}

#[tokio::test]
async fn an_overwrite_replaces_and_a_delete_removes() {
    let world = World::new(4, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    for size in [10, 2_000_000, 20, 3_000_000] {
        put(&store, "bucket", "key", &bytes(size, size as usize)).await;
        assert_eq!(get(&store, "bucket", "key").await.unwrap(), bytes(size, size as usize));
        assert_eq!(keys(&store, "bucket").await, ["key"]);
    }
    delete(&store, "bucket", "key").await;
    assert!(keys(&store, "bucket").await.is_empty());
}

#[tokio::test]
async fn buckets_have_owners() {
    let world = World::new(6, config(1, 0));
    let store = world.open().await;
    store.create_bucket(bucket("first"), None).await.unwrap();
    store.set_owner(Owner { id: "deployment".into(), display_name: "d".into() });
    for (name, owner) in [("a-1", "one"), ("a-2", "two"), ("a-3", "one"), ("b-1", "one"), ("mine", "deployment")] {
        store.create_bucket_of(bucket(name), None, owner.into(), Vec::new()).await.unwrap();
    }
    let of = |owner: &'static str, after: Option<&str>, max| {
        let request = ListBuckets { prefix: None, after: after.map(str::to_owned), max, owner: Some(owner.into()) };
        let store = store.clone();
        async move {
            let page = store.list_buckets(request).await.unwrap();
            assert!(page.buckets.iter().all(|bucket| bucket.owner == owner));
            let names: Vec<String> = page.buckets.iter().map(|b| b.name.to_string()).collect();
            (names.join(" "), page.next)
        }
    };
    assert_eq!(of("one", None, 10).await, ("a-1 a-3 b-1".into(), None));
    assert_eq!(of("one", None, 2).await, ("a-1 a-3".into(), Some("a-3".into())));
    assert_eq!(of("one", Some("a-3"), 2).await, ("b-1".into(), None));
    assert_eq!(of("deployment", None, 10).await.0, "first mine", "also what was there before it was called so");
    assert_eq!(store.head_bucket(&bucket("a-2")).await.unwrap().owner, "two");
    let again = |owner: &str| store.create_bucket_of(bucket("a-1"), None, owner.into(), Vec::new());
    assert!(matches!(again("one").await, Err(StoreError::BucketAlreadyOwnedByYou)));
    assert!(matches!(again("two").await, Err(StoreError::BucketAlreadyExists)));
    let first = store.create_bucket_of(bucket("first"), None, "deployment".into(), Vec::new()).await;
    assert!(matches!(first, Err(StoreError::BucketAlreadyOwnedByYou)));
}

#[tokio::test]
async fn buckets_are_listed_in_pages() {
    let world = World::new(5, config(1, 0));
    let store = world.open().await;
    for name in ["a-1", "b-1", "b-2", "b-3", "c-1"] {
        store.create_bucket(bucket(name), None).await.unwrap();
    }
    let page = |prefix: Option<&str>, after: Option<&str>, max| {
        let request =
            ListBuckets { prefix: prefix.map(str::to_owned), after: after.map(str::to_owned), max, owner: None };
        let store = store.clone();
        async move {
            let page = store.list_buckets(request).await.unwrap();
            let names: Vec<String> = page.buckets.iter().map(|b| b.name.to_string()).collect();
            (names.join(" "), page.next)
        }
    };
    assert_eq!(page(None, None, 10).await, ("a-1 b-1 b-2 b-3 c-1".into(), None));
    assert_eq!(page(Some("b"), None, 2).await, ("b-1 b-2".into(), Some("b-2".into())));
    assert_eq!(page(Some("b"), Some("b-2"), 2).await, ("b-3".into(), None));
    assert_eq!(page(None, Some("b-3"), 1).await, ("c-1".into(), None));
    assert_eq!(page(Some("z"), None, 1).await, (String::new(), None));
}
