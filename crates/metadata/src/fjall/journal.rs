//! What fjall does not check of its journals when it opens them.
//!
//! - *Files that are gone*: journals are numbered without gaps, and there is always one; fjall takes what it finds.
//! - *Sequence numbers*: the checksum of a batch covers its rows, not the number that orders them against other batches.
//!   Numbers rise from batch to batch, so a damaged one that would bring an old row back is out of order.
//! - *Where they end*: tables may have what no journal has any more, which is for who opens the index to see.
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
    io::{self, BufReader, ErrorKind, Read, Seek},
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
    let (mut last, mut whole) = (0, 0);
    for number in numbers {
        let mut entries = BufReader::with_capacity(256 * 1024, File::open(database.join(format!("{number}.jnl")))?);
        while let Some(entry) = next(&mut entries)? {
            match entry {
                Entry::Start { sequence } if sequence < last => {
                    let order = format!("batch {sequence} comes after batch {last} in journal {number}");
                    return Err(IndexError::Corrupt(order));
                }
                Entry::Start { sequence } => last = sequence,
                Entry::End => whole = last,
                Entry::Other => {}
            }
        }
    }
    Ok(whole)
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
    while let Ok(Some(_)) = next(&mut entries) {}
}

/// The next entry; nothing at the end of what can be understood.
fn next(entries: &mut BufReader<impl Read + Seek>) -> io::Result<Option<Entry>> {
    match read_entry(entries) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        other => other,
    }
}

fn read_entry(entries: &mut BufReader<impl Read + Seek>) -> io::Result<Option<Entry>> {
    let entry = match array(entries)? {
        [1] => {
            let [_, _, _, _, sequence @ ..]: [u8; 12] = array(entries)?;
            Entry::Start { sequence: u64::from_le_bytes(sequence) }
        }
        [2] => {
            let head: [u8; ITEM_HEAD_BYTES] = array(entries)?;
            let key_bytes = u16::from_le_bytes([head[10], head[11]]);
            let row_bytes = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
            entries.seek_relative(i64::from(key_bytes) + i64::from(row_bytes))?;
            Entry::Other
        }
        [3] => match array::<12>(entries)? {
            [.., a, b, c, d] if [a, b, c, d] == MAGIC => Entry::End,
            _ => return Ok(None),
        },
        [4] => array::<8>(entries).map(|_| Entry::Other)?,
        _ => return Ok(None),
    };
    Ok(Some(entry))
}

fn array<const N: usize>(entries: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    entries.read_exact(&mut bytes)?;
    Ok(bytes)
}
