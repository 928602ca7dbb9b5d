//! Every figure that the log counts, with its unit: whoever serves them reads them.

use std::sync::atomic::{AtomicU64, Ordering};

use gabion_types::Counter;

/// A distribution over fixed buckets.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than the bounds: the last is everything above.
    buckets: Vec<AtomicU64>,
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Upper bounds of the buckets, inclusive; the last bucket has none.
    pub bounds: &'static [u64],
    /// Observations per bucket: one more than bounds.
    pub buckets: Vec<u64>,
    /// Sum of all observations.
    pub sum: u64,
}

const RECORD_BOUNDS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const BYTE_BOUNDS: &[u64] = &[
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
];
const MICROSECOND_BOUNDS: &[u64] =
    &[50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 204_800, 409_600, 819_200];

macro_rules! metrics {
    (
        counters { $($(#[doc = $counter_doc:literal])* $counter:ident,)* }
        histograms { $($(#[doc = $histogram_doc:literal])* $histogram:ident: $bounds:ident,)* }
    ) => {
        /// The figures of one log.
        #[derive(Debug)]
        pub struct LogMetrics {
            $($(#[doc = $counter_doc])* pub $counter: Counter,)*
            $($(#[doc = $histogram_doc])* pub $histogram: Histogram,)*
        }

        impl LogMetrics {
            pub(crate) fn new() -> Self {
                Self {
                    $($counter: Counter::default(),)*
                    $($histogram: Histogram::new($bounds),)*
                }
            }

            /// Every counter: name, what it counts, value.
            #[must_use]
            pub fn counters(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($counter), concat!($($counter_doc),*), self.$counter.get()),)*]
            }

            /// Every histogram: name, what it observes, buckets.
            #[must_use]
            pub fn histograms(&self) -> Vec<(&'static str, &'static str, HistogramSnapshot)> {
                vec![$((stringify!($histogram), concat!($($histogram_doc),*), self.$histogram.snapshot()),)*]
            }
        }
    };
}

metrics! {
    counters {
        /// Group commits that became durable.
        small_stripes,
        /// Records in them.
        small_records,
        /// Bytes of records and data in them, without parity and padding.
        small_payload_bytes,
        /// Stripes of large objects that became durable.
        large_stripes,
        /// Object bytes in them.
        large_payload_bytes,
        /// Bytes written to shard files for stripes, parity and padding included.
        stored_bytes,
        /// Bytes of zeros written to shard files ahead of short stripes, so that their syncs have no metadata to write.
        prewritten_bytes,
        /// Chunk writes that included a data sync.
        syncs,
        /// Chunk writes or syncs that failed.
        chunk_failures,
        /// Stripes that were written again in another segment because too few chunks became durable.
        stripe_retries,
        /// Segments opened.
        segments_opened,
        /// Segments sealed.
        segments_sealed,
        /// Segments whose files were removed.
        segments_removed,
        /// Submissions refused because the queues were full.
        busy_refusals,
        /// Submissions refused for want of space.
        no_space_refusals,
        /// Extents read.
        reads,
        /// Bytes returned by reads.
        read_bytes,
        /// Extents read that were still in memory.
        warm_reads,
        /// Reads of shard files that targets were asked for, whether drives or the page cache answered; without the runs that scrubs and repair read ahead.
        target_reads,
        /// Bytes that they returned.
        target_read_bytes,
        /// Chunks of which the page cache had to load what large reads were about to need.
        loads,
        /// Reads that had to reconstruct a range.
        degraded_reads,
        /// Chunks that failed their checks.
        corrupt_chunks,
        /// Chunks that could not be read: missing file, absent target or I/O error.
        unreadable_chunks,
        /// Damage that did not fit in the repair queue.
        repairs_dropped,
        /// Shards built anew or moved.
        repair_shards,
        /// Bytes of shards built anew or moved.
        repair_bytes,
        /// Shards that could not be built; they are tried again.
        repair_failures,
        /// Stripes that were found to be lost for good when a shard was built.
        repair_lost_stripes,
        /// Shards moved from fuller to emptier targets.
        rebalance_shards,
        /// Bytes of shards moved from fuller to emptier targets.
        rebalance_bytes,
        /// Segments that a scrub read to their end, or to where they were written.
        scrub_segments,
        /// Bytes that scrubs read.
        scrub_bytes,
        /// Shards that a scrub found damaged or missing.
        scrub_bad_shards,
    }
    histograms {
        /// Records in one group commit.
        batch_records: RECORD_BOUNDS,
        /// Bytes of payload in one group commit.
        batch_bytes: BYTE_BOUNDS,
        /// Microseconds from the first chunk write of a stripe until all are durable.
        write_us: MICROSECOND_BOUNDS,
        /// Microseconds for which records were kept for others to share their stripe; not of those that were not.
        held_us: MICROSECOND_BOUNDS,
        /// Microseconds that the index took for a stripe.
        apply_us: MICROSECOND_BOUNDS,
    }
}

impl Histogram {
    fn new(bounds: &'static [u64]) -> Self {
        Self { bounds, buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// The buckets now.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            bounds: self.bounds,
            buckets: self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_bucket_whose_bound_holds_them() {
        let histogram = Histogram::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, 1000] {
            histogram.observe(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.buckets, [2, 2, 2]);
        assert_eq!(snapshot.sum, 1062);
    }

    #[test]
    fn every_metric_is_named_and_described() {
        let metrics = LogMetrics::new();
        metrics.syncs.add(3);
        assert!(metrics.counters().iter().any(|(name, _, value)| *name == "syncs" && *value == 3));
        assert!(metrics.counters().iter().all(|(_, doc, _)| doc.ends_with('.')));
        assert_eq!(metrics.histograms().len(), 5);
    }
}
