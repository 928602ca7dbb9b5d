//! Axes: where a value lies, and which values are written beside it.

/// How values are spread over an axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Scale {
    /// From zero to this.
    Linear(f64),
    /// From the first to the second by factors.
    Log(f64, f64),
}

impl Scale {
    /// From zero to a round number above `max`.
    pub(super) fn linear(max: f64) -> Self {
        let step = round_step(max.max(1e-9) / 4.0);
        Scale::Linear((max.max(1e-9) / step).ceil() * step)
    }

    /// The powers of ten around all `values` above zero.
    pub(super) fn log(values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| *value > 0.0 && value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if high == 0.0 {
            return Scale::Log(1.0, 10.0);
        }
        let (low, mut high) = (10_f64.powf(low.log10().floor()), 10_f64.powf(high.log10().ceil()));
        if high <= low {
            high = low * 10.0;
        }
        Scale::Log(low, high)
    }

    /// Where `value` lies, from 0 to 1; what leaves the axis lies at its end.
    pub(super) fn place(self, value: f64) -> f64 {
        let place = match self {
            Scale::Linear(max) => value / max,
            Scale::Log(low, high) => (value.max(low) / low).log10() / (high / low).log10(),
        };
        place.clamp(0.0, 1.0)
    }

    /// Values to be written along the axis.
    #[expect(clippy::cast_possible_truncation, reason = "a handful of ticks")]
    pub(super) fn ticks(self) -> Vec<f64> {
        match self {
            Scale::Linear(max) => {
                let step = round_step(max / 4.0);
                (0..=(max / step + 1e-9).floor() as i32).map(|index| f64::from(index) * step).collect()
            }
            Scale::Log(low, high) => {
                // An axis need not end at a power of ten, and one that does is found by logarithms that are rounded.
                let (from, to) = ((low.log10() - 1e-9).ceil() as i32, (high.log10() + 1e-9).floor() as i32);
                (from..=to).map(|exponent| 10_f64.powi(exponent)).collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= least * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(Scale::linear(1234.0).ticks(), [0.0, 500.0, 1000.0, 1500.0]);
        assert_eq!(Scale::Linear(7.0).ticks(), [0.0, 2.0, 4.0, 6.0]);
        assert_eq!(Scale::linear(0.7).ticks().len(), 5);
        assert_eq!(Scale::linear(4.0).ticks(), [0.0, 1.0, 2.0, 3.0, 4.0]);
        for (high, ticks) in
            [(4.0, &[1.0][..]), (32.0, &[1.0, 10.0]), (64.0, &[1.0, 10.0]), (256.0, &[1.0, 10.0, 100.0])]
        {
            assert_eq!(Scale::Log(1.0, high).ticks(), ticks);
        }
        assert_eq!(Scale::Log(3.0, 1000.0).ticks(), [10.0, 100.0, 1000.0]);
        assert_eq!(Scale::log([7.0, 0.0, 2300.0].into_iter()).ticks(), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn places_stay_on_the_axis() {
        let log = Scale::log([1.0, 100.0].into_iter());
        assert_eq!([0.0, 1.0, 10.0, 100.0, 1e9].map(|value| log.place(value)), [0.0, 0.0, 0.5, 1.0, 1.0]);
        assert_eq!(Scale::linear(0.0).place(0.0), 0.0);
        assert_eq!(Scale::log(std::iter::empty()).ticks(), [1.0, 10.0]);
    }
}
