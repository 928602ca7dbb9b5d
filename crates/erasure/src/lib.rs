//! Reed-Solomon coding of byte slices, checksums and digests.
//!
//! Pure computation: no I/O, no async, no clock, no knowledge of chunks, stripes or objects. `segment` codes and
//! guards its chunks with it, `store` and `server` check and combine what clients send.
//!
//! Invariants:
//! - The coding matrix is that of the crate `reed-solomon-erasure` (systematic Vandermonde over GF(2^8)/0x11D) and is
//!   part of the format on disk: it never changes.
//! - Every [`Kernel`] gives the same bytes; which one runs is chosen once per process.

mod blocks;
mod cache;
mod checksum;
mod codec;
mod crc64;
mod digester;
mod error;
mod field;
pub mod kernel;
mod matrix;
mod md5;
mod multipart;
mod plan;
mod ring;
mod sha256;

pub use self::md5::Md5;
pub use checksum::{Checksum, ChecksumAlgorithm};
pub use codec::Codec;
pub use crc64::{Crc64, Crc64Kernel, Crc64Shift, crc64, crc64_combine, crc64_kernels};
pub use digester::{Digester, Digests};
pub use error::ErasureError;
pub use kernel::Kernel;
pub use multipart::{combine_full_object, composite};
pub use plan::Plan;
pub use sha256::Sha256;
