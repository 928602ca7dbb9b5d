//! Ingestion: sorted rows become tables of the tree as they come, with no journal and nothing to compact.
//!
//! A thread of its own writes them, because fjall's writer may not change threads, and because that is half of the work of a restore: the
//! other half goes on meanwhile.

use std::{
    mem,
    path::PathBuf,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use fjall::Keyspace;

use super::watched;
use crate::{IndexError, Ingest, Table, ingest::Ascending};

/// Bytes of rows that are handed over together.
const BATCH_BYTES: usize = 1 << 20;
/// Batches on their way.
const BATCHES: usize = 4;

type Row = (Vec<u8>, Vec<u8>);

/// Rows on their way to the thread. It gives up what it wrote unless it is told that these were all.
pub(super) struct FjallIngest {
    order: Ascending,
    batch: Vec<Row>,
    batch_bytes: usize,
    /// Both there until the end.
    batches: Option<SyncSender<Message>>,
    writer: Option<JoinHandle<Result<(), IndexError>>>,
}

enum Message {
    Rows(Vec<Row>),
    End,
}

impl FjallIngest {
    pub(super) fn begin(dir: &std::path::Path, table: Table, keyspace: Keyspace) -> Result<Self, IndexError> {
        let (batches, receiver) = sync_channel(BATCHES);
        let dir = dir.to_owned();
        let name = "gabion-ingest".to_owned();
        let writer = thread::Builder::new().name(name).spawn(move || write(dir, &keyspace, &receiver))?;
        Ok(Self {
            order: Ascending::new(table),
            batch: Vec::new(),
            batch_bytes: 0,
            batches: Some(batches),
            writer: Some(writer),
        })
    }
}

fn write(dir: PathBuf, keyspace: &Keyspace, batches: &Receiver<Message>) -> Result<(), IndexError> {
    watched(&dir, || {
        let mut ingestion = keyspace.start_ingestion()?;
        for message in batches {
            match message {
                Message::Rows(rows) => rows.into_iter().try_for_each(|(key, row)| ingestion.write(key, row))?,
                Message::End => return ingestion.finish(),
            }
        }
        Ok(())
    })
}

impl Ingest for FjallIngest {
    fn put(&mut self, key: Vec<u8>, row: Vec<u8>) -> Result<(), IndexError> {
        self.order.check(&key, &row)?;
        self.batch_bytes += key.len() + row.len();
        self.batch.push((key, row));
        if self.batch_bytes >= BATCH_BYTES {
            self.batch_bytes = 0;
            let batch = mem::take(&mut self.batch);
            self.send(Message::Rows(batch));
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), IndexError> {
        let batch = mem::take(&mut self.batch);
        self.send(Message::Rows(batch));
        self.send(Message::End);
        self.end()
    }
}

impl FjallIngest {
    fn send(&self, message: Message) {
        if let Some(batches) = &self.batches {
            // If the thread is gone, the end says why.
            let _ = batches.send(message);
        }
    }

    fn end(&mut self) -> Result<(), IndexError> {
        self.batches = None;
        let Some(writer) = self.writer.take() else { return Ok(()) };
        writer.join().unwrap_or(Err(IndexError::Closed))
    }
}

/// An index that is thrown away must not be in use by a thread.
impl Drop for FjallIngest {
    fn drop(&mut self) {
        // What became of rows that nobody wants is nobody's concern.
        let _ = self.end();
    }
}
