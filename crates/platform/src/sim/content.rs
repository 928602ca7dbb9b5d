//! The bytes of a simulated file: sparse, since segments are preallocated to a gigabyte and hold a few kilobytes in
//! a test.

use std::collections::{BTreeMap, BTreeSet};

use crate::entropy::Dice;

const PAGE_BYTES: u64 = 4096;

/// A length and the pages that were written; all else reads as zeros.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    len: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES as usize]>>,
    /// Whole pages that were punched out and not written since: they take no room.
    holes: BTreeSet<u64>,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The room that it takes: its length without the holes that were punched.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.len - self.holes.len() as u64 * PAGE_BYTES
    }

    /// The room that a write would take beyond that.
    pub(super) fn growth_bytes(&self, offset: u64, len: u64) -> u64 {
        let refilled = self.holes.range(offset / PAGE_BYTES..(offset + len).div_ceil(PAGE_BYTES)).count() as u64;
        (offset + len).saturating_sub(self.len) + refilled * PAGE_BYTES
    }

    /// Up to `len` bytes at `offset`, fewer at the end.
    pub(super) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = self.len.saturating_sub(offset).min(len as u64) as usize;
        let mut out = vec![0; len];
        for (page, within, range) in pages_of(offset, len) {
            if let Some(page) = self.pages.get(&page) {
                let count = range.len();
                out[range].copy_from_slice(&page[within..within + count]);
            }
        }
        out
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        for (page, within, range) in pages_of(offset, bytes.len()) {
            self.holes.remove(&page);
            let page = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_BYTES as usize]));
            page[within..within + range.len()].copy_from_slice(&bytes[range]);
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    /// Writes `len` zeros at `offset`, both multiples of a page. They take room, but are no place for rot.
    pub(super) fn zero(&mut self, offset: u64, len: u64) {
        for page in offset / PAGE_BYTES..(offset + len) / PAGE_BYTES {
            self.pages.remove(&page);
            self.holes.remove(&page);
        }
        self.len = self.len.max(offset + len);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE_BYTES));
            self.holes.split_off(&(len / PAGE_BYTES));
            if let Some(page) = self.pages.get_mut(&(len / PAGE_BYTES)) {
                page[(len % PAGE_BYTES) as usize..].fill(0);
            }
        }
        self.len = len;
    }

    /// The place of some byte that was ever written: rot in the zeros of a preallocated file would rarely hit anything.
    pub(super) fn any_offset(&self, dice: &mut Dice) -> Option<u64> {
        let count = self.pages.len() as u64;
        let page = if count > 0 { dice.below(count) } else { return None };
        let page = self.pages.keys().nth(page as usize)?;
        Some(page * PAGE_BYTES + dice.below(PAGE_BYTES)).filter(|offset| *offset < self.len)
    }

    /// Makes `len` bytes at `offset`, both multiples of a page, zeros without changing the length.
    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        let holes = offset / PAGE_BYTES..((offset + len) / PAGE_BYTES).min(self.len / PAGE_BYTES);
        for page in holes {
            self.pages.remove(&page);
            self.holes.insert(page);
        }
        // The page in which the file ends is no hole.
        let last = self.len / PAGE_BYTES;
        if (offset..offset + len).contains(&(last * PAGE_BYTES)) {
            self.pages.remove(&last);
        }
    }

    /// Flips the lowest bit of one byte; false if there is no such byte.
    pub(super) fn flip_bit(&mut self, offset: u64) -> bool {
        let byte = self.read(offset, 1);
        let found = !byte.is_empty();
        if found {
            self.write(offset, &[byte[0] ^ 1]);
        }
        found
    }
}

/// The pages that a range touches: page index, offset in the page, range in the caller's buffer.
fn pages_of(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES) as usize;
        let count = (PAGE_BYTES as usize - within).min(len - done);
        let range = done..done + count;
        done += count;
        Some((at / PAGE_BYTES, within, range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_take_no_room_until_they_are_written() {
        let mut content = Content::default();
        content.set_len(10 * PAGE_BYTES + 100);
        content.punch(2 * PAGE_BYTES, 4 * PAGE_BYTES);
        content.punch(9 * PAGE_BYTES, 9 * PAGE_BYTES);
        assert_eq!(content.allocated_bytes(), 5 * PAGE_BYTES + 100, "the end of the file is no whole page");
        assert_eq!(content.growth_bytes(0, 2 * PAGE_BYTES), 0);
        assert_eq!(content.growth_bytes(2 * PAGE_BYTES - 1, 2), PAGE_BYTES);
        assert_eq!(content.growth_bytes(9 * PAGE_BYTES, 2 * PAGE_BYTES), 2 * PAGE_BYTES - 100);
        content.write(3 * PAGE_BYTES + 7, &[1]);
        assert_eq!(content.allocated_bytes(), 6 * PAGE_BYTES + 100);
        content.set_len(4 * PAGE_BYTES + 1);
        assert_eq!(content.allocated_bytes(), 3 * PAGE_BYTES + 1);
    }

    #[test]
    fn agrees_with_a_vector() {
        let mut dice = Dice::new(1);
        let (mut content, mut model) = (Content::default(), Vec::new());
        for round in 0..2000_u64 {
            let offset = dice.below(20_000) as usize;
            let len = dice.below(9000) as usize;
            match dice.below(3) {
                0 => {
                    let bytes = vec![round as u8; len];
                    content.write(offset as u64, &bytes);
                    if len > 0 {
                        model.resize(model.len().max(offset + len), 0);
                        model[offset..offset + len].copy_from_slice(&bytes);
                    }
                }
                1 if dice.below(8) == 0 => {
                    content.set_len(offset as u64);
                    model.resize(offset, 0);
                }
                _ => {
                    let start = offset.min(model.len());
                    let end = (offset + len).min(model.len()).max(start);
                    assert_eq!(content.read(offset as u64, len), model[start..end]);
                }
            }
            assert_eq!(content.len(), model.len() as u64);
        }
    }
}
