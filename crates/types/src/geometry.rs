//! The geometry of a set: how many data and parity shards a segment has.

use std::{fmt, str::FromStr};

use crate::limits::{DATA_SHARDS_MAX, PARITY_SHARDS_MAX, SHARDS_MAX};

/// `k` data and `m` parity shards, written `k+m`. `1 ≤ k ≤ 128`, `0 ≤ m ≤ 16`, `k + m ≤ 255`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Geometry {
    data: u8,
    parity: u8,
}

/// Why a geometry was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("geometry {text:?}: {reason}; write it as k+m, e.g. 4+2, with k from 1 to 128 and m from 0 to 16")]
pub struct GeometryError {
    text: String,
    reason: &'static str,
}

impl Geometry {
    /// One data shard, no redundancy: for one directory on storage that is redundant by itself.
    pub const SINGLE: Geometry = Geometry { data: 1, parity: 0 };

    /// Checks the bounds of `data` and `parity`.
    ///
    /// # Errors
    /// When a count is out of range.
    pub fn new(data: usize, parity: usize) -> Result<Self, GeometryError> {
        let error = |reason| GeometryError { text: format!("{data}+{parity}"), reason };
        if !(1..=DATA_SHARDS_MAX).contains(&data) {
            return Err(error("the number of data shards is out of range"));
        }
        if parity > PARITY_SHARDS_MAX {
            return Err(error("the number of parity shards is out of range"));
        }
        if data + parity > SHARDS_MAX {
            return Err(error("more than 255 shards"));
        }
        let byte = |count: usize| u8::try_from(count).expect("bounded by SHARDS_MAX");
        Ok(Self { data: byte(data), parity: byte(parity) })
    }

    /// Number of data shards, `k`.
    #[must_use]
    pub fn data(self) -> usize {
        usize::from(self.data)
    }

    /// Number of parity shards, `m`: how many lost targets a segment survives.
    #[must_use]
    pub fn parity(self) -> usize {
        usize::from(self.parity)
    }

    /// Number of shards, `k + m`.
    #[must_use]
    pub fn shards(self) -> usize {
        self.data() + self.parity()
    }

    /// Fewest chunks that must be durable before a stripe is acknowledged when targets fail in the middle:
    /// `k + 1`, or `k` when `m = 0`, so that an acknowledged write survives one more loss.
    #[must_use]
    pub fn quorum(self) -> usize {
        self.data() + usize::from(self.parity > 0)
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

impl fmt::Debug for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Geometry {
    type Err = GeometryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |reason| GeometryError { text: text.to_owned(), reason };
        let (data, parity) = text.split_once('+').ok_or_else(|| error("there is no '+'"))?;
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            if plain { digits.parse::<usize>().ok() } else { None }
        };
        let data = number(data).ok_or_else(|| error("the part before '+' is no number"))?;
        let parity = number(parity).ok_or_else(|| error("the part after '+' is no number"))?;
        Self::new(data, parity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_it_prints_and_refuses_the_rest() {
        for text in ["1+0", "4+2", "8+3", "128+16"] {
            assert_eq!(text.parse::<Geometry>().unwrap().to_string(), text);
        }
        for text in ["", "4", "0+1", "129+1", "4+17", "4+-1", "+2", "4+", " 4+2", "4+2+1", "a+b"] {
            assert!(text.parse::<Geometry>().is_err(), "{text}");
        }
    }

    #[test]
    fn quorum_leaves_one_spare_where_there_is_parity() {
        assert_eq!(Geometry::new(4, 2).unwrap().quorum(), 5);
        assert_eq!(Geometry::new(4, 1).unwrap().quorum(), 5);
        assert_eq!(Geometry::new(4, 0).unwrap().quorum(), 4);
        assert_eq!(Geometry::SINGLE.quorum(), 1);
    }
}
