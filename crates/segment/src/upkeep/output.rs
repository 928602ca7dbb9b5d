//! A shard file that is written from front to back in long writes, each one while the next is filled.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use gabion_platform::{DiskFile, Durable};
use gabion_types::limits::{BLOCK_BYTES, CHUNK_PAYLOAD_BYTES_MAX};
use tokio::task::JoinHandle;

use crate::buffers::Buffers;

/// Length that a write aims at, in bytes.
const WRITE_BYTES: usize = 4 << 20;
/// Longest stretch of nothing that is written as zeros rather than left out, in bytes.
const GAP_BYTES_MAX: u64 = 1 << 20;
/// Most memory that it takes, in bytes: the longest chunk with its header, being filled and on its way.
pub(super) const OUTPUT_BYTES_MAX: usize = 2 * (CHUNK_PAYLOAD_BYTES_MAX + BLOCK_BYTES);
const _: () = assert!(WRITE_BYTES <= CHUNK_PAYLOAD_BYTES_MAX);

/// The file, as far as it is filled.
pub(super) struct Output<'a> {
    file: &'a Arc<dyn DiskFile>,
    buffers: &'a Buffers,
    /// Where the first byte of `filled` goes.
    offset: u64,
    filled: BytesMut,
    under_way: Option<(JoinHandle<io::Result<()>>, Bytes)>,
}

impl<'a> Output<'a> {
    pub(super) fn new(file: &'a Arc<dyn DiskFile>, buffers: &'a Buffers) -> Self {
        Self { file, buffers, offset: 0, filled: BytesMut::new(), under_way: None }
    }

    /// The next `len` bytes at `offset`, zeros, to be filled. Everything before is written, or left out if nothing was put there.
    ///
    /// # Errors
    /// When an earlier write failed.
    pub(super) async fn at(&mut self, offset: u64, len: usize) -> io::Result<&mut [u8]> {
        debug_assert!(offset >= self.end(), "from front to back");
        let gap = offset - self.end();
        let fits = gap <= GAP_BYTES_MAX && self.filled.len() + gap as usize + len <= WRITE_BYTES;
        if !fits || self.filled.is_empty() {
            self.flush().await?;
            self.offset = offset;
            self.filled = self.buffers.take(len.max(WRITE_BYTES));
        }
        let start = (offset - self.offset) as usize;
        self.filled.resize(start + len, 0);
        Ok(&mut self.filled[start..])
    }

    /// Takes back what was to be written from `offset` on, which the last [`Output::at`] gave.
    pub(super) fn cut(&mut self, offset: u64) {
        self.filled.truncate((offset - self.offset) as usize);
    }

    /// Writes all that is left. Nothing is synced.
    ///
    /// # Errors
    /// When a write failed.
    pub(super) async fn finish(mut self) -> io::Result<()> {
        self.flush().await?;
        self.settle().await
    }

    fn end(&self) -> u64 {
        self.offset + self.filled.len() as u64
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.settle().await?;
        let bytes = std::mem::take(&mut self.filled).freeze();
        if bytes.is_empty() {
            self.buffers.give(bytes);
            return Ok(());
        }
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        let write = tokio::spawn(self.file.write_at(offset, vec![bytes.clone()], Durable::No));
        self.under_way = Some((write, bytes));
        Ok(())
    }

    async fn settle(&mut self) -> io::Result<()> {
        let Some((write, bytes)) = self.under_way.take() else { return Ok(()) };
        write.await.unwrap_or_else(|error| Err(io::Error::other(error)))?;
        self.buffers.give(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gabion_platform::{Disk, SimDisk};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_put_is_written_and_what_is_cut_is_not() {
        let file = SimDisk::new(1).create("f", 0).await.unwrap();
        let buffers = Buffers::default();
        let mut output = Output::new(&file, &buffers);
        let mut expected = vec![0; 40 << 20];
        let mut put = Vec::new();
        // Neighbours, small and large gaps, longer than a write.
        for (offset, len) in
            [(0, 10), (10, 5000), (6000, 100), (3 << 20, 100), (4 << 20, 3 << 20), (7 << 20, 8 << 20), (30 << 20, 4096)]
        {
            output.at(offset, len).await.unwrap().fill(put.len() as u8 + 1);
            expected[offset as usize..offset as usize + len].fill(put.len() as u8 + 1);
            put.push((offset, len));
        }
        output.at(31 << 20, 4096).await.unwrap().fill(99);
        output.cut((31 << 20) + 8);
        expected[31 << 20..(31 << 20) + 8].fill(99);
        output.at(32 << 20, 100).await.unwrap().fill(98);
        output.cut(32 << 20);
        output.finish().await.unwrap();
        file.set_len(expected.len() as u64).await.unwrap();
        assert!(file.read_at(0, expected.len()).await.unwrap() == expected);
    }
}
