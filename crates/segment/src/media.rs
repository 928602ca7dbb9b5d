//! Chunks on targets: every byte that leaves this module upwards was checked, unless its name says raw.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use gabion_erasure::{Codec, crc64};
use gabion_platform::{Clock, DiskFile, FilePlace, IoFuture, is_exhausted};
use gabion_types::limits::{BLOCK_BYTES, CHUNK_ALIGN_BYTES};
use gabion_types::{Geometry, SegmentId, TargetId};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::sync::{Notify, Semaphore};

use crate::config::LogConfig;
use crate::degraded::rebuild_memory;
use crate::format::{ChunkHeader, FormatError, SealBlock, SealReason};
use crate::metrics::LogMetrics;
use crate::repair_queue::{Added, RepairQueue};
use crate::segment_info::{Seal, SegmentInfo};
use crate::shard_path::shard_path;
use crate::status::RepairEntry;
use crate::target::membership::{MEMBERSHIP_BYTES_MAX, MEMBERSHIP_FILE};
use crate::target::{OVERDUE, Target, TargetSet, is_overdue};
use crate::warm::Warm;

/// A bug on purpose, which the simulator must find (docs/TESTING.md).
pub(crate) const VERIFIES_NOTHING: bool = cfg!(feature = "planted-skip-verify");

/// The targets, with what is remembered of the files on them.
pub(crate) struct Media {
    pub(crate) targets: TargetSet,
    pub(crate) metrics: LogMetrics,
    pub(crate) repairs: RepairQueue,
    /// Rings when damage was noted that was not known.
    pub(crate) repair_wanted: Arc<Notify>,
    pub(crate) clock: Arc<dyn Clock>,
    files: Cache<(SegmentId, u8, TargetId), Arc<dyn DiskFile>>,
    headers: Cache<(SegmentId, u64, u8), Arc<ChunkHeader>>,
    pub(crate) warm: Warm,
    codecs: Mutex<Vec<Codec>>,
    /// See [`rebuild_memory`].
    pub(crate) rebuilds: Arc<Semaphore>,
    /// Whether a target ever gave an error instead of bytes: what was not read then may be there all the same.
    pub(crate) reads_failed: AtomicBool,
    /// Whether the log is open, so that reads for which others stand in are not waited for without end: what begins with a start that saw less than there is ends with less.
    pub(crate) is_open: AtomicBool,
}

/// Why a chunk, or a part of it, can not be had.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum ChunkError {
    /// Its target or its file is not there.
    #[error("absent")]
    Absent,
    /// Its target failed the read.
    #[error("{0}")]
    Io(String),
    /// Its target has not answered in time: the chunk may be as good as ever, and as soon as it answers there is nothing to repair.
    #[error("the target has not answered in time")]
    Overdue,
    /// This machine ran out of descriptors or memory: the chunk may be as good as ever.
    #[error("{0}")]
    Exhausted(String),
    /// It was read, and it is not what was written.
    #[error("{0}")]
    Corrupt(String),
}

impl Media {
    pub(crate) fn new(targets: TargetSet, config: &LogConfig, clock: Arc<dyn Clock>) -> Self {
        Self {
            targets,
            metrics: LogMetrics::new(),
            repairs: RepairQueue::new(config.repair_queue_max),
            repair_wanted: Arc::default(),
            clock,
            files: Cache::new(config.open_files_max),
            headers: Cache::new(config.header_cache_entries),
            warm: Warm::new(config.warm_bytes),
            codecs: Mutex::default(),
            rebuilds: rebuild_memory(),
            reads_failed: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
        }
    }

    /// The code of a geometry; made once.
    pub(crate) fn codec(&self, geometry: Geometry) -> Codec {
        let mut codecs = self.codecs.lock();
        if let Some(codec) = codecs.iter().find(|codec| codec.geometry() == geometry) {
            return codec.clone();
        }
        let codec = Codec::new(geometry);
        codecs.push(codec.clone());
        codec
    }

    /// The open file of a shard.
    pub(crate) async fn file(&self, info: &SegmentInfo, shard: usize) -> Result<Arc<dyn DiskFile>, ChunkError> {
        let key = (info.id, shard as u8, info.targets[shard]);
        if let Some(file) = self.files.get(&key) {
            return Ok(file);
        }
        let disk = self.targets.disk(info.targets[shard]).ok_or(ChunkError::Absent)?;
        match self.in_time(info, shard, disk.open(&shard_path(info.id, shard as u8))).await {
            Ok(file) => {
                self.files.insert(key, Arc::clone(&file));
                // It may have left meanwhile, and its files been closed.
                if self.targets.find(key.2).is_none() {
                    self.files.remove(&key);
                }
                Ok(file)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ChunkError::Absent),
            Err(error) => Err(self.failed_read(&error)),
        }
    }

    /// What comes of a read of a shard; as late as it comes where nothing stands in for it.
    ///
    /// # Errors
    /// Its own, or one that [`is_overdue`].
    pub(crate) async fn in_time<T: Send + 'static>(
        &self,
        info: &SegmentInfo,
        shard: usize,
        read: IoFuture<T>,
    ) -> io::Result<T> {
        if info.geometry.parity() == 0 || !self.is_open.load(Ordering::Relaxed) {
            return read.await;
        }
        self.targets.read_in_time(info.targets[shard], read).await
    }

    /// The target of a shard, if it is there and another one stands in for it: then it is not waited for without end.
    pub(crate) fn replaceable(&self, info: &SegmentInfo, shard: usize) -> Option<Arc<Target>> {
        let number = self.targets.find(info.targets[shard]).filter(|_| info.geometry.parity() > 0)?;
        Some(self.targets.at(number))
    }

    /// Drops what is remembered of one file.
    pub(crate) fn forget_shard(&self, segment: SegmentId, shard: u8, target: TargetId) {
        self.files.remove(&(segment, shard, target));
    }

    /// Closes the files of targets that left: their drives are about to be taken out.
    pub(crate) fn close_left(&self) {
        self.files.retain(|(.., target), _| self.targets.find(*target).is_some());
    }

    /// The block that ends a shard of a segment, which is to be trusted or not.
    pub(crate) fn seal_block(&self, info: &SegmentInfo, reason: SealReason, seal: Seal, is_trusted: bool) -> Bytes {
        let (deployment, is_distrusted) = (self.targets.deployment, !is_trusted);
        SealBlock { kind: info.kind, reason, segment: info.id, deployment, seal, is_distrusted }.encode().into()
    }

    /// The segment's seal, if that is what was read at `offset`.
    pub(crate) fn seal_in(&self, info: &SegmentInfo, bytes: &[u8], offset: u64) -> Option<SealBlock> {
        let block = SealBlock::decode(bytes, offset).ok()?;
        let ours = block.segment == info.id && block.kind == info.kind && block.deployment == self.targets.deployment;
        ours.then_some(block)
    }

    /// Up to `len` unchecked bytes, fewer where the file ends.
    pub(crate) async fn raw(
        &self,
        info: &SegmentInfo,
        shard: usize,
        offset: u64,
        len: usize,
    ) -> Result<Bytes, ChunkError> {
        Ok(self.raw_of(info, shard, offset, len).await?.0)
    }

    /// The same, with the file that they were read from.
    pub(crate) async fn raw_of(
        &self,
        info: &SegmentInfo,
        shard: usize,
        offset: u64,
        len: usize,
    ) -> Result<(Bytes, Arc<dyn DiskFile>), ChunkError> {
        let file = self.file(info, shard).await?;
        self.metrics.target_reads.add(1);
        let read = self.in_time(info, shard, file.read_at(offset, len)).await;
        let bytes = read.map_err(|error| self.unreadable(info, shard, &error))?;
        self.metrics.target_read_bytes.add(bytes.len() as u64);
        Ok((bytes, file))
    }

    fn unreadable(&self, info: &SegmentInfo, shard: usize, error: &io::Error) -> ChunkError {
        // The handle may be the fault, e.g. after a remount: the next read opens anew.
        self.forget_shard(info.id, shard as u8, info.targets[shard]);
        self.failed_read(error)
    }

    /// The header of a chunk, from memory or from its target.
    pub(crate) async fn header(
        &self,
        info: &SegmentInfo,
        stripe_offset: u64,
        shard: usize,
    ) -> Result<Arc<ChunkHeader>, ChunkError> {
        if let Some(header) = self.headers.get(&(info.id, stripe_offset, shard as u8)) {
            return Ok(header);
        }
        let bytes = self.raw(info, shard, stripe_offset, CHUNK_ALIGN_BYTES).await?;
        self.remember(info, stripe_offset, shard, &bytes)
    }

    /// Reads the header at the front of a chunk's bytes, and remembers it.
    pub(crate) fn remember(
        &self,
        info: &SegmentInfo,
        stripe_offset: u64,
        shard: usize,
        chunk: &[u8],
    ) -> Result<Arc<ChunkHeader>, ChunkError> {
        let header =
            decode_header(info, stripe_offset, shard, chunk).map_err(|error| corrupt("chunk header", error))?;
        let header = Arc::new(header);
        self.headers.insert((info.id, stripe_offset, shard as u8), Arc::clone(&header));
        Ok(header)
    }

    /// Checked bytes of a chunk's payload; `range` begins at a block and ends at one or at the payload's end.
    pub(crate) async fn payload(
        &self,
        info: &SegmentInfo,
        header: &ChunkHeader,
        range: Range<usize>,
    ) -> Result<Bytes, ChunkError> {
        Ok(self.placed_payload(info, header, range).await?.0)
    }

    /// The same, with the place that they were read from.
    pub(crate) async fn placed_payload(
        &self,
        info: &SegmentInfo,
        header: &ChunkHeader,
        range: Range<usize>,
    ) -> Result<(Bytes, FilePlace), ChunkError> {
        let shape = &header.shape;
        let offset = shape.stripe_offset + (shape.header_bytes() + range.start) as u64;
        let (bytes, file) = self.raw_of(info, header.shard.into(), offset, range.len()).await?;
        check_blocks(header, range, &bytes)?;
        Ok((bytes, FilePlace { file, offset }))
    }

    /// Whether a target shows that it is one, in time. A directory that can not be read, or that is empty, is that of a drive that failed or is not
    /// mounted: what is missing there is not lost.
    pub(crate) async fn answers(&self, target: TargetId) -> bool {
        match self.targets.disk(target) {
            Some(_) if self.targets.owes_bytes(target) => false,
            Some(disk) => {
                let read = tokio::time::timeout(OVERDUE, disk.read_file(MEMBERSHIP_FILE, MEMBERSHIP_BYTES_MAX));
                read.await.is_ok_and(|read| read.is_ok())
            }
            None => false,
        }
    }

    /// Notes that a target gave an error.
    fn failed_read(&self, error: &io::Error) -> ChunkError {
        self.reads_failed.store(true, Ordering::Relaxed);
        match error {
            error if is_overdue(error) => ChunkError::Overdue,
            error if is_exhausted(error) => ChunkError::Exhausted(error.to_string()),
            error => ChunkError::Io(error.to_string()),
        }
    }

    /// Counts damage and asks for its repair.
    pub(crate) fn damaged(&self, info: &SegmentInfo, shard: usize, error: &ChunkError) {
        // What was open may be a file that repair has replaced meanwhile.
        self.forget_shard(info.id, shard as u8, info.targets[shard]);
        let segment = info.id;
        match error {
            ChunkError::Exhausted(_) | ChunkError::Overdue => return,
            ChunkError::Corrupt(_) => self.metrics.corrupt_chunks.add(1),
            ChunkError::Absent | ChunkError::Io(_) => self.metrics.unreadable_chunks.add(1),
        }
        tracing::debug!(%segment, shard, %error, "a chunk is damaged");
        self.ask_repair(segment, shard);
    }

    /// Queues a shard for repair. Of one that is queued repair was told: whoever reads beside it would have it look at all segments each time.
    pub(crate) fn ask_repair(&self, segment: SegmentId, shard: usize) {
        match self.repairs.add(RepairEntry { segment, shard: shard as u8 }) {
            Added::New => self.repair_wanted.notify_one(),
            Added::Known => {}
            Added::Dropped => self.metrics.repairs_dropped.add(1),
        }
    }

    /// Queues a shard that failed while it was written: see [`RepairQueue`].
    pub(crate) fn distrust(&self, segment: SegmentId, shard: usize) {
        self.repairs.distrust(RepairEntry { segment, shard: shard as u8 });
        self.repair_wanted.notify_one();
    }
}

/// Decodes the header of the chunk that must lie at this very place.
pub(crate) fn decode_header(
    info: &SegmentInfo,
    stripe_offset: u64,
    shard: usize,
    chunk: &[u8],
) -> Result<ChunkHeader, FormatError> {
    let header = ChunkHeader::decode(chunk)?;
    let shape = &header.shape;
    if shape.segment != info.id || shape.geometry != info.geometry || shape.kind != info.kind {
        return Err(FormatError::Field("segment"));
    }
    if shape.stripe_offset != stripe_offset || usize::from(header.shard) != shard {
        return Err(FormatError::Field("place"));
    }
    Ok(header)
}

/// Checks `bytes`, which are `range` of the chunk's payload, block by block.
pub(crate) fn check_blocks(header: &ChunkHeader, range: Range<usize>, bytes: &[u8]) -> Result<(), ChunkError> {
    if bytes.len() != range.len() {
        return Err(ChunkError::Corrupt("the file is cut short".to_owned()));
    }
    let first = range.start / BLOCK_BYTES;
    for (block, bytes) in (first..).zip(bytes.chunks(BLOCK_BYTES)) {
        if header.block_crcs.get(block) != Some(&crc64(bytes)) && !VERIFIES_NOTHING {
            return Err(ChunkError::Corrupt(format!("block {block} has a wrong checksum")));
        }
    }
    Ok(())
}

fn corrupt(what: &str, error: FormatError) -> ChunkError {
    ChunkError::Corrupt(format!("{what}: {error}"))
}
