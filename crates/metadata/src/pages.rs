//! Scans of any length, some rows at a time.

use crate::{IndexError, Rows, ScanRange};

/// What is left of a range of rows.
pub struct Pages {
    left: Option<ScanRange>,
    rows_max: usize,
}

impl Pages {
    /// The rows of `range`, at most `rows_max` at a time.
    #[must_use]
    pub fn new(range: ScanRange, rows_max: usize) -> Self {
        Self { left: Some(range), rows_max }
    }

    /// The next rows, as `scan` of an index or of one moment of it finds them; nothing after the last.
    ///
    /// # Errors
    /// Those of `scan`.
    pub fn next(
        &mut self,
        scan: impl FnOnce(ScanRange, usize) -> Result<Rows, IndexError>,
    ) -> Result<Option<Rows>, IndexError> {
        let Some(range) = self.left.take() else { return Ok(None) };
        let rows = scan(range.clone(), self.rows_max)?;
        if let Some((last, _)) = rows.last().filter(|_| rows.len() == self.rows_max) {
            self.left = Some(range.after(last));
        }
        Ok((!rows.is_empty()).then_some(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Index, MemoryIndex, Table, Write};

    #[test]
    fn every_row_comes_once_whatever_the_page() {
        let index = MemoryIndex::new();
        let key = |number: u8| vec![b'k', number];
        index
            .commit(&[], (0..10).map(|number| Write::Put(Table::Bucket, key(number), vec![number])).collect())
            .unwrap();
        for rows_max in [1, 3, 5, 9, 10, 11] {
            let (mut pages, mut found) = (Pages::new(ScanRange::all(Table::Bucket), rows_max), Vec::new());
            while let Some(rows) = pages.next(|range, limit| index.scan(range, limit)).unwrap() {
                assert!((1..=rows_max).contains(&rows.len()));
                found.extend(rows.into_iter().map(|(key, _)| key));
            }
            assert_eq!(found, (0..10).map(key).collect::<Vec<_>>(), "{rows_max}");
        }
        let mut pages = Pages::new(ScanRange::all(Table::Object), 3);
        assert!(pages.next(|range, limit| index.scan(range, limit)).unwrap().is_none());
    }
}
