//! Appends.

use crate::PutObject;

/// Adds bytes to the end of an object, or makes it.
#[derive(Clone, Debug)]
pub struct AppendObject {
    /// The object. What is said of it beside its bytes counts only if this makes it.
    pub object: PutObject,
    /// Where the bytes begin: the object's present length in bytes, or 0 where there is none.
    pub offset_bytes: u64,
}
