//! The rows of the index and their encodings: one version byte, then a CBOR array.
//!
//! A row says nothing of keys ([`crate::keys`]) or engines ([`crate::Index`]). Fields have fixed positions in the array
//! and are only ever added at its end: a decoder skips positions that it does not know, and a field added later must
//! have a default for rows without it. What can not be said that way raises the version byte. Decoders take
//! hostile bytes: they return an error, never panic, and allocate nothing by a length that they only read.

mod attributes;
mod bucket;
mod checksum;
mod config;
mod encryption;
mod etag;
mod layout;
mod listed;
mod manifest;
mod object;
mod part;
mod segment;
mod snapshot;
mod upload;
mod usage;

pub use attributes::{Attributes, Renamed, Retention, RetentionMode};
pub use bucket::BucketRow;
pub use checksum::{ChecksumKind, StoredChecksum};
pub use config::ConfigRow;
pub use encryption::{Encryption, EncryptionScheme, Salt, SealedPart};
pub use etag::{Etag, PartTag};
pub use layout::{Home, Layout};
pub use listed::{ListedAttributes, ListedChecksum, ListedObject};
pub use manifest::{ManifestPage, ManifestPart};
pub use object::{ObjectRow, PartsSummary, VersionKind};
pub use part::{CountsFor, PartRow};
pub use segment::{LaneKind, SegmentRow, SegmentState};
pub use snapshot::SnapshotRow;
pub use upload::UploadRow;
pub use usage::UsageRow;

/// Whether a rebuild from the log may come to the row `rebuilt` where there is the row `present`: the same, but for where an object's key was before. Of homes that are
/// gone a rebuild knows nothing; and more than there is to know where a deletion was told on, which then comes after what it made room for.
#[must_use]
pub fn may_be_rebuilt_as(table: crate::Table, present: &[u8], rebuilt: &[u8]) -> bool {
    let decoded = |row| ObjectRow::decode(row).map(|row| ObjectRow { former_homes: None, ..row });
    present == rebuilt
        || matches!(table, crate::Table::Object | crate::Table::Version)
            && matches!((decoded(present), decoded(rebuilt)), (Ok(present), Ok(rebuilt)) if present == rebuilt)
}

/// Why bytes are no row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// There are no bytes.
    #[error("{row} row: no bytes")]
    Empty {
        /// The kind of row.
        row: &'static str,
    },
    /// Written by a newer version of the program, or not a row at all.
    #[error("{row} row: version {version} is unknown")]
    Version {
        /// The kind of row.
        row: &'static str,
        /// The version byte.
        version: u8,
    },
    /// The bytes after the version are not what they should be.
    #[error("{row} row: {reason}")]
    Malformed {
        /// The kind of row.
        row: &'static str,
        /// What is wrong.
        reason: String,
    },
}

/// A value of the index with its versioned encoding.
pub trait Row: Sized {
    /// The kind of row, for messages.
    const NAME: &'static str;
    /// The version that is written.
    const VERSION: u8;

    /// The version byte and the fields.
    fn encode(&self) -> Vec<u8>;

    /// Reads what [`Row::encode`] wrote, also when a later program wrote it with more fields.
    ///
    /// # Errors
    /// When the version is unknown or the bytes are malformed.
    fn decode(bytes: &[u8]) -> Result<Self, RowError>;
}

/// Makes a type with a CBOR encoding a row.
macro_rules! row {
    ($row:ty, $name:literal, version $version:literal) => {
        impl $crate::rows::Row for $row {
            const NAME: &'static str = $name;
            const VERSION: u8 = $version;

            fn encode(&self) -> Vec<u8> {
                $crate::rows::encode_fields($version, self)
            }

            fn decode(bytes: &[u8]) -> Result<Self, $crate::rows::RowError> {
                $crate::rows::decode_fields($name, $version, bytes)
            }
        }
    };
}
use row;

/// Most rows are no longer, in bytes: they are written into memory that need not grow.
const ROW_BYTES_USUAL: usize = 256;

fn encode_fields(version: u8, fields: &impl minicbor::Encode<()>) -> Vec<u8> {
    let mut out = Vec::with_capacity(ROW_BYTES_USUAL);
    out.push(version);
    minicbor::encode(fields, &mut out).expect("a vector takes any number of bytes");
    out
}

fn decode_fields<R>(row: &'static str, known: u8, bytes: &[u8]) -> Result<R, RowError>
where
    R: for<'b> minicbor::Decode<'b, ()>,
{
    let (&version, fields) = bytes.split_first().ok_or(RowError::Empty { row })?;
    if version != known {
        return Err(RowError::Version { row, version });
    }
    let malformed = |reason: String| RowError::Malformed { row, reason };
    let mut decoder = minicbor::Decoder::new(fields);
    let value = decoder.decode().map_err(|error| malformed(error.to_string()))?;
    match fields.len() - decoder.position() {
        0 => Ok(value),
        excess => Err(malformed(format!("{excess} bytes after the end"))),
    }
}

#[cfg(test)]
mod tests;
