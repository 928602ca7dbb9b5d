//! Reading the shards of one segment without a log.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use gabion_erasure::crc64;
use gabion_platform::DiskFile;
use gabion_types::SegmentId;
use gabion_types::limits::{BLOCK_BYTES, CHUNK_ALIGN_BYTES};

use super::views::{
    ChunkState, ChunkView, PieceView, RecordView, SealView, SegmentView, ShardView, StripeLine, StripeView,
};
use crate::applier::RecordBody;
use crate::config::LogTarget;
use crate::error::LogError;
use crate::format::{
    ChunkHeader, PieceRef, Record, RecordBinding, SEAL_BLOCK_BYTES, SHARD_HEADER_BYTES_MAX, SealBlock, ShardHeader,
    StripeShape, decode_records, shard_header_bytes,
};
use crate::media::{check_blocks, decode_header};
use crate::segment_info::{LaneKind, SegmentInfo};
use crate::shard_path::shard_path;

/// The shard files of a segment, wherever they were found.
pub(super) struct OpenShards {
    info: SegmentInfo,
    header: ShardHeader,
    shards: Vec<Option<OpenShard>>,
}

struct OpenShard {
    found_on: String,
    file: Arc<dyn DiskFile>,
    len: u64,
    header: ChunkState,
}

impl OpenShards {
    /// Looks for the shards on all targets, each of which may hold any.
    pub(super) async fn open(targets: &[LogTarget], id: SegmentId) -> Result<Self, LogError> {
        let mut found = Vec::new();
        for target in targets {
            let Some(disk) = &target.disk else { continue };
            let Ok(files) = disk.list(&crate::shard_path::shard_dir(id)).await else { continue };
            for entry in files {
                if let Some((segment, shard)) = crate::shard_path::parse_shard_name(&entry.name)
                    && segment == id
                    && let Ok(file) = disk.open(&shard_path(id, shard)).await
                {
                    let bytes = file.read_at(0, SHARD_HEADER_BYTES_MAX).await;
                    found.push((target.name.clone(), shard, entry.len, file, bytes));
                }
            }
        }
        if found.is_empty() {
            return Err(LogError::NotFound(id));
        }
        let decode = |bytes: &Bytes, shard: u8| {
            let header = ShardHeader::decode(bytes).map_err(|error| error.to_string())?;
            let fits = header.segment == id && header.shard == shard;
            if fits { Ok(header) } else { Err("it belongs to another file".to_owned()) }
        };
        let valid = found.iter().find_map(|(_, shard, _, _, bytes)| decode(bytes.as_ref().ok()?, *shard).ok());
        let header = valid.ok_or_else(|| LogError::corrupt(id, "no shard has a valid header"))?;
        let targets = header.targets.clone();
        let info = SegmentInfo { id, kind: header.kind, geometry: header.geometry, targets, former: Vec::new() };
        let mut shards: Vec<Option<OpenShard>> = (0..info.geometry.shards()).map(|_| None).collect();
        for (found_on, shard, len, file, bytes) in found {
            let state = match bytes {
                Ok(bytes) => match decode(&bytes, shard) {
                    Ok(_) => ChunkState::Valid,
                    Err(why) => ChunkState::Corrupt(why),
                },
                Err(error) => ChunkState::Unreadable(error.to_string()),
            };
            if let Some(slot) = shards.get_mut(usize::from(shard)) {
                *slot = Some(OpenShard { found_on, file, len, header: state });
            }
        }
        Ok(Self { info, header, shards })
    }

    pub(super) fn count(&self) -> usize {
        self.shards.len()
    }

    pub(super) fn start_offset(&self) -> u64 {
        shard_header_bytes(self.count()) as u64
    }

    async fn read(&self, shard: usize, offset: u64, len: usize) -> Result<Bytes, ChunkState> {
        let file = &self.shards[shard].as_ref().ok_or(ChunkState::Missing)?.file;
        file.read_at(offset, len).await.map_err(|error| ChunkState::Unreadable(error.to_string()))
    }

    /// The chunk header of a shard at an offset.
    pub(super) async fn header(&self, shard: usize, offset: u64) -> Result<ChunkHeader, ChunkState> {
        let bytes = self.read(shard, offset, CHUNK_ALIGN_BYTES).await?;
        decode_header(&self.info, offset, shard, &bytes).map_err(|error| ChunkState::Corrupt(error.to_string()))
    }

    /// The seal of a shard at an offset.
    pub(super) async fn seal(&self, shard: usize, offset: u64) -> Option<SealBlock> {
        let bytes = self.read(shard, offset, SEAL_BLOCK_BYTES).await.ok()?;
        let block = SealBlock::decode(&bytes, offset).ok()?;
        (block.segment == self.info.id && block.deployment == self.header.deployment).then_some(block)
    }

    /// The seals at the ends of the files.
    pub(super) async fn seals(&self) -> Vec<Option<SealBlock>> {
        join_all(self.shards.iter().enumerate().map(async |(shard, open)| {
            let offset = open.as_ref()?.len.checked_sub(SEAL_BLOCK_BYTES as u64)?;
            self.seal(shard, offset).await
        }))
        .await
    }

    /// All that was found, put together.
    pub(super) fn view(
        &self,
        stripes: Vec<StripeLine>,
        seals_at_ends: &[Option<SealBlock>],
        seals: &[Option<SealBlock>],
    ) -> SegmentView {
        let seal_of = |shard: usize| seals[shard].or(seals_at_ends[shard]);
        let shards = self.shards.iter().zip(&self.info.targets).enumerate().map(|(shard, (open, target))| ShardView {
            shard: shard as u8,
            target: target.to_string(),
            found_on: open.as_ref().map(|open| open.found_on.clone()),
            file_bytes: open.as_ref().map(|open| open.len),
            header: open.as_ref().map_or(ChunkState::Missing, |open| open.header.clone()),
            seal: seal_of(shard).map(|block| seal_view(&block)),
        });
        SegmentView {
            segment: self.info.id.to_string(),
            deployment: self.header.deployment.to_string(),
            kind: self.info.kind.to_string(),
            geometry: self.info.geometry.to_string(),
            relaxed: self.header.relaxed,
            created_ms: self.header.created_ms,
            planned_bytes: self.header.planned_bytes,
            sealed: (0..self.count()).any(|shard| seal_of(shard).is_some()),
            shards: shards.collect(),
            stripes,
        }
    }

    /// One stripe with everything checked.
    pub(super) async fn stripe(&self, shape: &StripeShape, heads: &[Result<ChunkHeader, ChunkState>]) -> StripeView {
        let mut chunks = Vec::with_capacity(heads.len());
        for (shard, head) in heads.iter().enumerate() {
            let state = match chunk_state(head, shape) {
                ChunkState::Valid => self.blocks_state(shard, head).await,
                other => other,
            };
            chunks.push(ChunkView {
                shard: shard as u8,
                role: if shard < shape.geometry.data() { "data" } else { "parity" }.to_owned(),
                payload_bytes: shape.payload_bytes(shard),
                index_bytes: shape.spans.get(shard).map_or(0, |span| span.index_bytes),
                state,
            });
        }
        // All chunks of a stripe are punched out or none, and never those of the last one: else zeros are damage.
        let seals = self.seals().await;
        let is_inner = seals.iter().flatten().any(|block| block.seal.end_offset > shape.next_offset());
        let first_bytes = CHUNK_ALIGN_BYTES - shape.header_bytes();
        let is_whole = |chunk: &ChunkView| chunk.state == ChunkState::Valid && chunk.payload_bytes > first_bytes;
        if !is_inner || chunks.iter().any(is_whole) {
            for chunk in chunks.iter_mut().filter(|chunk| chunk.state == ChunkState::Punched) {
                chunk.state = ChunkState::Corrupt("zeros stand where its payload was".to_owned());
            }
        }
        let mut records = Vec::new();
        for shard in 0..shape.geometry.data() {
            for record in self.records(shape, shard).await {
                records.push(self.record_view(shape, shard, &record).await);
            }
        }
        StripeView {
            segment: shape.segment.to_string(),
            stripe_index: shape.stripe_index,
            stripe_offset: shape.stripe_offset,
            header_bytes: shape.header_bytes(),
            chunk_bytes: shape.chunk_bytes,
            cell_bytes: shape.cell_bytes,
            min_seq: shape.min_seq.to_string(),
            max_seq: shape.max_seq.to_string(),
            chunks,
            records,
        }
    }

    async fn blocks_state(&self, shard: usize, head: &Result<ChunkHeader, ChunkState>) -> ChunkState {
        let Ok(header) = head else { return ChunkState::Missing };
        let payload_bytes = header.shape.payload_bytes(shard);
        let front = header.shape.stripe_offset + header.shape.header_bytes() as u64;
        for start in (0..payload_bytes).step_by(BLOCK_BYTES) {
            let range = start..(start + BLOCK_BYTES).min(payload_bytes);
            match self.read(shard, front + start as u64, range.len()).await {
                Ok(bytes) => {
                    if let Err(error) = check_blocks(header, range, &bytes) {
                        return match self.is_punched(shard, front + payload_bytes as u64, &header.shape).await {
                            Ok(true) => ChunkState::Punched,
                            Ok(false) => ChunkState::Corrupt(error.to_string()),
                            Err(state) => state,
                        };
                    }
                }
                Err(state) => return state,
            }
        }
        ChunkState::Valid
    }

    /// Whether a chunk whose payload ends at `end` looks as the stripe does when it was punched out: all but its first block is zeros.
    async fn is_punched(&self, shard: usize, end: u64, shape: &StripeShape) -> Result<bool, ChunkState> {
        let mut at = shape.stripe_offset + CHUNK_ALIGN_BYTES as u64;
        if self.info.kind != LaneKind::Large || at >= end {
            return Ok(false);
        }
        while at < end {
            let len = (end - at).min(BLOCK_BYTES as u64);
            if self.read(shard, at, len as usize).await?.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += len;
        }
        Ok(true)
    }

    async fn records(&self, shape: &StripeShape, shard: usize) -> Vec<Record> {
        let offset = shape.stripe_offset + shape.header_bytes() as u64;
        let binding = RecordBinding { segment: shape.segment, stripe_index: shape.stripe_index };
        match self.read(shard, offset, shape.spans[shard].index_bytes as usize).await {
            Ok(area) => decode_records(binding, area).unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    async fn record_view(&self, shape: &StripeShape, shard: usize, record: &Record) -> RecordView {
        let (kind, mutation_bytes, frees) = match &record.body {
            RecordBody::Mutation(mutation) => ("mutation", mutation.len(), None),
            RecordBody::Freed(id) => ("freed", 0, Some(id.to_string())),
        };
        let pieces = join_all(record.pieces.iter().map(async |piece| PieceView {
            shard: piece.shard,
            start: piece.start,
            len: piece.len,
            crc64: format!("{:016x}", piece.crc64),
            state: self.piece_state(shape, piece).await,
        }));
        RecordView {
            shard: shard as u8,
            seq: record.seq.to_string(),
            kind: kind.to_owned(),
            carried: record.carried,
            mutation_bytes,
            frees,
            pieces: pieces.await,
        }
    }

    async fn piece_state(&self, shape: &StripeShape, piece: &PieceRef) -> ChunkState {
        let end = u64::from(piece.start) + u64::from(piece.len);
        if usize::from(piece.shard) >= shape.geometry.data() || end > shape.stored_bytes() {
            return ChunkState::Corrupt("the piece leaves its stripe".to_owned());
        }
        let offset = shape.stripe_offset + u64::from(piece.start);
        match self.read(piece.shard.into(), offset, piece.len as usize).await {
            Ok(bytes) if bytes.len() == piece.len as usize && crc64(&bytes) == piece.crc64 => ChunkState::Valid,
            Ok(_) => ChunkState::Corrupt("wrong checksum".to_owned()),
            Err(state) => state,
        }
    }
}

/// The stripe that the headers at an offset describe, if it is the expected one.
pub(super) fn shape_at(heads: &[Result<ChunkHeader, ChunkState>], stripe_index: u32) -> Option<StripeShape> {
    let mut shapes = heads.iter().flatten().map(|header| &header.shape);
    shapes.find(|shape| shape.stripe_index == stripe_index).cloned()
}

/// The state of a chunk as far as its header goes.
pub(super) fn chunk_state(head: &Result<ChunkHeader, ChunkState>, shape: &StripeShape) -> ChunkState {
    match head {
        Ok(header) if header.shape == *shape => ChunkState::Valid,
        Ok(_) => ChunkState::Corrupt("it describes another stripe".to_owned()),
        Err(state) => state.clone(),
    }
}

fn seal_view(block: &SealBlock) -> SealView {
    SealView {
        reason: format!("{:?}", block.reason).to_lowercase(),
        stripes: block.seal.stripes,
        end_offset: block.seal.end_offset,
        min_seq: block.seal.min_seq.to_string(),
        max_seq: block.seal.max_seq.to_string(),
        written_bytes: block.seal.written_bytes,
        distrusted: block.is_distrusted,
    }
}
