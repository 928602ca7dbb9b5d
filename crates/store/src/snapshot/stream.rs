//! The rows of an index as one run of bytes, and back. The layout is in docs/FORMAT.md.
//!
//! The log checks every byte that it returns, so the checksum at the end guards the order of the pieces and the code that wrote them.

use bytes::{Buf, BytesMut};
use gabion_erasure::Crc64;
use gabion_metadata::{ROW_BYTES_MAX, ROW_KEY_BYTES, Table};
use gabion_types::DeploymentId;

const MAGIC: &[u8; 8] = b"GABINDEX";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 32;
/// Table, length of the key, length of the row.
const ENTRY_HEAD_BYTES: usize = 7;
/// Stands where a table would.
const END: u8 = 0xff;
/// Number of rows, checksum.
const END_BYTES: usize = 17;

/// Why bytes are no snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("it is none, or of another version")]
    Header,
    #[error("it is of another deployment")]
    Deployment,
    #[error("a row has an impossible place or length")]
    Entry,
    #[error("its rows are out of order")]
    Order,
    #[error("its end does not fit its rows")]
    End,
    #[error("it is cut short")]
    Short,
}

/// Writes rows.
pub(crate) struct Encoder {
    crc: Crc64,
    rows: u64,
}

impl Encoder {
    /// Begins, with the first bytes.
    pub(crate) fn new(deployment: DeploymentId) -> (Self, Vec<u8>) {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.resize(16, 0);
        out.extend_from_slice(&deployment.to_bytes());
        let mut this = Self { crc: Crc64::new(), rows: 0 };
        this.crc.update(&out);
        (this, out)
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row to `out`. Rows come table by table, ascending.
    pub(crate) fn put(&mut self, table: Table, key: &[u8], row: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.push(table as u8);
        out.extend_from_slice(&u16::try_from(key.len()).expect("within ROW_KEY_BYTES").to_le_bytes());
        out.extend_from_slice(&u32::try_from(row.len()).expect("at most ROW_BYTES_MAX").to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(row);
        self.crc.update(&out[start..]);
        self.rows += 1;
    }

    /// The last bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let mut out = vec![END];
        out.extend_from_slice(&self.rows.to_le_bytes());
        self.crc.update(&out);
        out.extend_from_slice(&self.crc.finish().to_le_bytes());
        out
    }
}

/// A row that was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) table: Table,
    pub(crate) key: Vec<u8>,
    pub(crate) row: Vec<u8>,
}

/// Reads rows from bytes that come in pieces; holds one row and one piece.
pub(crate) struct Decoder {
    deployment: DeploymentId,
    rest: BytesMut,
    crc: Crc64,
    rows: u64,
    last: Option<(Table, Vec<u8>)>,
    has_begun: bool,
    has_ended: bool,
}

impl Decoder {
    /// Of a snapshot of this deployment's index.
    pub(crate) fn new(deployment: DeploymentId) -> Self {
        Self {
            deployment,
            rest: BytesMut::new(),
            crc: Crc64::new(),
            rows: 0,
            last: None,
            has_begun: false,
            has_ended: false,
        }
    }

    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    /// The next row that is there as a whole; nothing when more bytes are needed, or after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, StreamError> {
        if !self.has_begun {
            if self.rest.len() < HEADER_BYTES {
                return Ok(None);
            }
            self.begin()?;
        }
        match self.rest.first() {
            None => Ok(None),
            Some(_) if self.has_ended => Err(StreamError::End),
            Some(&END) => self.end(),
            Some(_) => self.entry(),
        }
    }

    /// After the last bytes: the number of rows.
    pub(crate) fn finish(self) -> Result<u64, StreamError> {
        if self.has_ended && self.rest.is_empty() { Ok(self.rows) } else { Err(StreamError::Short) }
    }

    fn begin(&mut self) -> Result<(), StreamError> {
        let header = self.rest.split_to(HEADER_BYTES);
        self.crc.update(&header);
        let (front, deployment) = header.split_at(16);
        let (magic, version) = front.split_at(8);
        if magic != MAGIC || version != [&VERSION.to_le_bytes()[..], &[0; 6]].concat() {
            return Err(StreamError::Header);
        }
        if deployment != self.deployment.to_bytes() {
            return Err(StreamError::Deployment);
        }
        self.has_begun = true;
        Ok(())
    }

    fn entry(&mut self) -> Result<Option<Entry>, StreamError> {
        if self.rest.len() < ENTRY_HEAD_BYTES {
            return Ok(None);
        }
        let mut head = &self.rest[..ENTRY_HEAD_BYTES];
        let (table, key_bytes, row_bytes) = (head.get_u8(), head.get_u16_le(), head.get_u32_le());
        let (key_bytes, row_bytes) = (usize::from(key_bytes), row_bytes as usize);
        let table = *Table::ALL.get(usize::from(table)).ok_or(StreamError::Entry)?;
        if !ROW_KEY_BYTES.contains(&key_bytes) || row_bytes > ROW_BYTES_MAX {
            return Err(StreamError::Entry);
        }
        let entry_bytes = ENTRY_HEAD_BYTES + key_bytes + row_bytes;
        if self.rest.len() < entry_bytes {
            return Ok(None);
        }
        let entry = self.rest.split_to(entry_bytes);
        self.crc.update(&entry);
        let (key, row) = entry[ENTRY_HEAD_BYTES..].split_at(key_bytes);
        let place = (table, key.to_vec());
        if self.last.as_ref().is_some_and(|last| *last >= place) {
            return Err(StreamError::Order);
        }
        self.rows += 1;
        let entry = Entry { table, key: key.to_vec(), row: row.to_vec() };
        self.last = Some(place);
        Ok(Some(entry))
    }

    fn end(&mut self) -> Result<Option<Entry>, StreamError> {
        if self.rest.len() < END_BYTES {
            return Ok(None);
        }
        let end = self.rest.split_to(END_BYTES);
        self.crc.update(&end[..9]);
        let (mut rows, mut crc) = (&end[1..9], &end[9..]);
        if rows.get_u64_le() != self.rows || crc.get_u64_le() != self.crc.finish() {
            return Err(StreamError::End);
        }
        self.has_ended = true;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEPLOYMENT: DeploymentId = DeploymentId::from_u128(77);

    fn encoded(rows: &[Entry]) -> Vec<u8> {
        let (mut encoder, mut out) = Encoder::new(DEPLOYMENT);
        for entry in rows {
            encoder.put(entry.table, &entry.key, &entry.row, &mut out);
        }
        assert_eq!(encoder.rows(), rows.len() as u64);
        out.extend(encoder.finish());
        out
    }

    fn decoded(bytes: &[u8], piece_bytes: usize, deployment: DeploymentId) -> Result<Vec<Entry>, StreamError> {
        let (mut decoder, mut rows) = (Decoder::new(deployment), Vec::new());
        for piece in bytes.chunks(piece_bytes) {
            decoder.push(piece);
            while let Some(entry) = decoder.next()? {
                rows.push(entry);
            }
        }
        assert_eq!(decoder.finish()?, rows.len() as u64);
        Ok(rows)
    }

    fn rows() -> Vec<Entry> {
        let entry = |table, key: &str, row: usize| Entry { table, key: key.as_bytes().to_vec(), row: vec![7; row] };
        vec![
            entry(Table::Bucket, "bkt", 20),
            entry(Table::Object, "bkt\0a", 0),
            entry(Table::Object, "bkt\0b", 300),
            entry(Table::System, "format", 8),
        ]
    }

    #[test]
    fn rows_round_trip_in_pieces_of_any_length() {
        let bytes = encoded(&rows());
        for piece_bytes in [1, 2, 7, 31, 32, 33, 100, bytes.len()] {
            assert_eq!(decoded(&bytes, piece_bytes, DEPLOYMENT), Ok(rows()));
        }
        assert_eq!(decoded(&encoded(&[]), 5, DEPLOYMENT), Ok(Vec::new()));
    }

    #[test]
    fn what_was_changed_cut_or_lengthened_is_refused() {
        let bytes = encoded(&rows());
        for at in 0..bytes.len() {
            assert!(decoded(&bytes[..at], 50, DEPLOYMENT).is_err(), "cut at {at}");
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(decoded(&changed, 50, DEPLOYMENT).is_err(), "changed at {at}");
        }
        assert!(decoded(&[&bytes[..], &[0]].concat(), 50, DEPLOYMENT).is_err());
        assert_eq!(decoded(&bytes, 50, DeploymentId::from_u128(78)), Err(StreamError::Deployment));
        let mut twice = rows();
        twice.swap(1, 2);
        assert_eq!(decoded(&encoded(&twice), 50, DEPLOYMENT), Err(StreamError::Order));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1_usize..50) {
            let _ = decoded(&bytes, piece, DEPLOYMENT);
            let (_, mut begun) = Encoder::new(DEPLOYMENT);
            begun.extend(&bytes);
            let _ = decoded(&begun, piece, DEPLOYMENT);
        }
    }
}
