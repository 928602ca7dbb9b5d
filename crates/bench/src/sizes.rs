//! Sizes of objects: one, a range, or a list with weights. Which one an object has follows from its key.

use std::str::FromStr;

use crate::{
    content::mix,
    units::{parse_bytes, show_bytes},
};

/// How large objects are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sizes {
    text: String,
    form: Form,
}

#[derive(Clone, Debug, PartialEq)]
enum Form {
    Fixed(u64),
    /// Between the two, uniform in the logarithm: as many from 4 to 8 KiB as from 8 to 16.
    Range(u64, u64),
    /// Sizes with the sum of the weights up to and with them.
    Weighted(Vec<(u64, u64)>),
}

/// A text that describes no sizes.
const EXAMPLES: &str = "write one size (4KiB), a range (4KiB..16MiB) or sizes with weights (4KiB:70,1MiB:25,16MiB:5)";

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = if let Some((low, high)) = text.split_once("..") {
            let (low, high) = (parse_bytes(low)?, parse_bytes(high)?);
            if low == 0 || low > high {
                return Err(format!("{text:?} is no range: its ends must ascend and be above 0; {EXAMPLES}"));
            }
            Form::Range(low, high)
        } else if text.contains(':') {
            Form::Weighted(weights(text)?)
        } else {
            Form::Fixed(parse_bytes(text).map_err(|error| format!("{error}; {EXAMPLES}"))?)
        };
        Ok(Self { text: text.to_owned(), form })
    }
}

fn weights(text: &str) -> Result<Vec<(u64, u64)>, String> {
    let mut sum = 0_u64;
    let mut steps = Vec::new();
    for item in text.split(',') {
        let (size, weight) = item.split_once(':').ok_or_else(|| format!("{item:?} has no weight: {EXAMPLES}"))?;
        let weight: u32 = weight.trim().parse().map_err(|_| format!("{weight:?} is no weight: {EXAMPLES}"))?;
        sum += u64::from(weight);
        steps.push((parse_bytes(size)?, sum));
    }
    if sum == 0 {
        return Err(format!("all weights of {text:?} are 0"));
    }
    Ok(steps)
}

impl Sizes {
    /// Objects of one size.
    pub(crate) fn fixed(bytes: u64) -> Self {
        Self { text: bytes.to_string(), form: Form::Fixed(bytes) }
    }

    /// The size of the object whose key has this hash.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a size drawn at random"
    )]
    pub(crate) fn of(&self, hash: u64) -> u64 {
        match &self.form {
            Form::Fixed(bytes) => *bytes,
            Form::Range(low, high) => {
                let share = (mix(hash) >> 11) as f64 / (1_u64 << 53) as f64;
                let bytes = *low as f64 * (*high as f64 / *low as f64).powf(share);
                (bytes as u64).clamp(*low, *high)
            }
            Form::Weighted(steps) => {
                let sum = steps.last().map_or(1, |(_, sum)| *sum);
                let dice = mix(hash) % sum;
                steps.iter().find(|(_, upto)| dice < *upto).map_or(0, |(bytes, _)| *bytes)
            }
        }
    }

    /// Average over many keys, in bytes.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an average"
    )]
    pub(crate) fn mean(&self) -> u64 {
        match &self.form {
            Form::Fixed(bytes) => *bytes,
            Form::Range(low, high) if low == high => *low,
            Form::Range(low, high) => ((high - low) as f64 / (*high as f64 / *low as f64).ln()) as u64,
            Form::Weighted(steps) => {
                let sum = steps.last().map_or(1, |(_, sum)| *sum) as f64;
                let before = std::iter::once(0).chain(steps.iter().map(|(_, upto)| *upto));
                let share =
                    steps.iter().zip(before).map(|((bytes, upto), before)| *bytes as f64 * (upto - before) as f64);
                (share.sum::<f64>() / sum) as u64
            }
        }
    }

    /// The largest size that there is.
    pub(crate) fn largest(&self) -> u64 {
        match &self.form {
            Form::Fixed(bytes) | Form::Range(_, bytes) => *bytes,
            Form::Weighted(steps) => steps.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0),
        }
    }
}

impl std::fmt::Display for Sizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.form {
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            Form::Fixed(bytes) => f.write_str(&show_bytes(*bytes as f64)),
            _ => f.write_str(&self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str) -> Vec<u64> {
        let sizes: Sizes = text.parse().unwrap();
        (0..100_000).map(|key| sizes.of(mix(key))).collect()
    }

    fn mean(sample: &[u64]) -> u64 {
        sample.iter().sum::<u64>() / sample.len() as u64
    }

    fn near(found: u64, expected: u64) -> bool {
        found.abs_diff(expected) * 50 < expected
    }

    #[test]
    fn one_size() {
        let sizes: Sizes = "4KiB".parse().unwrap();
        assert_eq!(
            (sizes.of(7), sizes.mean(), sizes.largest(), sizes.to_string().as_str()),
            (4096, 4096, 4096, "4.0 KiB")
        );
    }

    #[test]
    fn a_range_is_uniform_in_the_logarithm() {
        let sizes = sample("4KiB..16MiB");
        assert!(sizes.iter().all(|size| (4096..=16 << 20).contains(size)));
        let below = |bound: u64| sizes.iter().filter(|size| **size < bound).count() as u64;
        assert!(
            near(below(64 << 10), 33_333) && near(below(1 << 20), 66_667),
            "a third in each third of the logarithm"
        );
        assert!(near(mean(&sizes), "4KiB..16MiB".parse::<Sizes>().unwrap().mean()));
    }

    #[test]
    fn weights_are_shares() {
        let sizes = sample("4KiB:70,1MiB:25,16MiB:5");
        let count = |bytes: u64| sizes.iter().filter(|size| **size == bytes).count() as u64;
        assert!(near(count(4096), 70_000) && near(count(1 << 20), 25_000) && near(count(16 << 20), 5_000));
        assert!(near(mean(&sizes), "4KiB:70,1MiB:25,16MiB:5".parse::<Sizes>().unwrap().mean()));
    }

    #[test]
    fn what_is_no_size_is_refused_with_what_to_write() {
        for text in ["", "4KiB..", "16MiB..4KiB", "0..1MiB", "4KiB:70,1MiB", "4KiB:x", "4KiB:0", "4 parsecs"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
        assert!("fast".parse::<Sizes>().unwrap_err().contains("4KiB..16MiB"));
    }
}
