//! A prepared linear map: which multiples of which sources make each output.

use crate::matrix::Matrix;

/// Most rows that a kernel computes in one pass over the sources: six sums of two vectors each leave room for the
/// sources and factors in 32 registers, and the usual geometries need one pass only.
pub(crate) const GROUP_ROWS_MAX: usize = 6;

/// Coefficients of a linear map from sources to outputs, in the order in which a [`crate::Kernel`] reads them.
#[derive(Clone, Debug)]
pub struct Plan {
    sources: usize,
    rows: usize,
    /// Groups of at most `GROUP_ROWS_MAX` rows; in a group source by source; for a source one byte per row.
    coefficients: Vec<u8>,
}

/// Rows of a plan that are computed in one pass.
pub(crate) struct Group<'a> {
    /// Number of rows, 1 ..= [`GROUP_ROWS_MAX`].
    pub(crate) rows: usize,
    /// `rows` bytes for every source.
    pub(crate) coefficients: &'a [u8],
}

impl Plan {
    /// The map whose outputs are `rows · sources`; each row has one coefficient per source.
    pub(crate) fn new(matrix: &Matrix) -> Self {
        let rows: Vec<&[u8]> = matrix.rows().collect();
        let mut coefficients = Vec::with_capacity(rows.len() * matrix.columns());
        for group in rows.chunks(GROUP_ROWS_MAX) {
            for source in 0..matrix.columns() {
                coefficients.extend(group.iter().map(|row| row[source]));
            }
        }
        Self { sources: matrix.columns(), rows: rows.len(), coefficients }
    }

    /// Number of sources.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.sources
    }

    /// Number of outputs.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.rows
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        self.coefficients
            .chunks(GROUP_ROWS_MAX * self.sources)
            .map(|coefficients| Group { rows: coefficients.len() / self.sources, coefficients })
    }

    /// # Panics
    /// When the number of slices is not that of the plan, or their lengths differ.
    pub(crate) fn check(&self, sources: &[&[u8]], outputs: &[&mut [u8]]) {
        assert!(sources.len() == self.sources && outputs.len() == self.rows, "as many slices as the plan says");
        let len = sources[0].len();
        let equal = sources.iter().all(|s| s.len() == len) && outputs.iter().all(|o| o.len() == len);
        assert!(equal, "slices of one length");
    }
}

#[cfg(test)]
mod tests {
    use gabion_types::Geometry;

    use super::*;

    #[test]
    fn groups_hold_every_coefficient_once() {
        let matrix = Matrix::coding(Geometry::new(3, 16).unwrap()).select(3..19);
        let plan = Plan::new(&matrix);
        assert_eq!(plan.groups().map(|group| group.rows).collect::<Vec<_>>(), [6, 6, 4]);
        let mut first_row = 0;
        for group in plan.groups() {
            for (source, factors) in group.coefficients.chunks(group.rows).enumerate() {
                for (row, &factor) in factors.iter().enumerate() {
                    assert_eq!(factor, matrix.rows().nth(first_row + row).unwrap()[source]);
                }
            }
            first_row += group.rows;
        }
    }
}
