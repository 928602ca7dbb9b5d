//! Polynomials over GF(2) modulo the polynomial of a CRC: what combines checksums.
//!
//! For a CRC whose register starts and ends inverted, as those of S3 do, `crc(AB) = crc(A)·x^(8·|B|) + crc(B)`: the
//! constants of `crc(A)` and `crc(AB)` cancel. (M. Adler, "generic CRC combine"; zlib's `crc32_combine`.)

/// The residues modulo the polynomial of a reflected CRC: bit `bits - 1` is the coefficient of x^0.
pub(crate) struct Ring {
    bits: u32,
    polynomial: u64,
    /// x^(8·2^i): the powers of which every length is a product.
    powers: [u64; 64],
}

/// CRC-32/ISO-HDLC, "CRC32" in S3.
pub(crate) static CRC32: Ring = Ring::new(32, 0xedb8_8320);
/// CRC-32/ISCSI, "CRC32C" in S3.
pub(crate) static CRC32C: Ring = Ring::new(32, 0x82f6_3b78);
/// CRC-64/NVME, "CRC64NVME" in S3.
pub(crate) static CRC64_NVME: Ring = Ring::new(64, 0x9a6c_9329_ac4b_c9b5);

impl Ring {
    const fn new(bits: u32, polynomial: u64) -> Self {
        let mut ring = Self { bits, polynomial, powers: [0; 64] };
        let mut power = ring.power(8);
        let mut i = 0;
        while i < 64 {
            ring.powers[i] = power;
            power = ring.multiply(power, power);
            i += 1;
        }
        ring
    }

    /// x^`exponent`.
    pub(crate) const fn power(&self, exponent: u32) -> u64 {
        let mut power = 1 << (self.bits - 1);
        let mut i = 0;
        while i < exponent {
            power = (power >> 1) ^ (self.polynomial & (power & 1_u64).wrapping_neg());
            i += 1;
        }
        power
    }

    /// `a·b`, about 0.1 µs for 64 bits.
    const fn multiply(&self, a: u64, mut b: u64) -> u64 {
        let (mut sum, mut i) = (0, 0);
        while i < self.bits {
            let term = (a >> (self.bits - 1 - i)) & 1;
            sum ^= b & term.wrapping_neg();
            b = (b >> 1) ^ (self.polynomial & (b & 1).wrapping_neg());
            i += 1;
        }
        sum
    }

    /// The factor that moves a checksum past `len` bytes, x^(8·len): one multiplication per further bit set in `len`.
    pub(crate) fn shift(&self, len: u64) -> u64 {
        let one = 1 << (self.bits - 1);
        let set = (0..64).filter(|i| len >> i & 1 == 1);
        set.map(|i| self.powers[i]).reduce(|product, power| self.multiply(product, power)).unwrap_or(one)
    }

    /// The checksum of `AB` from those of `A` and `B` and the factor of the length of `B`.
    pub(crate) fn combine(&self, a: u64, b: u64, shift: u64) -> u64 {
        self.multiply(a, shift) ^ b
    }
}
