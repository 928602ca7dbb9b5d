//! What the fuzz targets call.

use crate::mutation::Mutation;

/// A mutation, as it lies in the log.
///
/// # Panics
/// When what was decoded is not encoded to the same again.
pub fn mutation(bytes: &[u8]) {
    if let Ok(mutation) = Mutation::decode(bytes) {
        assert_eq!(Mutation::decode(&mutation.encode()).as_ref(), Ok(&mutation));
    }
}
