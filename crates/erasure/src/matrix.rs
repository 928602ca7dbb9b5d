//! Matrices over the field, and the coding matrix of a geometry.

use gabion_types::Geometry;

use crate::field::{MULTIPLES, inverse, multiply};

/// A matrix, stored row by row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Matrix {
    columns: usize,
    cells: Vec<u8>,
}

impl Matrix {
    /// The systematic matrix of `geometry`, `k + m` rows of `k`: a Vandermonde matrix (row `r` is `r^0, r^1, …`) times
    /// the inverse of its upper square, so that the upper rows are the identity and any `k` rows are independent.
    pub(crate) fn coding(geometry: Geometry) -> Self {
        let columns = geometry.data();
        let mut cells = Vec::with_capacity(geometry.shards() * columns);
        for row in 0..geometry.shards() {
            let base = u8::try_from(row).expect("a geometry has at most 255 shards");
            let mut power = 1;
            for _ in 0..columns {
                cells.push(power);
                power = multiply(power, base);
            }
        }
        let vandermonde = Self { columns, cells };
        let upper =
            vandermonde.select(0..columns).inverted().expect("the rows of a Vandermonde matrix are independent");
        vandermonde.times(&upper)
    }

    fn identity(columns: usize) -> Self {
        let mut cells = vec![0; columns * columns];
        cells.iter_mut().step_by(columns + 1).for_each(|cell| *cell = 1);
        Self { columns, cells }
    }

    /// The matrix of one cell.
    #[cfg(test)]
    pub(crate) fn single(cell: u8) -> Self {
        Self { columns: 1, cells: vec![cell] }
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn rows(&self) -> std::slice::ChunksExact<'_, u8> {
        self.cells.chunks_exact(self.columns)
    }

    fn row(&self, row: usize) -> &[u8] {
        &self.cells[row * self.columns..][..self.columns]
    }

    /// The named rows, in the order given.
    pub(crate) fn select(&self, rows: impl Iterator<Item = usize>) -> Self {
        let mut cells = Vec::new();
        rows.for_each(|row| cells.extend_from_slice(self.row(row)));
        Self { columns: self.columns, cells }
    }

    /// The matrix product `self · right`.
    pub(crate) fn times(&self, right: &Self) -> Self {
        let mut cells = vec![0; self.rows().len() * right.columns];
        for (row, sum) in self.rows().zip(cells.chunks_exact_mut(right.columns)) {
            for (&factor, term) in row.iter().zip(right.rows()) {
                add_multiple(sum, factor, term);
            }
        }
        Self { columns: right.columns, cells }
    }

    /// The inverse of a square matrix by Gauss-Jordan elimination, none if its rows depend on each other.
    ///
    /// Rows that are unit vectors (present data shards) cost next to nothing, since zero factors are skipped.
    pub(crate) fn inverted(mut self) -> Option<Self> {
        let size = self.columns;
        let mut result = Self::identity(size);
        for column in 0..size {
            let pivot = (column..size).find(|&row| self.row(row)[column] != 0)?;
            let scale = inverse(self.row(pivot)[column])?;
            for matrix in [&mut self, &mut result] {
                matrix.swap_rows(pivot, column);
                let row = &mut matrix.cells[column * size..][..size];
                row.iter_mut().for_each(|cell| *cell = multiply(scale, *cell));
            }
            for row in (0..size).filter(|&row| row != column) {
                let factor = self.row(row)[column];
                for matrix in [&mut self, &mut result] {
                    matrix.add_row_multiple(row, factor, column);
                }
            }
        }
        Some(result)
    }

    fn swap_rows(&mut self, a: usize, b: usize) {
        if a != b {
            let (first, second) = self.two_rows(a, b);
            first.swap_with_slice(second);
        }
    }

    /// Adds `factor` times row `from` to row `to`, another row.
    fn add_row_multiple(&mut self, to: usize, factor: u8, from: usize) {
        let (sum, term) = self.two_rows(to, from);
        add_multiple(sum, factor, term);
    }

    fn two_rows(&mut self, a: usize, b: usize) -> (&mut [u8], &mut [u8]) {
        let columns = self.columns;
        let (head, tail) = self.cells.split_at_mut(a.max(b) * columns);
        let (lower, upper) = (&mut head[a.min(b) * columns..][..columns], &mut tail[..columns]);
        if a < b { (lower, upper) } else { (upper, lower) }
    }
}

/// `sum += factor · term`.
fn add_multiple(sum: &mut [u8], factor: u8, term: &[u8]) {
    if factor != 0 {
        let multiples = &MULTIPLES[usize::from(factor)];
        sum.iter_mut().zip(term).for_each(|(sum, &cell)| *sum ^= multiples.times(cell));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_rows_of_the_coding_matrix_are_the_identity() {
        for (data, parity) in [(1, 0), (1, 1), (4, 2), (8, 3), (128, 16)] {
            let matrix = Matrix::coding(Geometry::new(data, parity).unwrap());
            assert_eq!(matrix.rows().len(), data + parity);
            assert_eq!(matrix.select(0..data), Matrix::identity(data));
        }
    }

    #[test]
    fn a_matrix_times_its_inverse_is_the_identity() {
        let coding = Matrix::coding(Geometry::new(6, 4).unwrap());
        for rows in [[4, 5, 6, 7, 8, 9], [9, 0, 3, 6, 1, 8], [5, 4, 3, 2, 1, 0]] {
            let square = coding.select(rows.into_iter());
            assert_eq!(square.times(&square.clone().inverted().unwrap()), Matrix::identity(6));
        }
        assert_eq!(coding.select([0, 1, 2, 3, 4, 4].into_iter()).inverted(), None);
    }
}
