//! Keys of every table of the index: what is a key is the only one of what it stands for.
#![no_main]

use gabion_metadata::keys;
use gabion_types::{BucketName, ObjectKey};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(bucket) = keys::decode_bucket(bytes) {
        assert_eq!(keys::bucket(&bucket), bytes);
    }
    if let Ok((bucket, key)) = keys::decode_object(bytes)
        && let (Ok(bucket), Ok(key)) = (BucketName::new(bucket), ObjectKey::new(key))
    {
        assert_eq!(keys::object(&bucket, &key), bytes);
    }
    if let Ok((bucket, key, upload)) = keys::decode_upload(bytes)
        && let (Ok(bucket), Ok(key)) = (BucketName::new(bucket), ObjectKey::new(&key))
    {
        assert_eq!(keys::upload(&bucket, &key, upload), bytes);
    }
    if let Ok((upload, number)) = keys::decode_part(bytes) {
        assert_eq!(keys::part(upload, number), bytes);
    }
    match keys::decode_manifest(bytes) {
        Ok((id, keys::ManifestKey::Part(number))) => assert_eq!(keys::manifest_part(id, number), bytes),
        Ok((id, keys::ManifestKey::Page(start))) => assert_eq!(keys::manifest_page(id, start), bytes),
        Err(_) => {}
    }
    if let Ok(segment) = keys::decode_segment(bytes) {
        assert_eq!(keys::segment(segment), bytes);
    }
    if let Some(successor) = keys::successor(bytes) {
        assert!(&successor[..] > bytes && !successor.starts_with(bytes));
    }
});
