//! Conditions where they meet the index: the rules themselves have tables in `conditions.rs` and `range.rs`.

use gabion_store::{EtagMatch, GetObject, ReadConditions, StoreError};

use crate::harness::*;

#[tokio::test]
async fn reads_are_conditional() {
    let world = World::new(1, config(1, 0));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let etag = put(&store, "bucket", "key", &bytes(1, 10)).await.etag;
    let request = |conditions| GetObject { conditions, ..GetObject::whole(bucket("bucket"), key("key")) };
    let none_match =
        ReadConditions { if_none_match: Some(EtagMatch::parse(&format!("\"{etag}\""))), ..ReadConditions::default() };
    for result in [store.get_object(request(none_match.clone())).await, store.head_object(&request(none_match))] {
        let Err(StoreError::NotModified(told)) = result else { unreachable!("{result:?}") };
        assert_eq!((&told.etag, told.modified_ms), (&etag, START_MS));
    }
    let other = ReadConditions { if_match: Some(EtagMatch::parse("\"other\"")), ..ReadConditions::default() };
    assert!(matches!(store.get_object(request(other)).await, Err(StoreError::PreconditionFailed("If-Match"))));
    let part = |part_number| GetObject { part_number: Some(part_number), ..request(ReadConditions::default()) };
    assert_eq!(read(&store, part(1)).await.unwrap(), bytes(1, 10));
    assert!(matches!(store.get_object(part(2)).await, Err(StoreError::InvalidPartNumber)));
}
