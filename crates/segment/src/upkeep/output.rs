//! A shard file that is written from front to back in long writes, each one while the next is filled.

use std::io;

use gabion_platform::{Buffer, Buffers};
use gabion_types::limits::{BLOCK_BYTES, CHUNK_PAYLOAD_BYTES_MAX};
use tokio::task::JoinHandle;

use super::ahead::TimedFile;

/// Length that a write aims at, in bytes.
const WRITE_BYTES: usize = 4 << 20;
/// Longest stretch of nothing that is written as zeros rather than left out, in bytes.
const GAP_BYTES_MAX: u64 = 1 << 20;
/// Most memory that it takes, in bytes: the longest chunk with its header, being filled and on its way.
pub(super) const OUTPUT_BYTES_MAX: usize = 2 * (CHUNK_PAYLOAD_BYTES_MAX + BLOCK_BYTES);
const _: () = assert!(WRITE_BYTES <= CHUNK_PAYLOAD_BYTES_MAX);

/// The file, as far as it is filled.
pub(super) struct Output<'a> {
    file: TimedFile,
    buffers: &'a Buffers,
    /// Where the first byte of `filled` goes.
    offset: u64,
    filled: Option<Buffer>,
    under_way: Option<JoinHandle<io::Result<()>>>,
}

impl<'a> Output<'a> {
    pub(super) fn new(file: TimedFile, buffers: &'a Buffers) -> Self {
        Self { file, buffers, offset: 0, filled: None, under_way: None }
    }

    /// The next `len` bytes at `offset`, zeros, to be filled. Everything before is written, or left out if nothing was put there.
    ///
    /// # Errors
    /// When an earlier write failed.
    pub(super) async fn at(&mut self, offset: u64, len: usize) -> io::Result<&mut [u8]> {
        debug_assert!(offset >= self.end(), "from front to back");
        let gap = offset - self.end();
        let filled_bytes = self.filled_bytes();
        let fits = gap <= GAP_BYTES_MAX && filled_bytes + gap as usize + len <= WRITE_BYTES;
        if !fits || filled_bytes == 0 {
            self.flush().await?;
            self.offset = offset;
            let mut buffer = self.buffers.take(len.max(WRITE_BYTES));
            buffer.resize(0);
            self.filled = Some(buffer);
        }
        let start = (offset - self.offset) as usize;
        let filled = self.filled.as_mut().expect("it was taken where there was none");
        filled.resize(start + len);
        Ok(&mut filled[start..])
    }

    /// Takes back what was to be written from `offset` on, which the last [`Output::at`] gave.
    pub(super) fn cut(&mut self, offset: u64) {
        if let Some(filled) = &mut self.filled {
            filled.resize((offset - self.offset) as usize);
        }
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
        self.offset + self.filled_bytes() as u64
    }

    fn filled_bytes(&self) -> usize {
        self.filled.as_ref().map_or(0, |filled| filled.len())
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.settle().await?;
        let Some(filled) = self.filled.take().filter(|filled| !filled.is_empty()) else { return Ok(()) };
        let offset = self.offset;
        self.offset += filled.len() as u64;
        self.under_way = Some(tokio::spawn(self.file.write(offset, filled.freeze())));
        Ok(())
    }

    async fn settle(&mut self) -> io::Result<()> {
        let Some(write) = self.under_way.take() else { return Ok(()) };
        write.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gabion_platform::{Disk, SimDisk};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_put_is_written_and_what_is_cut_is_not() {
        let file = SimDisk::new(1).create("f", 0).await.unwrap();
        let buffers = Buffers::default();
        let mut output = Output::new(TimedFile { file: Arc::clone(&file), target: None }, &buffers);
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
