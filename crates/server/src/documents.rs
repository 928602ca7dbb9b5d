//! Memory for documents on their way. Their senders may take their time over them, so that what all of them may have sent is bounded, and so is the time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, error::Elapsed, timeout_at};

/// Bytes that may be there of documents whose senders are known.
const KNOWN_BYTES_MAX: usize = 64 << 20;
/// Bytes that may be there of others: a share of their own, so that they keep nobody else's waiting.
const OTHER_BYTES_MAX: usize = 16 << 20;
const UNIT_BYTES: usize = 4096;
/// Longest time that a document may take: 4 MiB at 35 kB/s.
const DOCUMENT_TIME_MAX: Duration = Duration::from_secs(120);

/// Who sends a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// Somebody in particular.
    Known,
    /// Nobody in particular.
    Anonymous,
    /// Somebody who asks IAM or STS: who that is says a signature of the whole.
    OfForm,
}

/// What is left of it.
#[derive(Clone, Debug)]
pub(crate) struct DocumentMemory {
    known: Arc<Semaphore>,
    anonymous: Arc<Semaphore>,
    of_forms: Arc<Semaphore>,
}

impl Default for DocumentMemory {
    fn default() -> Self {
        let share = |bytes: usize| Arc::new(Semaphore::new(bytes / UNIT_BYTES));
        Self { known: share(KNOWN_BYTES_MAX), anonymous: share(OTHER_BYTES_MAX), of_forms: share(OTHER_BYTES_MAX) }
    }
}

impl DocumentMemory {
    /// A document begins to come.
    pub(crate) fn begin(&self, sender: Sender) -> Coming {
        let share = match sender {
            Sender::Known => &self.known,
            Sender::Anonymous => &self.anonymous,
            Sender::OfForm => &self.of_forms,
        };
        Coming { share: Arc::clone(share), held: None, deadline: Instant::now() + DOCUMENT_TIME_MAX }
    }
}

/// A document on its way, and the memory for what is there of it.
pub(crate) struct Coming {
    share: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
    deadline: Instant,
}

impl Coming {
    /// Whether there is memory for so much of it in all.
    pub(crate) fn may_have(&mut self, bytes: usize) -> bool {
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(more) = bytes.div_ceil(UNIT_BYTES).checked_sub(held).filter(|more| *more > 0) else { return true };
        let Ok(more) = u32::try_from(more) else { return false };
        let Ok(more) = Arc::clone(&self.share).try_acquire_many_owned(more) else { return false };
        match &mut self.held {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        true
    }

    /// What comes next of it.
    ///
    /// # Errors
    /// When the document takes too long.
    pub(crate) async fn in_time<T>(&self, next: impl Future<Output = T>) -> Result<T, Elapsed> {
        timeout_at(self.deadline, next).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_there_counts_and_each_kind_has_its_share() {
        let memory = DocumentMemory::default();
        let mut held: Vec<Coming> = (0..5).map(|_| memory.begin(Sender::Anonymous)).collect();
        assert!(held.iter_mut().all(|one| one.may_have(1 << 20) && one.may_have(0)), "nothing is taken in advance");
        let has_more: Vec<bool> = held.iter_mut().map(|one| one.may_have(4 << 20)).collect();
        assert_eq!(has_more, [true, true, true, false, false]);
        assert!(held[3].may_have(2 << 20) && !memory.begin(Sender::Anonymous).may_have(2 << 20));
        for (sender, bytes) in [(Sender::Known, KNOWN_BYTES_MAX), (Sender::OfForm, OTHER_BYTES_MAX)] {
            assert!(memory.begin(sender).may_have(bytes) && !memory.begin(sender).may_have(bytes + 1));
        }
        drop(held);
        assert!(memory.begin(Sender::Anonymous).may_have(OTHER_BYTES_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn a_document_has_to_be_there_in_time() {
        let coming = DocumentMemory::default().begin(Sender::Known);
        assert!(coming.in_time(tokio::time::sleep(DOCUMENT_TIME_MAX / 2)).await.is_ok());
        assert!(coming.in_time(tokio::time::sleep(DOCUMENT_TIME_MAX)).await.is_err());
    }
}
