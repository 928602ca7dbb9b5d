//! Memory for documents on their way. Their senders may take their time over them, so that what all of them may take together is bounded.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that documents may have together whose senders are known.
const KNOWN_BYTES_MAX: usize = 64 << 20;
/// Bytes that documents may have together whose senders are nobody in particular, or not known before the document is there: a share of their own,
/// so that they keep nobody else's waiting.
const STRANGERS_BYTES_MAX: usize = 16 << 20;
const UNIT_BYTES: usize = 1024;

/// Who sends a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Known,
    Stranger,
}

/// What is left of it.
#[derive(Clone, Debug)]
pub(crate) struct DocumentMemory {
    known: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Default for DocumentMemory {
    fn default() -> Self {
        let share = |bytes: usize| Arc::new(Semaphore::new(bytes / UNIT_BYTES));
        Self { known: share(KNOWN_BYTES_MAX), strangers: share(STRANGERS_BYTES_MAX) }
    }
}

impl DocumentMemory {
    /// Memory for a document of at most so many bytes, until it is dropped; nothing if too many others are on their way.
    pub(crate) fn take(&self, sender: Sender, bytes_max: usize) -> Option<OwnedSemaphorePermit> {
        let share = match sender {
            Sender::Known => &self.known,
            Sender::Stranger => &self.strangers,
        };
        let units = u32::try_from(bytes_max.div_ceil(UNIT_BYTES)).ok()?;
        Arc::clone(share).try_acquire_many_owned(units).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_take_nothing_from_those_who_are_known() {
        let memory = DocumentMemory::default();
        let held: Vec<_> = std::iter::from_fn(|| memory.take(Sender::Stranger, 4 << 20)).collect();
        assert_eq!(held.len(), STRANGERS_BYTES_MAX / (4 << 20));
        assert!(memory.take(Sender::Stranger, 1).is_none());
        assert!(memory.take(Sender::Stranger, 0).is_some(), "what has nothing in it needs nothing");
        assert!(memory.take(Sender::Known, KNOWN_BYTES_MAX).is_some());
        assert!(memory.take(Sender::Known, KNOWN_BYTES_MAX + 1).is_none());
        drop(held);
        assert!(memory.take(Sender::Stranger, STRANGERS_BYTES_MAX).is_some());
    }
}
