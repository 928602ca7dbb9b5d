//! Which segments are worth compacting. Pure.
//!
//! Moving what is live of a segment costs reading and writing its live share `u`, and gives back the rest. What is old tends to stay as it is,
//! what is young goes on dying by itself, so room in an old segment is worth more: the measure is `(1 - u) · age / (1 + u)`
//! (Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File System", 1992).
//!
//! When space is short, nearly full segments are worth it, too, and what is moved too early is moved once more: then the emptiest go first,
//! and no more of them than is needed.

use gabion_types::SegmentId;

/// Age beyond which nothing changes, in milliseconds: 30 days. Segments of large objects hold no sequences and count as old:
/// what lies in them dies in large pieces, not bit by bit.
const AGE_MAX_MS: u64 = 30 * 24 * 3600 * 1000;

/// A sealed segment in which something is live.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sealed {
    pub id: SegmentId,
    /// Bytes that rows refer to; those that two rows share count twice.
    pub live_bytes: u64,
    /// Payload when it was sealed, in bytes.
    pub written_bytes: u64,
    /// Time since its last record, in milliseconds.
    pub age_ms: u64,
}

/// What bounds a choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Most of a segment that may be live.
    pub live_ratio_max: f64,
    /// Most that all of them together have live, in bytes.
    pub live_bytes_max: u64,
    /// What is to be given back, in bytes, if more than that is no use now.
    pub enough_bytes: Option<u64>,
}

impl Sealed {
    /// What moving the live part gives back, in bytes.
    pub(super) fn garbage_bytes(&self) -> u64 {
        self.written_bytes.saturating_sub(self.live_bytes)
    }

    /// Whether so much of it is dead that it is worth moving the rest.
    pub(super) fn is_debt(&self, live_ratio_max: f64) -> bool {
        self.written_bytes > 0 && self.live_ratio() <= live_ratio_max && self.garbage_bytes() > 0
    }

    fn live_ratio(&self) -> f64 {
        self.live_bytes as f64 / self.written_bytes as f64
    }

    fn worth(&self) -> f64 {
        let (live, age) = (self.live_ratio(), self.age_ms.clamp(1, AGE_MAX_MS) as f64);
        (1.0 - live) * age / (1.0 + live)
    }
}

/// The segments that are worth most, as many as the bounds allow.
pub(super) fn choose(mut sealed: Vec<Sealed>, bounds: Bounds) -> Vec<Sealed> {
    sealed.retain(|segment| segment.is_debt(bounds.live_ratio_max));
    sealed.sort_by(|a, b| {
        let by_worth = match bounds.enough_bytes {
            Some(_) => a.live_ratio().total_cmp(&b.live_ratio()),
            None => b.worth().total_cmp(&a.worth()),
        };
        by_worth.then(a.id.cmp(&b.id))
    });
    let (mut left, mut wanted) = (bounds.live_bytes_max, bounds.enough_bytes.unwrap_or(u64::MAX));
    let mut fits = |segment: &Sealed| match left.checked_sub(segment.live_bytes) {
        Some(rest) if wanted > 0 => {
            (left, wanted) = (rest, wanted.saturating_sub(segment.garbage_bytes()));
            true
        }
        _ => false,
    };
    sealed.retain(|segment| fits(segment));
    sealed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(number: u64, live_bytes: u64, age_ms: u64) -> Sealed {
        Sealed { id: SegmentId::new(1, number), live_bytes, written_bytes: 100, age_ms }
    }

    fn chosen(sealed: &[Sealed], live_ratio_max: f64, live_bytes_max: u64) -> Vec<u64> {
        let bounds = Bounds { live_ratio_max, live_bytes_max, enough_bytes: None };
        choose(sealed.to_vec(), bounds).iter().map(|segment| segment.id.as_u128() as u64).collect()
    }

    #[test]
    fn little_life_and_great_age_come_first() {
        let table = [sealed(1, 50, 1000), sealed(2, 10, 1000), sealed(3, 50, 9000), sealed(4, 90, 1_000_000)];
        assert_eq!(chosen(&table, 0.7, u64::MAX), [3, 2, 1]);
        assert_eq!(chosen(&table, 0.95, u64::MAX), [4, 3, 2, 1], "very old and nearly full is worth something, too");
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_smaller_ones_still_go() {
        let table = [sealed(1, 60, 9000), sealed(2, 30, 1000), sealed(3, 20, 10)];
        assert_eq!(chosen(&table, 0.7, 90), [1, 2]);
        assert_eq!(chosen(&table, 0.7, 59), [2, 3]);
        assert_eq!(chosen(&table, 0.7, 10), [0_u64; 0]);
    }

    #[test]
    fn where_so_much_is_enough_the_emptiest_go_whatever_their_age() {
        let table = [sealed(1, 50, 1000), sealed(2, 10, 10), sealed(3, 60, 9000), sealed(4, 20, 1)];
        let chosen = |enough, live_bytes_max| -> Vec<u64> {
            let bounds = Bounds { live_ratio_max: 0.95, live_bytes_max, enough_bytes: Some(enough) };
            choose(table.to_vec(), bounds).iter().map(|segment| segment.id.as_u128() as u64).collect()
        };
        assert_eq!(chosen(0, u64::MAX), [0_u64; 0]);
        assert_eq!(chosen(1, u64::MAX), [2]);
        assert_eq!(chosen(91, u64::MAX), [2, 4]);
        assert_eq!(chosen(10_000, u64::MAX), [2, 4, 1, 3]);
        assert_eq!(chosen(10_000, 70), [2, 4]);
    }

    #[test]
    fn shared_bytes_that_count_twice_and_empty_segments_are_no_debt() {
        let empty = Sealed { written_bytes: 0, live_bytes: 0, ..sealed(1, 0, 1) };
        assert_eq!(chosen(&[sealed(2, 150, 5), sealed(3, 100, 5), empty], 1.0, u64::MAX), [0_u64; 0]);
    }
}
