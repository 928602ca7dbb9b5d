//! What reads make of rows that are read again and again.
//!
//! A row has to be decoded, into a dozen fields with memory of their own: an eighth of what a get or head costs the server. What was made of it is kept with the very
//! bytes that the row cache has, until another row takes their place here: whoever finds these bytes in the index again, the same and not merely equal ones, finds what was made of them.

use std::sync::Arc;

use gabion_metadata::{
    Value,
    rows::{ObjectRow, Row},
};
use parking_lot::Mutex;

use super::info;
use crate::{ObjectInfo, StoreError};

/// Sets that rows are kept in, each row in the one that is its own: a power of two.
const SETS: usize = 1 << 13;
/// Rows of a set: two that are read in turn do not drive each other out.
const WAYS: usize = 2;
/// Longest row that is kept, in bytes; with what is made of it that is some 2 KiB, and 5 when it is a list of very short texts.
const ROW_BYTES_MAX: usize = 256;

/// What a read needs of an object's row.
pub(crate) struct Known {
    /// Without its attributes and checksums.
    pub row: ObjectRow,
    /// What is said about the object; it has these.
    pub info: Arc<ObjectInfo>,
}

impl Known {
    pub(crate) fn new(mut row: ObjectRow) -> Self {
        let info = Arc::new(info(&mut row));
        Self { row, info }
    }
}

/// Rows that were decoded.
pub(crate) struct KnownRows(Box<[Mutex<Set>]>);

/// The last of a set that were decoded, the newest first.
type Set = [Option<Kept>; WAYS];

struct Kept {
    value: Value,
    known: Arc<Known>,
}

impl Default for KnownRows {
    fn default() -> Self {
        Self((0..SETS).map(|_| Mutex::default()).collect())
    }
}

impl KnownRows {
    /// What `value`, an object's row, says.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn get(&self, value: &Value) -> Result<Arc<Known>, StoreError> {
        let decode = || Ok(Arc::new(Known::new(ObjectRow::decode(value)?)));
        if value.len() > ROW_BYTES_MAX {
            return decode();
        }
        // Whoever does not get in at once decodes it.
        let set = self.set(value);
        if let Some(rows) = set.try_lock()
            && let Some(kept) = find(&rows, value)
        {
            return Ok(Arc::clone(&kept.known));
        }
        let known = decode()?;
        // What was there is given back when nobody waits for the set any more.
        drop(self.keep(Kept { value: value.clone(), known: Arc::clone(&known) }));
        Ok(known)
    }

    /// Keeps a row if nobody has its set; what is not kept any more for it.
    fn keep(&self, new: Kept) -> Option<Kept> {
        let mut rows = self.set(&new.value).try_lock()?;
        // Somebody else may have decoded it at the same time.
        if find(&rows, &new.value).is_some() {
            return Some(new);
        }
        rows.rotate_right(1);
        rows[0].replace(new)
    }

    fn set(&self, value: &Value) -> &Mutex<Set> {
        &self.0[number_of_set(value.as_ptr().addr())]
    }
}

fn find<'a>(rows: &'a Set, value: &Value) -> Option<&'a Kept> {
    rows.iter().flatten().find(|kept| is_same(&kept.value, value))
}

/// Whether both are the same bytes, in the same place. What is kept keeps its place, so that no other bytes can lie there.
fn is_same(one: &Value, other: &Value) -> bool {
    one.as_ptr() == other.as_ptr() && one.len() == other.len()
}

/// The set of a row at this address. Rows lie at equal distances where they were allocated one after the other: of both words of the product, as the highest bits of the lower one alone are the
/// same for many rows at some distances.
fn number_of_set(address: usize) -> usize {
    let product = address as u128 * 0x9e37_79b9_7f4a_7c15;
    (product as usize ^ (product >> u64::BITS) as usize) % SETS
}

#[cfg(test)]
mod tests {
    use gabion_metadata::rows::{Attributes, Etag, Home, Layout};
    use gabion_types::{SegmentId, Seq};

    use super::*;

    fn row(size: u64, content_type: &str) -> Value {
        let row = ObjectRow {
            seq: Seq::ZERO,
            modified_ms: 1,
            size,
            etag: Etag::Md5([7; 16]),
            layout: Layout::Empty,
            attributes: Attributes { content_type: Some(content_type.to_owned()), ..Attributes::default() },
            checksums: Vec::new(),
            parts: None,
            home: Home { segment: SegmentId::from_u128(1), bytes: 100 },
            kind: None,
            moved: None,
            former_homes: Some(Vec::new()),
        };
        row.encode().into()
    }

    #[test]
    fn a_row_is_decoded_once_as_long_as_it_is_the_same() {
        let rows = KnownRows::default();
        let value = row(1, "a/b");
        let known = rows.get(&value).unwrap();
        assert_eq!((known.info.size, known.info.attributes.content_type.as_deref()), (1, Some("a/b")));
        assert!(Arc::ptr_eq(&known, &rows.get(&value.clone()).unwrap()));
        // Equal bytes elsewhere may be another row's tomorrow.
        assert!(!Arc::ptr_eq(&known, &rows.get(&Value::copy_from_slice(&value)).unwrap()));
    }

    #[test]
    fn rows_that_come_and_go_are_never_taken_for_each_other() {
        let rows = KnownRows::default();
        for size in 0..3 * (SETS * WAYS) as u64 {
            // Memory of rows that went is used again, unless they are kept.
            assert_eq!(rows.get(&row(size, "a/b")).unwrap().row.size, size);
        }
    }

    #[test]
    fn two_rows_of_a_set_are_both_kept() {
        let (rows, values) = (KnownRows::default(), (0..=SETS as u64).map(|size| row(size, "a/b")).collect::<Vec<_>>());
        let mut first_of = vec![None; SETS];
        // There are more of them than sets.
        let pair = values
            .iter()
            .find_map(|value| Some([first_of[number_of_set(value.as_ptr().addr())].replace(value)?, value]))
            .unwrap();
        let known = pair.map(|value| rows.get(value).unwrap());
        let both_are_there =
            || pair.iter().zip(&known).all(|(value, known)| Arc::ptr_eq(known, &rows.get(value).unwrap()));
        assert!(both_are_there() && both_are_there());
        // Who could not look, or looked too early, has decoded it as well.
        let [first, second] = pair;
        for again in [first, second] {
            let late = rows
                .keep(Kept { value: again.clone(), known: Arc::new(Known::new(ObjectRow::decode(again).unwrap())) });
            assert!(late.is_some_and(|late| is_same(&late.value, again)) && both_are_there());
        }
    }

    #[test]
    fn rows_at_equal_distances_are_spread_over_the_sets() {
        for base in [0x5555_5575_a2a0, 0x7f3a_1234_0000] {
            for distance in (16..=512).step_by(16) {
                let mut count_of = vec![0; SETS];
                (0..2048).for_each(|row| count_of[number_of_set(base + row * distance)] += 1);
                let crowded: usize = count_of.iter().filter(|count| **count > WAYS).sum();
                assert!(crowded < 2048 / 8, "{crowded} of 2048 at {distance} bytes from each other");
            }
        }
    }

    #[test]
    fn long_rows_and_what_is_none_are_not_kept() {
        let rows = KnownRows::default();
        let long = row(1, &"x".repeat(ROW_BYTES_MAX));
        assert!(!Arc::ptr_eq(&rows.get(&long).unwrap(), &rows.get(&long).unwrap()));
        assert!(rows.get(&Value::from_static(b"none")).is_err());
        assert!(rows.0.iter().all(|set| set.lock().iter().all(Option::is_none)));
    }
}
