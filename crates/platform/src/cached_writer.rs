//! One thread that writes to the page cache of several files.
//!
//! What the page cache takes at once costs less than to wake a thread for it: six chunks of a stripe that six threads write, each of its own target, are six wake-ups
//! for a few microseconds of copying each. Where nobody waits for the disk, one thread does them one after the other.

use std::io;
use std::sync::Arc;

use crate::disk::CachedWrite;
use crate::threads::Pool;

/// Does writes in the order in which they come. Its thread is started with the first.
#[derive(Debug)]
pub struct CachedWriter {
    pool: Arc<Pool>,
}

impl CachedWriter {
    /// For one caller at a time: what others give it meanwhile waits.
    #[expect(clippy::new_without_default, reason = "it stands for a thread")]
    pub fn new() -> Self {
        Self { pool: Pool::new(1, 1) }
    }

    /// Does all `writes`, whatever becomes of each, and says what did. They begin when the future is first polled, and are then done even if it is dropped.
    ///
    /// # Errors
    /// No thread can be started, or it came to grief: what is written is unknown.
    pub async fn write(&self, writes: Vec<CachedWrite>) -> io::Result<Vec<io::Result<()>>> {
        self.pool.run(move || Ok(writes.into_iter().map(|write| write()).collect())).await
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn each_is_done_in_its_turn_and_answered() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let write = |number: u32| -> CachedWrite {
            let done = Arc::clone(&done);
            Box::new(move || {
                done.lock().push(number);
                if number == 1 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
            })
        };
        let outcomes = CachedWriter::new().write((0..4).map(write).collect()).await.unwrap();
        assert_eq!(*done.lock(), [0, 1, 2, 3], "an error ends none of the others");
        let kinds: Vec<_> = outcomes.into_iter().map(|outcome| outcome.err().map(|error| error.kind())).collect();
        assert_eq!(kinds, [None, Some(io::ErrorKind::StorageFull), None, None]);
    }
}
