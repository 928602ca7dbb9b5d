//! Laws of all structures: what is encoded is decoded, one wrong bit is seen, no bytes make a decoder panic.

use bytes::Bytes;
use gabion_types::limits::BLOCK_BYTES;
use gabion_types::{DeploymentId, Geometry, SegmentId, Seq, TargetId};
use proptest::prelude::*;

use super::*;
use crate::applier::RecordBody;
use crate::segment_info::{LaneKind, Seal};

const SEGMENT: SegmentId = SegmentId::new(7, 9);
const BINDING: RecordBinding = RecordBinding { segment: SEGMENT, stripe_index: 3 };

fn shard_header(data: usize, parity: usize) -> ShardHeader {
    let geometry = Geometry::new(data, parity).unwrap();
    ShardHeader {
        kind: LaneKind::Large,
        relaxed: true,
        segment: SEGMENT,
        deployment: DeploymentId::from_u128(1 << 100),
        shard: (geometry.shards() - 1) as u8,
        geometry,
        writer: 7,
        epoch: 1,
        created_ms: 1_700_000_000_000,
        planned_bytes: 1 << 30,
        targets: (0..geometry.shards()).map(|shard| TargetId::from_u128(shard as u128)).collect(),
    }
}

fn chunk_header(data: usize, chunk_bytes: u32, shard: u8) -> ChunkHeader {
    let mut spans = vec![ChunkSpan { payload_bytes: chunk_bytes, index_bytes: chunk_bytes.min(100) }];
    spans.resize(data, ChunkSpan { payload_bytes: chunk_bytes / 3, index_bytes: 0 });
    let shape = StripeShape {
        kind: LaneKind::Small,
        geometry: Geometry::new(data, 2).unwrap(),
        segment: SEGMENT,
        stripe_index: 3,
        stripe_offset: 12 * 4096,
        chunk_bytes,
        cell_bytes: 0,
        min_seq: Seq::from_u64(5),
        max_seq: Seq::from_u64(6),
        frees: true,
        spans,
    };
    let blocks = shape.payload_bytes(shard.into()).div_ceil(BLOCK_BYTES);
    ChunkHeader { shape, shard, block_crcs: (0..blocks as u64).map(|block| block << 40).collect() }
}

#[test]
fn a_chunk_fills_what_it_lacks_if_that_is_little() {
    // Payloads of 4 data shards in blocks, of which the header takes a part of one: what is written of each place.
    let written = |blocks: [u32; 4]| {
        let mut shape = chunk_header(4, blocks.into_iter().max().unwrap() * 4096 - 500, 0).shape;
        let span = |blocks: u32| ChunkSpan { payload_bytes: (blocks * 4096).saturating_sub(500), index_bytes: 0 };
        shape.spans = blocks.map(span).to_vec();
        (0..6).map(|shard| shape.written_bytes(shard) / 4096).collect::<Vec<_>>()
    };
    assert_eq!(written([8, 7, 5, 4]), [8, 8, 8, 8, 8, 8]);
    assert_eq!(written([9, 4, 5, 9]), [9, 4, 9, 9, 9, 9]);
    assert_eq!(written([4, 2, 1, 0]), [4, 4, 1, 1, 4, 4]);
    assert_eq!(written([2, 1, 0, 0]), [2, 2, 2, 2, 2, 2]);
    assert_eq!(written([40, 36, 35, 0]), [40, 40, 35, 1, 40, 40]);
}

fn encoded(header: &ChunkHeader) -> Vec<u8> {
    let mut out = vec![0xAA; header.shape.header_bytes()];
    header.encode(&mut out);
    out
}

fn seal() -> SealBlock {
    SealBlock {
        kind: LaneKind::Small,
        reason: SealReason::Voided,
        segment: SEGMENT,
        deployment: DeploymentId::from_u128(3),
        seal: Seal {
            stripes: 4,
            end_offset: 8192,
            min_seq: Seq::from_u64(1),
            max_seq: Seq::from_u64(2),
            written_bytes: 77,
        },
        is_distrusted: false,
    }
}

fn record(pieces: usize) -> Record {
    Record {
        seq: Seq::from_u64(42),
        carried: true,
        body: RecordBody::Mutation(Bytes::from_static(b"put the stone into the cage")),
        pieces: (0..pieces as u32)
            .map(|piece| PieceRef { shard: 1, start: 200 + piece, len: 9, crc64: u64::MAX })
            .collect(),
    }
}

fn encode_record(record: &Record) -> Vec<u8> {
    let mut out = vec![0xAA; record.bytes()];
    record.encode(BINDING, &mut out);
    out
}

/// Name, bytes, and the decoder as a test of bytes.
type Structure = (&'static str, Vec<u8>, fn(&[u8]) -> bool);

/// Every structure once.
fn structures() -> Vec<Structure> {
    vec![
        ("shard header", shard_header(4, 2).encode(), |bytes| ShardHeader::decode(bytes).is_ok()),
        ("chunk header", encoded(&chunk_header(4, 200_000, 0)), |bytes| ChunkHeader::decode(bytes).is_ok()),
        ("seal", seal().encode(), |bytes| SealBlock::decode(bytes, 8192).is_ok()),
        ("record", encode_record(&record(2)), |bytes| {
            decode_records(BINDING, Bytes::copy_from_slice(bytes)).is_ok_and(|records| !records.is_empty())
        }),
    ]
}

#[test]
fn what_is_encoded_is_decoded() {
    for (data, parity) in [(1, 0), (4, 2), (128, 16)] {
        let header = shard_header(data, parity);
        assert_eq!(ShardHeader::decode(&header.encode()), Ok(header));
    }
    for (data, chunk_bytes, shard) in [(1, 1, 0), (4, 200_000, 1), (4, 200_000, 5), (128, 8 << 20, 129)] {
        let header = chunk_header(data, chunk_bytes, shard);
        let bytes = encoded(&header);
        assert!(bytes.len() <= CHUNK_HEADER_BYTES_MAX);
        assert_eq!(ChunkHeader::decode(&bytes), Ok(header));
    }
    assert_eq!(SealBlock::decode(&seal().encode(), 8192), Ok(seal()));
    let freed = Record { body: RecordBody::Freed(SEGMENT), carried: false, ..record(0) };
    let area = [encode_record(&record(0)), encode_record(&record(17)), encode_record(&freed)].concat();
    assert_eq!(decode_records(BINDING, area.into()), Ok(vec![record(0), record(17), freed]));
}

#[test]
fn every_wrong_bit_and_every_cut_is_seen() {
    for (name, bytes, is_valid) in structures() {
        assert!(is_valid(&bytes), "{name}");
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_valid(&bad), "{name}: bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(!is_valid(&bytes[..len]), "{name}: {len} bytes");
        }
    }
}

#[test]
fn a_seal_elsewhere_is_none() {
    assert_eq!(SealBlock::decode(&seal().encode(), 4096), Err(FormatError::Field("end offset")));
}

#[test]
fn a_record_of_another_stripe_is_none() {
    let other = RecordBinding { stripe_index: 4, ..BINDING };
    assert_eq!(decode_records(other, encode_record(&record(1)).into()), Err(FormatError::Checksum));
}

#[test]
fn a_seal_says_whether_its_shard_failed() {
    let failed = SealBlock { is_distrusted: true, ..seal() };
    assert_eq!(SealBlock::decode(&failed.encode(), 8192), Ok(failed));
    let mut other = failed.encode();
    assert_eq!((seal().encode()[80], other[80]), (0, 1), "older programs write a zero there, and read none of it");
    other[80] = 2;
    let crc = gabion_erasure::crc64(&other[..SEAL_BLOCK_BYTES - 8]);
    other[SEAL_BLOCK_BYTES - 8..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(SealBlock::decode(&other, 8192), Err(FormatError::Field("distrusted")));
}

/// Length and checksum of each structure: a change here needs a new version and a reader of the old one.
#[test]
fn layouts_are_pinned() {
    // Without their own checksums: with it, every structure has the same.
    let crc64 = |bytes: &[u8]| format!("{:016x}", gabion_erasure::crc64(&bytes[..bytes.len() - 8]));
    let found: Vec<_> = structures().iter().map(|(name, bytes, _)| (*name, bytes.len(), crc64(bytes))).collect();
    assert_eq!(
        found,
        [
            ("shard header", 4096, "4f75b861779f09d9".to_owned()),
            ("chunk header", 144, "8a69422a0cc9937a".to_owned()),
            ("seal", 4096, "08dc25f27b71c572".to_owned()),
            ("record", 99, "7d753dff7affb8e0".to_owned())
        ]
    );
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        for (_, _, is_valid) in structures() {
            prop_assert!(!is_valid(&bytes));
        }
    }

    /// A right checksum over wrong fields: only the checks of the fields themselves stand in the way.
    #[test]
    fn no_field_makes_a_decoder_panic(at in 0..110_usize, value in any::<u64>(), wide in any::<bool>()) {
        for (name, bytes, is_valid) in structures() {
            let mut bytes = bytes;
            let end = bytes.len() - 8;
            let at = at.min(end - 8);
            let width = if wide { 8 } else { 1 };
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            let mut crc = gabion_erasure::Crc64::new();
            if name == "record" {
                crc.update(&SEGMENT.to_bytes());
                crc.update(&BINDING.stripe_index.to_le_bytes());
            }
            crc.update(&bytes[..end]);
            bytes[end..].copy_from_slice(&crc.finish().to_le_bytes());
            let _ = is_valid(&bytes);
        }
    }
}
