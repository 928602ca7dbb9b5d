//! Encoding and reconstruction of shards for one geometry.

use std::{fmt, num::NonZeroUsize, sync::Arc};

use gabion_types::Geometry;

use crate::{
    ErasureError, Kernel, Plan,
    cache::{PlanCache, PlanKey, ShardSet},
    crc64, kernel,
    matrix::Matrix,
};

/// The erasure code of one [`Geometry`]. Cheap to clone: clones share the matrix and the cached decoding plans.
///
/// Shards `0 .. k` are data, `k .. k + m` parity. The shards of one call have one length, which may be anything,
/// zero included.
#[derive(Clone)]
pub struct Codec {
    shared: Arc<Shared>,
}

struct Shared {
    geometry: Geometry,
    kernel: &'static dyn Kernel,
    matrix: Matrix,
    encode: Plan,
    decode: PlanCache,
}

impl Codec {
    /// The code of `geometry` on the fastest kernel of this machine. Inverts a matrix of `k·k`: make it once, clone it.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        Self::with_kernel(geometry, kernel::best())
    }

    /// The code of `geometry` on a kernel of [`kernel::available`]; for tests and benches.
    #[must_use]
    pub fn with_kernel(geometry: Geometry, kernel: &'static dyn Kernel) -> Self {
        let matrix = Matrix::coding(geometry);
        let encode = Plan::new(&matrix.select(geometry.data()..geometry.shards()));
        Self { shared: Arc::new(Shared { geometry, kernel, matrix, encode, decode: PlanCache::default() }) }
    }

    /// The geometry.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.shared.geometry
    }

    /// Name of the kernel that does the work.
    #[must_use]
    pub fn kernel_name(&self) -> &'static str {
        self.shared.kernel.name()
    }

    /// Writes the `m` parity shards of `k` data shards. With `m = 0` there is nothing to do.
    ///
    /// # Errors
    /// When the number of slices is not that of the geometry, or their lengths differ.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), ErasureError> {
        let Shared { geometry, kernel, encode, .. } = &*self.shared;
        check_count("data", data.len(), geometry.data())?;
        check_count("parity", parity.len(), geometry.parity())?;
        check_lengths(data.iter().map(|shard| shard.len()).chain(parity.iter().map(|shard| shard.len())))?;
        kernel.apply(encode, data, parity);
        Ok(())
    }

    /// [`Self::encode`], and the [`crc64`] of every block of `block_bytes` of every shard, data first, then parity; the last
    /// block of a shard may be shorter. Of data shard `i` only the first `own_bytes[i]` bytes have checksums: what follows
    /// pads it to the length of the longest.
    ///
    /// Block by block across all shards, so that each byte is still in the second cache when it is used again: shards that
    /// fit the last cache cost what they cost in passes of their own, longer ones less (docs/BENCHMARKS.md).
    ///
    /// # Errors
    /// As [`Self::encode`]; also when `own_bytes` has not a number for each data shard, or one beyond its length.
    pub fn encode_with_crcs(
        &self,
        data: &[&[u8]],
        parity: &mut [&mut [u8]],
        own_bytes: &[usize],
        block_bytes: NonZeroUsize,
    ) -> Result<Vec<Vec<u64>>, ErasureError> {
        let Shared { geometry, kernel, encode, .. } = &*self.shared;
        let block_bytes = block_bytes.get();
        check_count("data", data.len(), geometry.data())?;
        check_count("parity", parity.len(), geometry.parity())?;
        check_count("data", own_bytes.len(), geometry.data())?;
        check_lengths(data.iter().map(|shard| shard.len()).chain(parity.iter().map(|shard| shard.len())))?;
        let len = data[0].len();
        if let Some(&given) = own_bytes.iter().find(|&&own| own > len) {
            return Err(ErasureError::ShardLength { given, expected: len });
        }
        let blocks = len.div_ceil(block_bytes);
        let mut crcs: Vec<Vec<u64>> = (0..geometry.shards()).map(|_| Vec::with_capacity(blocks)).collect();
        let (data_crcs, parity_crcs) = crcs.split_at_mut(data.len());
        let mut parity_blocks: Vec<_> = parity.iter_mut().map(|shard| shard.chunks_mut(block_bytes)).collect();
        let mut sources = Vec::with_capacity(data.len());
        let mut outputs = Vec::with_capacity(parity_blocks.len());
        for start in (0..len).step_by(block_bytes) {
            let end = len.min(start + block_bytes);
            sources.clear();
            for ((shard, &own), crcs) in data.iter().zip(own_bytes).zip(&mut *data_crcs) {
                if start < own {
                    crcs.push(crc64(&shard[start..end.min(own)]));
                }
                sources.push(&shard[start..end]);
            }
            outputs.clear();
            outputs.extend(parity_blocks.iter_mut().filter_map(Iterator::next));
            kernel.apply(encode, &sources, &mut outputs);
            for (output, crcs) in outputs.iter().zip(&mut *parity_crcs) {
                crcs.push(crc64(output));
            }
        }
        Ok(crcs)
    }

    /// Rebuilds the shards `want` from the shards `have`, both as (index, bytes) in any order. `have` needs `k` shards
    /// at least; the first `k` are read.
    ///
    /// # Errors
    /// When `have` has fewer than `k` shards, an index is unknown or named twice, or lengths differ.
    pub fn reconstruct(&self, have: &[(usize, &[u8])], want: &mut [(usize, &mut [u8])]) -> Result<(), ErasureError> {
        let Shared { geometry, kernel, matrix, decode, .. } = &*self.shared;
        let needed = geometry.data();
        let have = have.get(..needed).ok_or(ErasureError::TooFewShards { given: have.len(), needed })?;
        let key = self.key(have, want)?;
        check_lengths(have.iter().map(|(_, shard)| shard.len()).chain(want.iter().map(|(_, shard)| shard.len())))?;
        if want.is_empty() {
            return Ok(());
        }
        let plan = decode.get_or_make(&key, || {
            let inverse = matrix.select(key.have.iter()).inverted().expect("any k rows of the matrix are independent");
            Plan::new(&matrix.select(key.want.iter()).times(&inverse))
        });
        // A plan is for sets of shards: its columns and rows are in ascending order of index.
        let mut sources = have.to_vec();
        sources.sort_unstable_by_key(|(index, _)| *index);
        let sources: Vec<&[u8]> = sources.into_iter().map(|(_, shard)| shard).collect();
        want.sort_unstable_by_key(|(index, _)| *index);
        let mut outputs: Vec<&mut [u8]> = want.iter_mut().map(|(_, shard)| &mut **shard).collect();
        kernel.apply(&plan, &sources, &mut outputs);
        Ok(())
    }

    /// The sets of shards of a reconstruction, checked.
    fn key(&self, have: &[(usize, &[u8])], want: &[(usize, &mut [u8])]) -> Result<PlanKey, ErasureError> {
        let shards = self.shared.geometry.shards();
        let mut seen = ShardSet::default();
        let mut set = |indices: &mut dyn Iterator<Item = usize>| {
            let mut set = ShardSet::default();
            for index in indices {
                if index >= shards {
                    return Err(ErasureError::ShardIndex { index, shards });
                }
                if !seen.insert(index) {
                    return Err(ErasureError::ShardRepeated { index });
                }
                set.insert(index);
            }
            Ok(set)
        };
        Ok(PlanKey {
            have: set(&mut have.iter().map(|(index, _)| *index))?,
            want: set(&mut want.iter().map(|(index, _)| *index))?,
        })
    }
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Codec({}, {})", self.geometry(), self.kernel_name())
    }
}

fn check_count(role: &'static str, given: usize, expected: usize) -> Result<(), ErasureError> {
    if given == expected { Ok(()) } else { Err(ErasureError::ShardCount { role, given, expected }) }
}

fn check_lengths(mut lengths: impl Iterator<Item = usize>) -> Result<(), ErasureError> {
    let expected = lengths.next().unwrap_or(0);
    match lengths.find(|&given| given != expected) {
        None => Ok(()),
        Some(given) => Err(ErasureError::ShardLength { given, expected }),
    }
}
