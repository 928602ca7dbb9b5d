//! What the fuzz targets call: files of the state directory that this crate reads by itself. Rows and keys are public.

use crate::fjall;

/// The mark, the seals and the journals beside and in fjall's files.
pub fn state_files(bytes: &[u8]) {
    fjall::read_state_files(bytes);
}
