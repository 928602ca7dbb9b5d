//! The field GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11D), generator 2.

/// `a·b` by shift and add: what the tables are made of at compile time.
const fn product(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut sum) = (a as u16, b, 0u16);
    while b != 0 {
        if b & 1 != 0 {
            sum ^= a;
        }
        a <<= 1;
        if a & 0x100 != 0 {
            a ^= 0x11d;
        }
        b >>= 1;
    }
    sum as u8
}

/// The multiples of one factor: multiplication is linear, so a byte is looked up as its two halves.
#[derive(Clone, Copy)]
pub(crate) struct Multiples {
    /// Factor times 0 … 15.
    pub(crate) low: [u8; 16],
    /// Factor times 0, 16, … 240.
    pub(crate) high: [u8; 16],
}

impl Multiples {
    const fn of(factor: u8) -> Self {
        let mut multiples = Self { low: [0; 16], high: [0; 16] };
        let mut half = 0;
        while half < 16 {
            multiples.low[half as usize] = product(factor, half);
            multiples.high[half as usize] = product(factor, half << 4);
            half += 1;
        }
        multiples
    }

    /// The factor times `byte`.
    #[inline(always)]
    pub(crate) fn times(&self, byte: u8) -> u8 {
        self.low[usize::from(byte & 15)] ^ self.high[usize::from(byte >> 4)]
    }
}

/// [`Multiples`] of every factor, 8 KiB.
pub(crate) static MULTIPLES: [Multiples; 256] = {
    let mut table = [Multiples::of(0); 256];
    let mut factor = 1;
    while factor < 256 {
        table[factor] = Multiples::of(factor as u8);
        factor += 1;
    }
    table
};

/// `a·b`.
#[inline]
pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    MULTIPLES[usize::from(a)].times(b)
}

/// The `b` with `a·b = 1`, none for zero: `a^254`, since the multiplicative group has 255 elements.
pub(crate) fn inverse(a: u8) -> Option<u8> {
    if a == 0 {
        return None;
    }
    let square = |x| multiply(x, x);
    let (mut power, mut result) = (a, 1);
    for _ in 1..8 {
        power = square(power);
        result = multiply(result, power);
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use reed_solomon_erasure::galois_8;

    use super::*;

    #[test]
    fn agrees_with_the_oracle_on_every_pair() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), galois_8::mul(a, b), "{a}·{b}");
                assert_eq!(multiply(a, b), product(a, b), "{a}·{b}");
            }
        }
    }

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        assert_eq!(inverse(0), None);
        for a in 1..=255 {
            assert_eq!(multiply(a, inverse(a).unwrap()), 1, "{a}");
        }
    }
}
