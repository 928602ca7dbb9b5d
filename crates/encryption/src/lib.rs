//! Encryption at rest, as computation: keys and their wrapping, bodies in frames (docs/adr/0015).
//!
//! It knows no HTTP, no log, no key service and no entropy: whoever makes a key fills it. What is secret has no `Debug` that shows it and is wiped when
//! it is dropped, but for the key schedules inside `ring`, which does not wipe them.
#![forbid(unsafe_code)]

mod error;
mod frames;
mod key;
mod opener;
mod sealer;
#[cfg(test)]
mod tests;

pub use error::{Tampered, WrongKey};
pub use frames::{Frames, SealedRange};
pub use key::{BodySalt, SecretKey, WRAPPED_BYTES, WrapSalt};
pub use opener::{BodyRange, Opener};
pub use sealer::Sealer;
