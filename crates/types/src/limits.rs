//! Every limit of the system with its unit and its reason; relations between them are checked at compile time.

/// Most data chunks in a stripe. The index of a shard is one byte and wide codes gain nothing beyond this.
pub const DATA_SHARDS_MAX: usize = 128;
/// Most parity chunks in a stripe: more than any site tolerates in lost targets.
pub const PARITY_SHARDS_MAX: usize = 16;
/// Most shards in a stripe: GF(2^8) has 255 distinct non-zero rows.
pub const SHARDS_MAX: usize = 255;

/// Unit to which chunks are padded on disk, in bytes: the page and the sector of every target.
pub const CHUNK_ALIGN_BYTES: usize = 4096;
/// Bytes guarded by one checksum in a chunk.
pub const BLOCK_BYTES: usize = 64 * 1024;

/// Largest object (or part) body that is collected in memory and packed with others into one chunk, in bytes.
pub const INLINE_BYTES_MAX: usize = 1024 * 1024;
/// Largest serialised mutation, in bytes: a part of 5 GiB has the most extents, a copy the most attributes.
pub const MUTATION_BYTES_MAX: usize = 1024 * 1024;
/// Payload that one chunk of a stripe of a large object holds at most, in bytes.
pub const CHUNK_PAYLOAD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Default payload of a segment in bytes, over all its data shards.
pub const SEGMENT_PAYLOAD_BYTES_DEFAULT: u64 = 1024 * 1024 * 1024;

/// Longest object key in bytes of UTF-8 (AWS S3).
pub const KEY_BYTES_MAX: usize = 1024;
/// Shortest and longest bucket name in bytes (AWS S3).
pub const BUCKET_NAME_BYTES: std::ops::RangeInclusive<usize> = 3..=63;
/// Largest object in bytes (AWS S3: 5 TiB).
pub const OBJECT_BYTES_MAX: u64 = 5 * (1 << 40);
/// Largest body of one PutObject, UploadPart or CopyObject in bytes (AWS S3: 5 GiB).
pub const PUT_BYTES_MAX: u64 = 5 * (1 << 30);
/// Smallest part in bytes, except for the last one of an upload (AWS S3: 5 MiB).
pub const PART_BYTES_MIN: u64 = 5 * (1 << 20);
/// Highest part number of an upload (AWS S3).
pub const PART_NUMBER_MAX: u16 = 10_000;
/// Largest sum of names and values of user metadata in bytes (AWS S3: 2 KB).
pub const USER_METADATA_BYTES_MAX: usize = 2 * 1024;
/// Most keys in one page of a listing (AWS S3).
pub const LIST_KEYS_MAX: usize = 1000;
/// Most keys in one DeleteObjects request (AWS S3).
pub const DELETE_KEYS_MAX: usize = 1000;
/// Most buckets of one deployment: the default quota that AWS lets an account grow to.
pub const BUCKETS_MAX: usize = 10_000;

/// Most extents in one row; an object with more has a paged manifest, so that a range read touches few rows.
pub const LAYOUT_EXTENTS_MAX: usize = 128;

const _: () = assert!(DATA_SHARDS_MAX + PARITY_SHARDS_MAX <= SHARDS_MAX);
const _: () = assert!(BLOCK_BYTES.is_multiple_of(CHUNK_ALIGN_BYTES));
const _: () = assert!(CHUNK_PAYLOAD_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(INLINE_BYTES_MAX + MUTATION_BYTES_MAX <= CHUNK_PAYLOAD_BYTES_MAX);
const _: () = assert!(PUT_BYTES_MAX <= OBJECT_BYTES_MAX);
