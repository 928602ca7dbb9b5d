//! The seam for SIMD: how the outputs of a [`Plan`] are computed.
//!
//! One file per instruction set, each thin: what a vector is and how it is multiplied. The loop is shared, see
//! `generic`. Which kernels this machine can run is detected once; an instruction set is represented by a value that
//! only its detection makes, so that holding the value proves that its instructions may be used.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod generic;
#[cfg(target_arch = "x86_64")]
mod gfni;
#[cfg(target_arch = "x86_64")]
mod gfni256;
#[cfg(target_arch = "x86_64")]
mod gfni512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use crate::Plan;

/// One way to compute a linear map of byte slices.
pub trait Kernel: Send + Sync + 'static {
    /// Its instruction set, for logs and benches.
    fn name(&self) -> &'static str;

    /// Writes `outputs[r] = Σ coefficient[r][s] · sources[s]`, byte by byte.
    ///
    /// # Panics
    /// When the number of slices is not that of the plan, or their lengths differ.
    fn apply(&self, plan: &Plan, sources: &[&[u8]], outputs: &mut [&mut [u8]]);
}

/// The kernels that this machine can run, fastest first; the last one runs anywhere.
#[must_use]
pub fn available() -> &'static [&'static dyn Kernel] {
    static KERNELS: OnceLock<Vec<&'static dyn Kernel>> = OnceLock::new();
    KERNELS.get_or_init(detect)
}

/// The fastest kernel of this machine.
#[must_use]
pub fn best() -> &'static dyn Kernel {
    available().first().copied().expect("the scalar kernel runs anywhere")
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Vec<&'static dyn Kernel> {
    let kernels = [gfni512::detect(), gfni256::detect(), avx2::detect(), Some(scalar::KERNEL)];
    kernels.into_iter().flatten().collect()
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Vec<&'static dyn Kernel> {
    [neon::detect(), Some(scalar::KERNEL)].into_iter().flatten().collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Vec<&'static dyn Kernel> {
    vec![scalar::KERNEL]
}
