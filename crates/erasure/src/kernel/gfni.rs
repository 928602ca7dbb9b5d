//! Multiplication as a matrix of bits, for `VGF2P8AFFINEQB`.
//!
//! (`VGF2P8MULB` is of no use: it reduces by another polynomial, 0x11B.)

use crate::field::MULTIPLES;

/// For each factor the 8·8 matrix over GF(2) that multiplies with it, as the instruction reads it: the row that gives
/// bit `i` of the result is byte `7 - i`, and bit `j` of a row meets bit `j` of the operand. 2 KiB.
pub(super) static BIT_MATRICES: [u64; 256] = {
    let mut table = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        table[factor] = bit_matrix(factor);
        factor += 1;
    }
    table
};

const fn bit_matrix(factor: usize) -> u64 {
    let (mut matrix, mut column) = (0u64, 0);
    while column < 8 {
        let operand = 1usize << column;
        let product = MULTIPLES[factor].low[operand & 15] ^ MULTIPLES[factor].high[operand >> 4];
        let mut row = 0;
        while row < 8 {
            matrix |= ((product as u64 >> row) & 1) << ((7 - row) * 8 + column);
            row += 1;
        }
        column += 1;
    }
    matrix
}
