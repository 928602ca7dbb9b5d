//! Every kind of row of the index; the first byte chooses.
#![no_main]

use std::fmt::Debug;

use gabion_metadata::rows::{
    BucketRow, ManifestPage, ManifestPart, ObjectRow, PartRow, Row, SegmentRow, SnapshotRow, UploadRow, UsageRow,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 9 {
        0 => decode::<BucketRow>(bytes),
        1 => decode::<ObjectRow>(bytes),
        2 => decode::<UploadRow>(bytes),
        3 => decode::<PartRow>(bytes),
        4 => decode::<ManifestPage>(bytes),
        5 => decode::<ManifestPart>(bytes),
        6 => decode::<SegmentRow>(bytes),
        7 => decode::<UsageRow>(bytes),
        _ => decode::<SnapshotRow>(bytes),
    }
});

fn decode<R: Row + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(row) = R::decode(bytes) {
        assert_eq!(R::decode(&row.encode()).as_ref(), Ok(&row));
    }
}
