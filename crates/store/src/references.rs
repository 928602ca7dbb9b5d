//! What a row needs of the log: its own record, and the bytes that it describes.

use gabion_metadata::{
    Table, keys,
    rows::{
        BucketRow, ConfigRow, Home, Layout, ManifestPage, ManifestPart, ObjectRow, PartRow, Row, SnapshotRow, UploadRow,
    },
};
use gabion_types::Extent;

use crate::{StoreError, snapshot::SNAPSHOT_ROW};

/// The references that stand in one row. Those of an object with a manifest stand in the manifest's rows.
#[derive(Default)]
pub(crate) struct References {
    pub home: Option<Home>,
    pub extents: Vec<Extent>,
}

impl References {
    /// Of a row of buckets, objects, uploads, parts or manifests, or of the snapshot of the index; other rows need nothing.
    ///
    /// # Errors
    /// `Corrupt` when it can not be decoded.
    pub(crate) fn of_row(table: Table, key: &[u8], row: &[u8]) -> Result<Self, StoreError> {
        let laid_out = |home: Home, layout: Layout| {
            let extents = if let Layout::Extents(extents) = layout { extents } else { Vec::new() };
            Self { home: Some(home), extents }
        };
        let at_home = |home: Home| Self { home: Some(home), extents: Vec::new() };
        Ok(match table {
            Table::Bucket => at_home(BucketRow::decode(row)?.home),
            Table::Upload => at_home(UploadRow::decode(row)?.home),
            Table::Config => at_home(ConfigRow::decode(row)?.home),
            Table::Object | Table::Version => {
                let row = ObjectRow::decode(row)?;
                laid_out(row.home, row.layout)
            }
            Table::Part => {
                let row = PartRow::decode(row)?;
                laid_out(row.home, row.layout)
            }
            Table::Manifest => match keys::decode_manifest(key) {
                Ok((_, keys::ManifestKey::Part(_))) => at_home(ManifestPart::decode(row)?.home),
                Ok((_, keys::ManifestKey::Page(_))) => Self { home: None, extents: ManifestPage::decode(row)?.extents },
                Err(error) => return Err(StoreError::Corrupt(format!("the index: {error}"))),
            },
            Table::System if key == SNAPSHOT_ROW.as_bytes() => {
                let row = SnapshotRow::decode(row)?;
                Self { home: Some(row.home), extents: row.extents }
            }
            Table::Segment | Table::Usage | Table::System => Self::default(),
        })
    }
}
