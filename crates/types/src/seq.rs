//! The commit sequence: a hybrid logical clock that orders every mutation against every other.

use std::fmt;

/// 48 bits of milliseconds since the Unix epoch, then 16 bits that count commits within the millisecond.
///
/// Zero is before every commit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Seq(u64);

impl Seq {
    /// Before every commit.
    pub const ZERO: Seq = Seq(0);

    /// The sequence with this raw value.
    #[must_use]
    pub const fn from_u64(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw value.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The millisecond of the commit, Unix time.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0 >> 16
    }

    /// The next sequence at wall-clock time `now_ms`: above `self`, and at the clock's time where that is ahead.
    #[must_use]
    pub fn next(self, now_ms: u64) -> Self {
        Self((now_ms << 16).max(self.0.saturating_add(1)))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<C> minicbor::Encode<C> for Seq {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.u64(self.0)?.ok()
    }
}

impl<'b, C> minicbor::Decode<'b, C> for Seq {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        d.u64().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_goes_back_and_follows_the_clock() {
        let a = Seq::ZERO.next(1000);
        let b = a.next(1000);
        let c = b.next(900);
        let d = c.next(2000);
        assert!(a < b && b < c && c < d);
        assert_eq!((a.millis(), c.millis(), d.millis()), (1000, 1000, 2000));
    }
}
