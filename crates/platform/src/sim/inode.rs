//! One simulated file: what is synced, what the cache shows, and the changes in between.

use bytes::Bytes;

use super::content::Content;
use crate::entropy::Dice;

/// What a disk writes as a whole or not at all; writes tear at its multiples.
pub const SECTOR_BYTES: usize = 512;
/// What a page cache writes back, and most of today's disks have for a sector.
const PAGE_BYTES: usize = 4096;

/// A file without its name.
#[derive(Debug, Default)]
pub(super) struct Inode {
    /// What reads see.
    cached: Content,
    /// What survives power loss for certain.
    synced: Content,
    /// Changes since the last sync, oldest first.
    dirty: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write { offset: u64, bytes: Bytes },
    SetLen { len: u64 },
    Punch { offset: u64, len: u64 },
}

impl Inode {
    /// A file of which this is on the medium, and nothing in the cache.
    pub(super) fn on_medium(content: Content) -> Self {
        Self { cached: content.clone(), synced: content, dirty: Vec::new() }
    }

    /// What is on the medium.
    pub(super) fn medium(&self) -> &Content {
        &self.synced
    }

    pub(super) fn len(&self) -> u64 {
        self.cached.len()
    }

    /// See [`Content::allocated_bytes`].
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.cached.allocated_bytes()
    }

    /// See [`Content::growth_bytes`].
    pub(super) fn growth_bytes(&self, offset: u64, len: u64) -> u64 {
        self.cached.growth_bytes(offset, len)
    }

    /// The place of some byte that was ever written.
    pub(super) fn any_offset(&self, dice: &mut Dice) -> Option<u64> {
        self.cached.any_offset(dice)
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Bytes {
        self.cached.read(offset, len).into()
    }

    pub(super) fn write(&mut self, offset: u64, bytes: Bytes) {
        self.cached.write(offset, &bytes);
        self.dirty.push(Change::Write { offset, bytes });
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.cached.set_len(len);
        self.dirty.push(Change::SetLen { len });
    }

    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        self.cached.punch(offset, len);
        self.dirty.push(Change::Punch { offset, len });
    }

    /// Zeros in the cache and on the medium, at once: whatever else lay there is gone.
    pub(super) fn prewrite(&mut self, offset: u64, len: u64) {
        self.cached.zero(offset, len);
        self.synced.zero(offset, len);
        let overlaps = |at: u64, bytes: &Bytes| at < offset + len && offset < at + bytes.len() as u64;
        self.dirty.retain(|change| !matches!(change, Change::Write { offset: at, bytes } if overlaps(*at, bytes)));
    }

    /// A write that fails midway: any of its sectors may be there.
    pub(super) fn write_torn(&mut self, offset: u64, bytes: &Bytes, dice: &mut Dice) {
        for (at, sector) in sectors(offset, bytes, SECTOR_BYTES) {
            if dice.coin() {
                self.write(at, sector);
            }
        }
    }

    /// All changes become durable.
    pub(super) fn sync(&mut self) {
        for change in self.dirty.drain(..) {
            match change {
                Change::Write { offset, bytes } => self.synced.write(offset, &bytes),
                Change::SetLen { len } => self.synced.set_len(len),
                Change::Punch { offset, len } => self.synced.punch(offset, len),
            }
        }
    }

    /// The cache calls its pages clean though they never reached the medium.
    pub(super) fn sync_failed(&mut self) {
        self.dirty.clear();
    }

    /// Power loss: each change is kept, lost or torn; then there is no cache.
    pub(super) fn lose_power(&mut self, dice: &mut Dice) {
        for change in self.dirty.drain(..) {
            match change {
                Change::SetLen { len } => {
                    if dice.coin() {
                        self.synced.set_len(len);
                    }
                }
                Change::Punch { offset, len } => {
                    if dice.coin() {
                        self.synced.punch(offset, len);
                    }
                }
                Change::Write { offset, bytes } => match dice.below(3) {
                    0 => self.synced.write(offset, &bytes),
                    1 => {}
                    _ => {
                        let sector_bytes = if dice.coin() { SECTOR_BYTES } else { PAGE_BYTES };
                        for (at, sector) in sectors(offset, &bytes, sector_bytes) {
                            if dice.coin() {
                                self.synced.write(at, &sector);
                            }
                        }
                    }
                },
            }
        }
        self.cached = self.synced.clone();
    }

    /// Flips a bit on the medium and in the cache; false if neither has such a byte.
    pub(super) fn flip_bit(&mut self, offset: u64) -> bool {
        let on_medium = self.synced.flip_bit(offset);
        self.cached.flip_bit(offset) || on_medium
    }
}

/// Cuts `bytes`, which lie at `offset`, where sectors of the file end.
fn sectors(offset: u64, bytes: &Bytes, sector_bytes: usize) -> impl Iterator<Item = (u64, Bytes)> {
    let mut rest = bytes.clone();
    let mut at = offset;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let to_border = sector_bytes - (at % sector_bytes as u64) as usize;
        let sector = rest.split_to(to_border.min(rest.len()));
        let start = at;
        at += sector.len() as u64;
        Some((start, sector))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_cut_at_borders_of_the_file() {
        let cuts: Vec<_> =
            sectors(500, &Bytes::from(vec![0; 1100]), 512).map(|(at, sector)| (at, sector.len())).collect();
        assert_eq!(cuts, [(500, 12), (512, 512), (1024, 512), (1536, 64)]);
        assert_eq!(sectors(7, &Bytes::new(), 4096).count(), 0);
    }
}
