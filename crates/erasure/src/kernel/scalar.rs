//! Byte by byte, on any machine.

use super::Kernel;
use crate::{Plan, field::MULTIPLES};

pub(super) const KERNEL: &dyn Kernel = &Scalar;

/// Bytes of every slice that are done before the next ones, so that sources and outputs stay in the first cache.
const BLOCK_BYTES: usize = 1024;

struct Scalar;

impl Kernel for Scalar {
    fn name(&self) -> &'static str {
        "scalar"
    }

    fn apply(&self, plan: &Plan, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        plan.check(sources, outputs);
        let len = sources[0].len();
        for start in (0..len).step_by(BLOCK_BYTES) {
            let block = start..len.min(start + BLOCK_BYTES);
            let mut outputs = outputs.iter_mut();
            for group in plan.groups() {
                for (row, output) in outputs.by_ref().take(group.rows).enumerate() {
                    let output = &mut output[block.clone()];
                    output.fill(0);
                    for (source, factors) in sources.iter().zip(group.coefficients.chunks_exact(group.rows)) {
                        add_multiple(output, factors[row], &source[block.clone()]);
                    }
                }
            }
        }
    }
}

fn add_multiple(output: &mut [u8], factor: u8, source: &[u8]) {
    let multiples = &MULTIPLES[usize::from(factor)];
    for (output, &byte) in output.iter_mut().zip(source) {
        *output ^= multiples.times(byte);
    }
}
