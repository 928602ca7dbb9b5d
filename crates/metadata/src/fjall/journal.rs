//! What fjall does not check of its journals when it opens them.
//!
//! - *Files that are gone*: journals are numbered without gaps, and there is always one; fjall takes what it finds.
//! - *Sequence numbers*: the checksum of a batch covers its rows, not the number that orders them against other batches.
//!   Numbers rise from batch to batch, so a damaged one that would bring an old row back is out of order.
//! - *Where they end*: fjall drops what is behind the first entry that makes no sense. In the last journal that is what a power cut left; those before it were synced when the next was begun, and have zeros there or nothing.
//!   What tables have beyond the last journal is for who opens the index to see.
//!
//! Everything else is fjall's to judge: this reader stops where it meets what it does not understand, as happens at the end
//! of every journal. Layout of fjall's format 3, integers little-endian; a batch is `Start`, items, `End`:
//!
//! | entry | bytes |
//! | --- | --- |
//! | `Start` | 1, item count u32, sequence u64 |
//! | `Item` | 2, type u8, compression u8, keyspace u64, key length u16, row length u32, stored length u32, key, row |
//! | `End` | 3, checksum u64, 4 bytes of magic |
//! | `Clear` | 4, keyspace u64 |

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, ErrorKind, Read, Seek},
    path::Path,
};

use crate::IndexError;

/// Length of an `Item` before its key, without the tag.
const ITEM_HEAD_BYTES: usize = 20;
/// What a batch ends with: fjall drops one without it.
const MAGIC: [u8; 4] = *b"FJL\x03";

/// Checks the journals of a database, which fjall must not have open; returns the sequence of the last batch that is there as a whole, 0 where there is none.
pub(super) fn check(database: &Path) -> Result<u64, IndexError> {
    let numbers = numbers(database)?;
    if numbers.is_empty() || numbers.windows(2).any(|pair| pair[0] + 1 != pair[1]) {
        return Err(IndexError::Corrupt(format!("journals are missing: there are {numbers:?}")));
    }
    let newest = numbers.last().copied();
    let mut last = 0;
    for number in numbers {
        let path = database.join(format!("{number}.jnl"));
        let batches = Batches::read(&mut open(&path)?, last)?;
        let batches = batches.map_err(|why| IndexError::Corrupt(format!("{why} in journal {number}")))?;
        last = batches.last;
        if Some(number) != newest && !is_zero_from(&path, batches.end)? {
            let why = format!("journal {number}, which is not the last, is damaged behind batch {last}");
            return Err(IndexError::Corrupt(why));
        }
    }
    Ok(last)
}

fn open(path: &Path) -> io::Result<BufReader<File>> {
    Ok(BufReader::with_capacity(256 * 1024, File::open(path)?))
}

/// Whether a file has nothing but zeros from `offset` on, if anything.
fn is_zero_from(path: &Path, offset: u64) -> io::Result<bool> {
    let mut rest = open(path)?;
    rest.seek_relative(i64::try_from(offset).map_err(io::Error::other)?)?;
    loop {
        let bytes = rest.fill_buf()?;
        let (read, is_zero) = (bytes.len(), bytes.iter().all(|byte| *byte == 0));
        if read == 0 || !is_zero {
            return Ok(is_zero);
        }
        rest.consume(read);
    }
}

/// The batches of a journal, as fjall takes them.
struct Batches {
    /// The sequence of the last that is whole, or of the journal before.
    last: u64,
    /// Where that ends.
    end: u64,
    offset: u64,
    /// The sequence of one that is not whole yet.
    under_way: Option<u64>,
}

impl Batches {
    /// Those of a journal that comes after the batch `last`, as far as fjall reads it; a sentence if their order is none.
    fn read(entries: &mut BufReader<impl Read + Seek>, last: u64) -> io::Result<Result<Self, String>> {
        let mut batches = Self { last, end: 0, offset: 0, under_way: None };
        while let Some((entry, bytes)) = next(entries)? {
            match batches.take(entry, bytes) {
                Ok(true) => {}
                Ok(false) => break,
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(batches))
    }

    /// Takes the next entry, of so many bytes. Whether fjall goes on behind it; a sentence if the order is not one.
    fn take(&mut self, entry: Entry, bytes: u64) -> Result<bool, String> {
        self.offset += bytes;
        match (entry, self.under_way) {
            (Entry::Start { sequence }, None) => {
                if sequence < self.last {
                    return Err(format!("batch {sequence} comes after batch {}", self.last));
                }
                self.under_way = Some(sequence);
            }
            (Entry::End, Some(sequence)) => {
                (self.last, self.end, self.under_way) = (sequence, self.offset, None);
            }
            (Entry::Other, Some(_)) => {}
            // fjall drops this, and all behind it.
            (Entry::Start { .. }, Some(_)) | (Entry::End | Entry::Other, None) => return Ok(false),
        }
        Ok(true)
    }
}

/// Numbers of the journals, ascending.
fn numbers(database: &Path) -> Result<Vec<u64>, IndexError> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(database)? {
        let name = entry?.file_name();
        if let Some(number) = name.to_str().and_then(|name| name.strip_suffix(".jnl")) {
            let number = number.parse::<u64>();
            numbers.push(number.map_err(|_| IndexError::Corrupt(format!("{name:?} is no journal")))?);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

enum Entry {
    Start { sequence: u64 },
    End,
    Other,
}

/// Reads a journal to its end.
#[cfg(feature = "fuzzing")]
pub(super) fn read(journal: &[u8]) {
    let mut entries = BufReader::with_capacity(512, io::Cursor::new(journal));
    let _ = Batches::read(&mut entries, 0);
}

/// The next entry and its length; nothing at the end of what can be understood.
fn next(entries: &mut BufReader<impl Read + Seek>) -> io::Result<Option<(Entry, u64)>> {
    match read_entry(entries) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        other => other,
    }
}

fn read_entry(entries: &mut BufReader<impl Read + Seek>) -> io::Result<Option<(Entry, u64)>> {
    let entry = match array(entries)? {
        [1] => {
            let [_, _, _, _, sequence @ ..]: [u8; 12] = array(entries)?;
            (Entry::Start { sequence: u64::from_le_bytes(sequence) }, 13)
        }
        [2] => {
            let head: [u8; ITEM_HEAD_BYTES] = array(entries)?;
            let key_bytes = u16::from_le_bytes([head[10], head[11]]);
            let row_bytes = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
            let content_bytes = u64::from(key_bytes) + u64::from(row_bytes);
            entries.seek_relative(content_bytes.cast_signed())?;
            (Entry::Other, 1 + ITEM_HEAD_BYTES as u64 + content_bytes)
        }
        [3] => match array::<12>(entries)? {
            [.., a, b, c, d] if [a, b, c, d] == MAGIC => (Entry::End, 13),
            _ => return Ok(None),
        },
        [4] => (array::<8>(entries).map(|_| Entry::Other)?, 9),
        _ => return Ok(None),
    };
    Ok(Some(entry))
}

fn array<const N: usize>(entries: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    entries.read_exact(&mut bytes)?;
    Ok(bytes)
}
