//! Every figure that the store counts, with its unit; the log's and the index's are their own.

use gabion_types::Counter;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The figures of one store since it was opened.
        #[derive(Debug, Default)]
        pub struct StoreMetrics {
            $($(#[doc = $doc])* pub $name: Counter,)*
        }

        impl StoreMetrics {
            /// Name, description and value of every counter.
            #[must_use]
            pub fn counters(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($doc),*), self.$name.get()),)*]
            }
        }
    };
}

counters! {
    /// Checkpoints of the index.
    checkpoints,
    /// Checkpoints that failed.
    checkpoint_failures,
    /// Snapshots of the index written to the log.
    index_snapshots,
    /// Bytes of the snapshots of the index written to the log.
    index_snapshot_bytes,
    /// Snapshots of the index that could not be written.
    index_snapshot_failures,
    /// Segments deleted because nothing in them was needed.
    segments_freed,
    /// Payload of the segments that were deleted, in bytes.
    freed_bytes,
    /// Rounds of compaction that had something to do.
    compactions,
    /// Rounds of compaction that failed.
    compaction_failures,
    /// Rows that compaction moved.
    compaction_rows_moved,
    /// Rows that changed while compaction moved them.
    compaction_rows_changed,
    /// Rows that compaction could not move: their bytes are damaged beyond repair, they are too large, or they may turn out to be deleted at the next start.
    compaction_rows_failed,
    /// Bytes of objects that compaction read.
    compaction_read_bytes,
    /// Bytes of records and objects that compaction wrote, without parity and padding.
    compaction_moved_bytes,
    /// Payload of dead stripes of large objects whose space was given back where they lay, in bytes.
    punched_bytes,
    /// Extents that compaction did not move twice, because rows share them.
    compaction_extents_shared,
    /// Bodies, or stripes of large ones, that waited for room which compaction was making.
    writes_held_back,
    /// Those that waited in vain: their clients were told to come again.
    writes_held_back_in_vain,
    /// Mutations carried on into another segment when theirs was deleted.
    mutations_carried,
    /// Bodies that were packed with others into small segments.
    bodies_inline,
    /// Bodies that were written in stripes of their own.
    bodies_striped,
    /// Bytes of bodies taken in.
    body_bytes,
    /// Bodies that ended with an error or did not match their digests.
    bodies_refused,
    /// Requests that were told to come again because the memory for bodies or downloads was taken for too long.
    memory_refusals,
    /// Copies that moved no bytes.
    copies_by_reference,
    /// Objects, parts and completions that were refused because a quota would have been exceeded.
    quota_refusals,
    /// Objects that got another key.
    renames,
    /// Bodies that were appended to objects.
    appends,
    /// Reads that began anew because the object changed between the look-up and the pin.
    read_retries,
}
