//! What clients put into queries and headers, one text at a time.
#![no_main]

use gabion_store::{ByteRange, EtagMatch, RangeRequest};
use gabion_types::{BucketName, ObjectKey, SegmentId, UploadId};

libfuzzer_sys::fuzz_target!(|text: &str| {
    gabion_server::fuzzing::texts(text);
    if let Some(range) = RangeRequest::parse(text) {
        for size in [0, 1, 1000, u64::MAX] {
            if let Ok(Some(range)) = range.resolve(size) {
                assert!(range.first <= range.last && range.last < size);
            }
        }
    }
    let _: Option<ByteRange> = RangeRequest::parse_copy_source(text);
    let _ = EtagMatch::parse(text);
    if let Ok(name) = BucketName::new(text) {
        assert_eq!(name.as_str(), text);
    }
    let _ = ObjectKey::new(text);
    if let Ok(id) = text.parse::<SegmentId>() {
        assert_eq!(id.to_string(), text.to_lowercase());
    }
    let _ = text.parse::<UploadId>();
});
