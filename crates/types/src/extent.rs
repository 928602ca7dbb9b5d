//! Where a run of object bytes lies.

use minicbor::{Decode, Encode};

use crate::SegmentId;

/// A run of object bytes in one stripe of one segment, with the checksum that was written with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct Extent {
    /// The segment.
    #[n(0)]
    pub segment: SegmentId,
    /// Offset of the stripe's chunks in every shard file, in bytes; a multiple of 4096.
    #[n(1)]
    pub stripe_offset: u64,
    /// Where in the stripe.
    #[n(2)]
    pub place: Place,
    /// Number of bytes, at least 1.
    #[n(3)]
    pub len: u32,
    /// CRC-64/NVME of the bytes.
    #[n(4)]
    pub crc64: u64,
}

/// Where in a stripe the bytes of an extent lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub enum Place {
    /// Whole in one data chunk: found with one read of one target.
    #[n(0)]
    Chunk {
        /// Index of the data shard.
        #[n(0)]
        shard: u8,
        /// Offset from the start of the chunk, its header included, in bytes.
        #[n(1)]
        start: u32,
    },
    /// The whole payload of a stripe of its own, dealt to the data chunks in cells.
    #[n(1)]
    Cells {
        /// Bytes of one cell; a multiple of 4096.
        #[n(0)]
        cell_bytes: u32,
    },
}
