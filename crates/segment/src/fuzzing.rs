//! What the fuzz targets call: each decoder of bytes from a target, with the bytes as they are and with their checksums put right, which
//! no fuzzer would guess.
//!
//! Besides not panicking, what is decoded must be encoded to something that decodes to the same.

use bytes::Bytes;
use gabion_erasure::crc64;
use gabion_types::SegmentId;

use crate::format::{ChunkHeader, Record, RecordBinding, SEAL_BLOCK_BYTES, SealBlock, ShardHeader, decode_records};
use crate::shard_path::parse_shard_name;
use crate::target::membership::{Membership, with_checksum};

const BINDING: RecordBinding = RecordBinding { segment: SegmentId::new(7, 9), stripe_index: 3 };

/// The header block of a shard file.
pub fn shard_header(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), repaired(bytes, announced(bytes, 12))] {
        if let Ok(header) = ShardHeader::decode(&bytes) {
            assert_eq!(ShardHeader::decode(&header.encode()), Ok(header));
        }
    }
}

/// The header of a chunk.
pub fn chunk_header(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), repaired(bytes, announced(bytes, 12))] {
        if let Ok(header) = ChunkHeader::decode(&bytes) {
            let shape = &header.shape;
            assert!(shape.next_offset() > shape.stripe_offset && shape.stripe_payload_bytes() > 0);
            assert!(
                (0..shape.geometry.shards()).all(|shard| shape.written_bytes(shard) as u64 <= shape.stored_bytes())
            );
            let mut out = vec![0; shape.header_bytes()];
            header.encode(&mut out);
            assert_eq!(ChunkHeader::decode(&out), Ok(header));
        }
    }
}

/// The records at the front of a chunk.
pub fn records(bytes: &[u8]) {
    let _ = decode_records(BINDING, Bytes::copy_from_slice(bytes));
    let (mut area, mut at) = (bytes.to_vec(), 0);
    while let Some(len) = announced(&area[at..], 4).filter(|&len| len >= 8 && len <= area.len() - at) {
        let crc = BINDING.crc64(&area[at..at + len - 8]);
        area[at + len - 8..at + len].copy_from_slice(&crc.to_le_bytes());
        at += len;
    }
    area.truncate(at);
    if let Ok(records) = decode_records(BINDING, area.into()) {
        let mut out = vec![0; records.iter().map(Record::bytes).sum()];
        let mut rest = &mut out[..];
        for record in &records {
            let (front, behind) = rest.split_at_mut(record.bytes());
            record.encode(BINDING, front);
            rest = behind;
        }
        assert_eq!(decode_records(BINDING, out.into()), Ok(records));
    }
}

/// The block that ends a segment; its first eight bytes are the offset that it was read at.
pub fn seal_block(bytes: &[u8]) {
    let Some((offset, bytes)) = bytes.split_first_chunk() else { return };
    let offset = u64::from_le_bytes(*offset);
    let mut block = bytes.to_vec();
    block.resize(SEAL_BLOCK_BYTES, 0);
    for bytes in [bytes.to_vec(), repaired(&block, Some(SEAL_BLOCK_BYTES))] {
        if let Ok(seal) = SealBlock::decode(&bytes, offset) {
            assert_eq!(SealBlock::decode(&seal.encode(), offset), Ok(seal));
        }
    }
}

/// The membership file, and the names of shard files.
pub fn membership(bytes: &[u8]) {
    for bytes in [Some(bytes.to_vec()), with_checksum(bytes)].into_iter().flatten() {
        if let Ok(membership) = Membership::decode(&bytes) {
            assert_eq!(Membership::decode(&membership.encode()), Ok(membership));
        }
    }
    if let Ok(name) = std::str::from_utf8(bytes) {
        let _ = parse_shard_name(name);
    }
}

/// The length that a structure gives itself, at this offset.
fn announced(bytes: &[u8], at: usize) -> Option<usize> {
    let len = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(len) as usize)
}

/// The first `len` bytes end with the checksum of what is before it, if there are so many.
fn repaired(bytes: &[u8], len: Option<usize>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some((front, crc)) = len.and_then(|len| bytes.get_mut(..len)).and_then(|whole| whole.split_last_chunk_mut())
    {
        *crc = crc64(front).to_le_bytes();
    }
    bytes
}
