//! Every kernel that this machine can run against the definition.

use gabion_types::Geometry;
use rand::{Rng, RngCore, SeedableRng, rngs::SmallRng};

use super::{Kernel, available};
use crate::{Plan, matrix::Matrix};

/// Longer than four of the longest vectors, and than one step of every loop by a vector and a tail.
const LEN_MAX: usize = 4 * 64 + 64 + 40;

/// The sum of products as it is written down, on the oracle's multiplication.
fn naive(matrix: &Matrix, sources: &[&[u8]]) -> Vec<Vec<u8>> {
    let len = sources[0].len();
    let cell = |row: &[u8], at: usize| {
        let products =
            row.iter().zip(sources).map(|(&factor, source)| reed_solomon_erasure::galois_8::mul(factor, source[at]));
        products.fold(0, |sum, product| sum ^ product)
    };
    matrix.rows().map(|row| (0..len).map(|at| cell(row, at)).collect()).collect()
}

fn random_bytes(rng: &mut SmallRng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// Runs `kernel` on slices that start `skew` bytes (and a little more for each slice) into their buffers, and checks
/// that it gives what it should and touches nothing around its outputs.
fn check(kernel: &dyn Kernel, matrix: &Matrix, len: usize, skew: usize, rng: &mut SmallRng) {
    const GUARD: u8 = 0xa5;
    let place = |index: usize| (skew + 3 * index) % 64;
    let buffers: Vec<_> = (0..matrix.columns()).map(|index| random_bytes(rng, place(index) + len)).collect();
    let sources: Vec<&[u8]> = buffers.iter().enumerate().map(|(index, buffer)| &buffer[place(index)..]).collect();
    let rows = matrix.rows().len();
    let mut results: Vec<_> = (0..rows).map(|index| vec![GUARD; place(index + 1) + len + 64]).collect();
    let mut outputs: Vec<&mut [u8]> =
        results.iter_mut().enumerate().map(|(index, buffer)| &mut buffer[place(index + 1)..][..len]).collect();
    kernel.apply(&Plan::new(matrix), &sources, &mut outputs);
    for (index, (result, expected)) in results.iter().zip(naive(matrix, &sources)).enumerate() {
        let (before, rest) = result.split_at(place(index + 1));
        let (inside, after) = rest.split_at(len);
        assert!(inside == expected, "{}: {rows} rows, {len} bytes, skew {skew}", kernel.name());
        assert!(before.iter().chain(after).all(|&byte| byte == GUARD), "{} wrote outside", kernel.name());
    }
}

fn parity_rows(data: usize, parity: usize) -> Matrix {
    Matrix::coding(Geometry::new(data, parity).unwrap()).select(data..data + parity)
}

#[test]
fn every_length_up_to_four_vectors_at_odd_alignments() {
    let mut rng = SmallRng::seed_from_u64(1);
    for kernel in available() {
        for (data, parity) in [(4, 2), (5, 3)] {
            let matrix = parity_rows(data, parity);
            for len in 0..=LEN_MAX {
                for skew in [0, 1, 13, 32, 63] {
                    check(*kernel, &matrix, len, skew, &mut rng);
                }
            }
        }
    }
}

#[test]
fn every_number_of_rows_and_sources() {
    let mut rng = SmallRng::seed_from_u64(2);
    for kernel in available() {
        for data in [1, 2, 3, 4, 7, 8, 16, 17] {
            for parity in 1..=16 {
                let matrix = parity_rows(data, parity);
                for len in [0, 1, 31, 33, 64, 127, 300] {
                    check(*kernel, &matrix, len, rng.random_range(0..64), &mut rng);
                }
            }
        }
        check(*kernel, &parity_rows(128, 16), 517, 5, &mut rng);
    }
}

#[test]
fn every_coefficient_times_every_byte() {
    let every_byte: Vec<u8> = (0..=255).collect();
    for kernel in available() {
        // A Vandermonde row holds arbitrary values only by luck; matrices of one cell hold them all.
        for factor in 0..=255u8 {
            let matrix = Matrix::single(factor);
            let mut result = vec![0; 256];
            kernel.apply(&Plan::new(&matrix), &[&every_byte], &mut [&mut result]);
            assert_eq!(result, naive(&matrix, &[&every_byte])[0], "{} by {factor}", kernel.name());
        }
    }
}

#[test]
fn the_oracle_itself_is_right_where_it_can_be_done_by_hand() {
    // 1 + 1: the parity of one shard is that shard; 0x80 · 2 wraps to 0x1d.
    assert_eq!(naive(&parity_rows(1, 1), &[&[1, 2, 255]]), [[1, 2, 255]]);
    assert_eq!(naive(&Matrix::single(2), &[&[0, 1, 0x80]]), [[0, 2, 0x1d]]);
}
