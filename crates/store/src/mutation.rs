//! Mutations: what the log's records say, self-describing and sufficient to rebuild the index.
//!
//! One version byte, then a CBOR enum. Fields have fixed positions and are only ever added at the end. A mutation never
//! depends on anything but older mutations; in a rebuild those of them that no row needs any more may be gone.

use gabion_metadata::rows::{
    Attributes, ChecksumKind, CountsFor, Etag, ObjectRow, PartTag, Salt, StoredChecksum, VersionKind,
};
use gabion_types::{BucketName, Extent, ObjectKey, SegmentId, Seq, UploadId, limits::MUTATION_BYTES_MAX};
use minicbor::{Decode, Encode};

/// The version that is written.
const VERSION: u8 = 1;

/// Most mutations are no longer, in bytes: they are written into memory that need not grow.
const MUTATION_BYTES_USUAL: usize = 256;

/// A change of the index.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) enum Mutation {
    #[n(0)]
    CreateBucket(#[n(0)] CreateBucketMutation),
    #[n(1)]
    DeleteBucket(#[n(0)] DeleteBucketMutation),
    #[n(2)]
    PutObject(#[n(0)] Box<PutObjectMutation>),
    #[n(3)]
    DeleteObject(#[n(0)] DeleteObjectMutation),
    #[n(4)]
    CreateUpload(#[n(0)] Box<CreateUploadMutation>),
    #[n(5)]
    PutPart(#[n(0)] Box<PutPartMutation>),
    #[n(6)]
    CompleteUpload(#[n(0)] Box<CompleteUploadMutation>),
    #[n(7)]
    EndUpload(#[n(0)] EndUploadMutation),
    #[n(8)]
    Move(#[n(0)] Box<MoveMutation>),
    #[n(9)]
    PutConfig(#[n(0)] PutConfigMutation),
    #[n(10)]
    DeleteConfig(#[n(0)] DeleteConfigMutation),
    #[n(11)]
    PutMarker(#[n(0)] Box<PutMarkerMutation>),
    #[n(12)]
    DeleteVersion(#[n(0)] DeleteVersionMutation),
    #[n(13)]
    RenameObject(#[n(0)] Box<RenameObjectMutation>),
    #[n(16)]
    IndexSnapshot(#[n(0)] IndexSnapshotMutation),
}

/// A bucket comes into being.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct CreateBucketMutation {
    #[n(0)]
    pub bucket: String,
    #[n(1)]
    pub created_ms: u64,
    #[n(2)]
    pub owner: String,
    #[n(3)]
    pub region: String,
    /// Documents that configure it from its first moment.
    #[n(4)]
    pub configs: Option<Vec<FirstConfig>>,
}

/// A document that a bucket is created with.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct FirstConfig {
    #[n(0)]
    pub name: String,
    #[cbor(n(1), with = "minicbor::bytes")]
    pub document: Vec<u8>,
}

/// A bucket goes, and the uploads that were open in it end.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct DeleteBucketMutation {
    #[n(0)]
    pub bucket: String,
    #[n(1)]
    pub uploads: Vec<EndedUpload>,
    /// Whether documents configured it, which must not come back to a later bucket of its name.
    #[n(2)]
    pub had_configs: Option<bool>,
}

/// A document configures a bucket, or the site.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct PutConfigMutation {
    /// The bucket; the site when there is none.
    #[n(0)]
    pub bucket: Option<String>,
    #[n(1)]
    pub name: String,
    #[cbor(n(2), with = "minicbor::bytes")]
    pub document: Vec<u8>,
}

/// There is no document of this name any more.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct DeleteConfigMutation {
    #[n(0)]
    pub bucket: Option<String>,
    #[n(1)]
    pub name: String,
}

/// An upload that ends with its bucket.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct EndedUpload {
    #[n(0)]
    pub key: String,
    #[n(1)]
    pub upload: UploadId,
}

/// An object becomes current.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct PutObjectMutation {
    #[n(0)]
    pub bucket: String,
    #[n(1)]
    pub key: String,
    #[n(2)]
    pub modified_ms: u64,
    #[n(3)]
    pub size: u64,
    #[n(4)]
    pub etag: Etag,
    #[n(5)]
    pub attributes: Attributes,
    #[n(6)]
    pub checksums: Vec<StoredChecksum>,
    #[n(7)]
    pub data: Data,
    /// The parts of the object that this is a copy of.
    #[n(8)]
    pub parts: Vec<CopiedPart>,
    /// What it is among the versions of its key; nothing is the `null` version.
    #[n(9)]
    pub kind: Option<VersionKind>,
}

impl PutObjectMutation {
    /// What makes the row of an object again, with its bytes in `data`: for a move.
    pub(crate) fn again(
        bucket: &BucketName,
        key: &ObjectKey,
        row: ObjectRow,
        data: Data,
        parts: Vec<CopiedPart>,
    ) -> Self {
        Self {
            bucket: bucket.as_str().to_owned(),
            key: key.as_str().to_owned(),
            modified_ms: row.modified_ms,
            size: row.size,
            etag: row.etag,
            attributes: row.attributes,
            checksums: row.checksums,
            data,
            parts,
            kind: row.kind,
        }
    }
}

/// A part of an object that was copied.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct CopiedPart {
    #[n(0)]
    pub part_number: u16,
    #[n(1)]
    pub size: u64,
    #[n(2)]
    pub tag: PartTag,
    #[n(3)]
    pub checksums: Vec<StoredChecksum>,
    /// Its salt, if the object is encrypted.
    #[n(4)]
    pub salt: Option<Salt>,
}

/// Where the bytes of a mutation lie.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) enum Data {
    /// In the mutation's own record; nowhere when there are none.
    #[n(0)]
    Record,
    /// In these extents.
    #[n(1)]
    Extents(#[n(0)] Vec<Extent>),
    /// In these extents, and behind them in the mutation's own record.
    #[n(2)]
    Appended(#[n(0)] Vec<Extent>),
}

impl Data {
    /// All extents, where the record's own are `of_record`.
    pub(crate) fn extents(self, of_record: &[Extent]) -> Vec<Extent> {
        match self {
            Data::Record => of_record.to_vec(),
            Data::Extents(extents) => extents,
            Data::Appended(mut extents) => {
                extents.extend_from_slice(of_record);
                extents
            }
        }
    }
}

/// An object gets another key: it becomes current there, and there is no `null` version any more under the one that it had.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct RenameObjectMutation {
    /// The key that it had, in the same bucket.
    #[n(0)]
    pub from: String,
    /// The object under its new key. It says all about it: nothing older is needed to make its row.
    #[n(1)]
    pub object: PutObjectMutation,
    /// What is taken away under the key that it had; nothing when that is not all known.
    #[n(2)]
    pub taken: Option<Taken>,
}

/// A delete marker becomes the newest version.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct PutMarkerMutation {
    #[n(0)]
    pub bucket: String,
    #[n(1)]
    pub key: String,
    #[n(2)]
    pub modified_ms: u64,
    #[n(3)]
    pub kind: VersionKind,
    /// Its owner, if that is not the bucket's.
    #[n(4)]
    pub attributes: Attributes,
}

/// A version is no more.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct DeleteVersionMutation {
    #[n(0)]
    pub bucket: String,
    #[n(1)]
    pub key: String,
    /// The commit that made it.
    #[n(2)]
    pub version: Seq,
}

/// There is no `null` version any more.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct DeleteObjectMutation {
    #[n(0)]
    pub bucket: String,
    #[n(1)]
    pub key: String,
    /// What it takes away; nothing when that is not all known.
    #[n(2)]
    pub taken: Option<Taken>,
}

/// Where what a deletion takes away may come from again: without all of that, the deletion need not be carried (docs/adr/0004).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Taken {
    /// Segments of all records that would bring an object back under the key.
    #[n(0)]
    pub homes: Vec<SegmentId>,
    /// The commit of the object, if the key was free just before it: a snapshot of the index of before then knows nothing of what is taken away. Nothing when it was not, or when
    /// that is not known.
    #[n(1)]
    pub made: Option<Seq>,
}

impl Taken {
    /// What is taken away with an object. Of objects that came up to `snapshot_unknown` it is not known whether a snapshot of the index has another one under their key.
    pub(crate) fn with(row: &ObjectRow, snapshot_unknown: Option<Seq>) -> Option<Self> {
        let mut homes = row.former_homes.clone()?;
        // A bug on purpose, which the simulator must find (docs/TESTING.md).
        if cfg!(feature = "planted-forgotten-homes") {
            homes.clear();
        }
        let is_known = snapshot_unknown.is_none_or(|unknown| row.seq > unknown);
        let made = (homes.is_empty() && is_known).then_some(row.seq);
        if let Err(at) = homes.binary_search(&row.home.segment) {
            homes.insert(at, row.home.segment);
        }
        Some(Self { homes, made })
    }
}

/// An upload begins.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct CreateUploadMutation {
    #[n(0)]
    pub bucket: String,
    #[n(1)]
    pub key: String,
    #[n(2)]
    pub upload: UploadId,
    #[n(3)]
    pub created_ms: u64,
    #[n(4)]
    pub attributes: Attributes,
    #[n(5)]
    pub checksum_algorithm: Option<u8>,
    #[n(6)]
    pub checksum_kind: Option<ChecksumKind>,
    #[n(7)]
    pub owner: String,
}

/// A part of an upload becomes current.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct PutPartMutation {
    #[n(0)]
    pub upload: UploadId,
    #[n(1)]
    pub part_number: u16,
    #[n(2)]
    pub size: u64,
    #[n(3)]
    pub tag: PartTag,
    #[n(4)]
    pub modified_ms: u64,
    #[n(5)]
    pub checksums: Vec<StoredChecksum>,
    #[n(6)]
    pub data: Data,
    /// Its salt, if the upload is encrypted.
    #[n(7)]
    pub salt: Option<Salt>,
    /// Where its bytes count while its upload is open.
    #[n(8)]
    pub counts: Option<CountsFor>,
}

/// An upload ends; the parts it names become the current object.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct CompleteUploadMutation {
    #[n(0)]
    pub bucket: String,
    #[n(1)]
    pub key: String,
    #[n(2)]
    pub upload: UploadId,
    #[n(3)]
    pub modified_ms: u64,
    #[n(4)]
    pub attributes: Attributes,
    #[n(5)]
    pub etag: Etag,
    #[n(6)]
    pub checksums: Vec<StoredChecksum>,
    #[n(7)]
    pub parts: Vec<NamedPart>,
    /// What it is among the versions of its key; nothing is the `null` version.
    #[n(8)]
    pub kind: Option<VersionKind>,
}

/// A part by its number and the commit that made it current.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct NamedPart {
    #[n(0)]
    pub part_number: u16,
    #[n(1)]
    pub seq: Seq,
}

/// An upload ends without an object.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct EndUploadMutation {
    #[n(0)]
    pub bucket: String,
    #[n(1)]
    pub key: String,
    #[n(2)]
    pub upload: UploadId,
}

/// A snapshot of the index is whole, and takes the place of the one before. It changes no object: who lost the index begins with it.
/// One without extents says that there is none any more.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct IndexSnapshotMutation {
    /// Number of its rows.
    #[n(0)]
    pub rows: u64,
    /// Where its rows lie, one after the other.
    #[n(1)]
    pub extents: Vec<Extent>,
    /// See [`gabion_metadata::rows::SnapshotRow::covered`].
    #[n(2)]
    pub covered: Vec<SegmentId>,
}

/// A row was written again elsewhere by compaction (docs/adr/0007): it is what it was, but its record and its bytes lie where this
/// record says. The record has a sequence of its own, by which it is ordered among all others and later moves of the row.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct MoveMutation {
    /// The commit that made the row.
    #[n(0)]
    pub seq: Seq,
    /// The mutation that makes it as it is.
    #[n(1)]
    pub row: MovedRow,
}

/// A row that was moved: a mutation that brings a row into being.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) enum MovedRow {
    #[n(0)]
    Bucket(#[n(0)] CreateBucketMutation),
    #[n(1)]
    Object(#[n(0)] PutObjectMutation),
    #[n(2)]
    Upload(#[n(0)] CreateUploadMutation),
    #[n(3)]
    Part(#[n(0)] PutPartMutation),
    /// An object with more parts and extents than one mutation describes: they were put as parts of an upload that is only there
    /// for this move.
    #[n(4)]
    Completed(#[n(0)] CompleteUploadMutation),
    /// What says that there is a snapshot of the index; its bytes stay where they are.
    #[n(5)]
    IndexSnapshot(#[n(0)] IndexSnapshotMutation),
    #[n(6)]
    Config(#[n(0)] PutConfigMutation),
    #[n(7)]
    Marker(#[n(0)] PutMarkerMutation),
}

/// Why bytes are no mutation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MutationError {
    #[error("a mutation has no bytes")]
    Empty,
    #[error("version {0} of a mutation is unknown: it was written by a newer program")]
    Version(u8),
    #[error("malformed mutation: {0}")]
    Malformed(String),
}

impl Mutation {
    /// A row of the commit `seq`, logged again.
    pub(crate) fn moving(seq: Seq, row: MovedRow) -> Self {
        Self::Move(Box::new(MoveMutation { seq, row }))
    }

    /// Version byte and fields; the caller checks [`Mutation::fits`].
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MUTATION_BYTES_USUAL);
        out.push(VERSION);
        minicbor::encode(self, &mut out).expect("a vector takes any number of bytes");
        out
    }

    /// Where in an encoded put the MD5 lies that is the object's tag.
    pub(crate) fn md5_at(encoded: &[u8]) -> Option<usize> {
        let mut fields = minicbor::Decoder::new(encoded.get(1..)?);
        // The put among the mutations; bucket, key, time and size; the MD5 among the tags.
        let is_put = fields.array().ok()? == Some(2) && fields.u32().ok()? == 2 && fields.array().ok()? == Some(1);
        let is_long_enough = is_put && fields.array().ok()? >= Some(5);
        if !is_long_enough {
            return None;
        }
        (0..4).try_for_each(|_| fields.skip()).ok()?;
        let is_md5 = fields.array().ok()? == Some(2) && fields.u32().ok()? == 0 && fields.array().ok()? == Some(1);
        let md5 = fields.bytes().ok().filter(|md5| is_md5 && md5.len() == 16)?;
        Some(1 + fields.position() - md5.len())
    }

    /// Whether an encoded mutation ends uploads, and may take thousands of rows with them.
    pub(crate) fn ends_uploads(encoded: &[u8]) -> bool {
        let mut fields = minicbor::Decoder::new(encoded.get(1..).unwrap_or_default());
        // A bucket's deletion, a completion, an end.
        fields.array().is_ok_and(|fields| fields == Some(2)) && matches!(fields.u32(), Ok(1 | 6 | 7))
    }

    /// Whether a record takes so many bytes.
    pub(crate) fn fits(encoded: &[u8]) -> bool {
        encoded.len() <= MUTATION_BYTES_MAX
    }

    /// Reads [`Mutation::encode`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, MutationError> {
        let (&version, fields) = bytes.split_first().ok_or(MutationError::Empty)?;
        if version != VERSION {
            return Err(MutationError::Version(version));
        }
        let mut decoder = minicbor::Decoder::new(fields);
        let mutation = decoder.decode().map_err(|error| MutationError::Malformed(error.to_string()))?;
        match fields.len() - decoder.position() {
            0 => Ok(mutation),
            excess => Err(MutationError::Malformed(format!("{excess} bytes after the end"))),
        }
    }

    /// Whether it can bring a row into being: such a row must not come back when the mutation that took it away is gone.
    pub(crate) fn creates(&self) -> bool {
        match self {
            Mutation::CreateBucket(_)
            | Mutation::PutObject(_)
            | Mutation::RenameObject(_)
            | Mutation::CreateUpload(_)
            | Mutation::PutPart(_)
            | Mutation::CompleteUpload(_)
            | Mutation::PutMarker(_)
            | Mutation::PutConfig(_) => true,
            // What rows a snapshot may bring back is told apart, by what it covers.
            Mutation::Move(moved) => !matches!(moved.row, MovedRow::IndexSnapshot(_)),
            Mutation::DeleteBucket(_)
            | Mutation::DeleteObject(_)
            | Mutation::DeleteVersion(_)
            | Mutation::EndUpload(_)
            | Mutation::DeleteConfig(_)
            | Mutation::IndexSnapshot(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use gabion_metadata::rows::Renamed;
    use gabion_types::Place;
    use proptest::prelude::*;

    use super::*;

    fn samples() -> Vec<Mutation> {
        let upload = UploadId::from_u128(7);
        let extent = Extent {
            segment: SegmentId::new(1, 2),
            stripe_offset: 8192,
            place: Place::Cells { cell_bytes: 65536 },
            len: 100,
            crc64: 9,
        };
        let checksum = StoredChecksum { algorithm: 2, kind: ChecksumKind::FullObject, value: vec![1; 8] };
        vec![
            Mutation::CreateBucket(CreateBucketMutation {
                bucket: "bucket".into(),
                created_ms: 1,
                owner: "me".into(),
                region: "here".into(),
                configs: Some(vec![FirstConfig { name: "cors".into(), document: b"<x/>".to_vec() }]),
            }),
            Mutation::DeleteBucket(DeleteBucketMutation {
                bucket: "bucket".into(),
                uploads: vec![EndedUpload { key: "k".into(), upload }],
                had_configs: Some(true),
            }),
            Mutation::PutObject(Box::new(PutObjectMutation {
                bucket: "bucket".into(),
                key: "k".into(),
                modified_ms: 5,
                size: 100,
                etag: Etag::Md5([3; 16]),
                attributes: Attributes { content_type: Some("text/plain".into()), ..Attributes::default() },
                checksums: vec![checksum.clone()],
                data: Data::Extents(vec![extent]),
                parts: vec![CopiedPart {
                    part_number: 1,
                    size: 100,
                    tag: PartTag::Md5([1; 16]),
                    checksums: vec![checksum],
                    salt: Some(Salt([7; 16])),
                }],
                kind: Some(VersionKind::Version),
            })),
            Mutation::DeleteObject(DeleteObjectMutation {
                bucket: "bucket".into(),
                key: "k".into(),
                taken: Some(Taken { homes: vec![SegmentId::new(1, 2)], made: Some(Seq::from_u64(3)) }),
            }),
            Mutation::CreateUpload(Box::new(CreateUploadMutation {
                bucket: "bucket".into(),
                key: "k".into(),
                upload,
                created_ms: 1,
                attributes: Attributes::default(),
                checksum_algorithm: None,
                checksum_kind: Some(ChecksumKind::Composite),
                owner: "me".into(),
            })),
            Mutation::PutPart(Box::new(PutPartMutation {
                upload,
                part_number: 3,
                size: 9,
                tag: PartTag::Crc64(u64::MAX),
                modified_ms: 2,
                checksums: vec![],
                data: Data::Record,
                salt: Some(Salt([8; 16])),
                counts: Some(CountsFor { bucket: "bucket".into(), creator: Some("AIDA1".into()) }),
            })),
            Mutation::CompleteUpload(Box::new(CompleteUploadMutation {
                bucket: "bucket".into(),
                key: "k".into(),
                upload,
                modified_ms: 5,
                attributes: Attributes::default(),
                etag: Etag::Multipart([1; 16], 1),
                checksums: vec![],
                parts: vec![NamedPart { part_number: 3, seq: Seq::from_u64(77) }],
                kind: Some(VersionKind::Version),
            })),
            Mutation::EndUpload(EndUploadMutation { bucket: "bucket".into(), key: "k".into(), upload }),
            Mutation::IndexSnapshot(IndexSnapshotMutation {
                rows: 3,
                extents: vec![extent],
                covered: vec![SegmentId::new(1, 2)],
            }),
            Mutation::Move(Box::new(MoveMutation {
                seq: Seq::from_u64(5),
                row: MovedRow::Part(PutPartMutation {
                    upload,
                    part_number: 3,
                    size: 100,
                    tag: PartTag::Md5([4; 16]),
                    modified_ms: 2,
                    checksums: vec![],
                    data: Data::Extents(vec![extent]),
                    salt: None,
                    counts: None,
                }),
            })),
            Mutation::Move(Box::new(MoveMutation {
                seq: Seq::from_u64(5),
                row: MovedRow::IndexSnapshot(IndexSnapshotMutation { rows: 0, extents: vec![], covered: vec![] }),
            })),
            Mutation::PutConfig(PutConfigMutation {
                bucket: Some("bucket".into()),
                name: "cors".into(),
                document: b"<x/>".to_vec(),
            }),
            Mutation::DeleteConfig(DeleteConfigMutation { bucket: None, name: "iam/user".into() }),
            Mutation::PutMarker(Box::new(PutMarkerMutation {
                bucket: "bucket".into(),
                key: "k".into(),
                modified_ms: 5,
                kind: VersionKind::NullMarker,
                attributes: Attributes::default(),
            })),
            Mutation::DeleteVersion(DeleteVersionMutation {
                bucket: "bucket".into(),
                key: "k".into(),
                version: Seq::from_u64(77),
            }),
            Mutation::RenameObject(Box::new(RenameObjectMutation {
                from: "old".into(),
                object: PutObjectMutation {
                    bucket: "bucket".into(),
                    key: "k".into(),
                    modified_ms: 5,
                    size: 100,
                    etag: Etag::Md5([3; 16]),
                    attributes: Attributes {
                        appends: Some(7),
                        renamed: Some(Box::new(Renamed { from: "old".into(), token: "t".into() })),
                        ..Attributes::default()
                    },
                    checksums: vec![],
                    data: Data::Appended(vec![extent]),
                    parts: vec![],
                    kind: None,
                },
                taken: Some(Taken { homes: vec![SegmentId::new(1, 2), SegmentId::new(1, 3)], made: None }),
            })),
        ]
    }

    #[test]
    fn mutations_round_trip_and_refuse_what_is_cut() {
        for mutation in samples() {
            let bytes = mutation.encode();
            assert_eq!(Mutation::decode(&bytes).unwrap(), mutation);
            for end in 0..bytes.len() {
                assert!(Mutation::decode(&bytes[..end]).is_err(), "{mutation:?} cut at {end}");
            }
            let mut newer = bytes;
            newer[0] = 2;
            assert_eq!(Mutation::decode(&newer), Err(MutationError::Version(2)));
        }
    }

    #[test]
    fn what_may_take_thousands_of_rows_is_told_by_its_bytes() {
        for mutation in samples() {
            let ends =
                matches!(mutation, Mutation::DeleteBucket(_) | Mutation::CompleteUpload(_) | Mutation::EndUpload(_));
            assert_eq!(Mutation::ends_uploads(&mutation.encode()), ends, "{mutation:?}");
        }
        assert!(!Mutation::ends_uploads(&[]) && !Mutation::ends_uploads(&[1]));
    }

    #[test]
    fn an_md5_can_be_filled_in_later() {
        let filled = samples().into_iter().filter(|mutation| {
            let mut bytes = mutation.encode();
            let at = Mutation::md5_at(&bytes);
            let Mutation::PutObject(put) = mutation else {
                assert_eq!(at, None, "{mutation:?}");
                return false;
            };
            let at = at.unwrap();
            bytes[at..at + 16].copy_from_slice(&[0xab; 16]);
            let etag = Etag::Md5([0xab; 16]);
            assert_eq!(
                Mutation::decode(&bytes).unwrap(),
                Mutation::PutObject(Box::new(PutObjectMutation { etag, ..(**put).clone() }))
            );
            for etag in [
                Etag::Crc64 { crc64: 1, parts: 1 },
                Etag::Multipart([1; 16], 2),
                Etag::Opaque("0123456789abcdef".into()),
            ] {
                let other = Mutation::PutObject(Box::new(PutObjectMutation { etag, ..(**put).clone() }));
                assert_eq!(Mutation::md5_at(&other.encode()), None);
            }
            true
        });
        assert_eq!(filled.count(), 1);
    }

    #[test]
    fn the_largest_mutations_fit() {
        // A body of 5 GiB in stripes of 1 MiB, and a completion of 10 000 parts.
        let Some(Mutation::PutObject(mut put)) = samples().into_iter().nth(2) else { unreachable!("it is the third") };
        let Data::Extents(extents) = &put.data else { unreachable!("it has extents") };
        put.data = Data::Extents(vec![Extent { stripe_offset: 1 << 40, crc64: u64::MAX, ..extents[0] }; 5 << 10]);
        assert!(Mutation::fits(&Mutation::PutObject(put).encode()));
        let Some(Mutation::CompleteUpload(mut complete)) = samples().into_iter().nth(6) else {
            unreachable!("it is the seventh")
        };
        complete.parts = vec![NamedPart { part_number: 10_000, seq: Seq::from_u64(u64::MAX) }; 10_000];
        assert!(Mutation::fits(&Mutation::CompleteUpload(complete).encode()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Mutation::decode(&bytes);
            let mut versioned = vec![VERSION];
            versioned.extend(&bytes);
            let _ = Mutation::decode(&versioned);
        }

        #[test]
        fn a_changed_byte_is_no_panic(which in 0_usize..15, at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = samples()[which].encode();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Mutation::decode(&bytes);
        }
    }
}
