//! What waits for a lane: bounded in number and bytes, taken in batches by one consumer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Turns of the executor that items wait at most for others to come: a trickle that never ends must not keep them.
const GATHER_TURNS: usize = 16;

/// Items that half of what waits has at least, if so many wait: fewer are not worth a batch of their own.
const HALF_ITEMS_MIN: usize = 24;

/// A bounded queue with many producers and one consumer.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Notify,
    /// Taken and not yet answered.
    in_flight: AtomicUsize,
    items_max: usize,
    bytes_max: usize,
}

struct State<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    closed: bool,
    woken: bool,
}

/// Why an item was not taken.
pub(crate) enum Refusal {
    Full,
    Closed,
}

/// How much of what waits becomes one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Portion {
    All,
    /// Half of it, where it is more than a few items: what is left is on its way to the disk while others already hear of the first half.
    Half,
}

impl Portion {
    fn of(self, items: usize) -> usize {
        match self {
            Self::All => items,
            Self::Half => items.div_ceil(2).max(HALF_ITEMS_MIN),
        }
    }
}

/// How much waits.
pub(crate) struct Depth {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
    pub(crate) in_flight: usize,
}

impl<T> Queue<T> {
    pub(crate) fn new(items_max: usize, bytes_max: usize) -> Self {
        Self {
            state: Mutex::new(State { items: VecDeque::new(), bytes: 0, closed: false, woken: false }),
            filled: Notify::new(),
            in_flight: AtomicUsize::new(0),
            items_max,
            bytes_max,
        }
    }

    /// Puts an item of `bytes` bytes at the end. An item larger than all the room is taken when nothing else waits.
    pub(crate) fn push(&self, item: T, bytes: usize) -> Result<(), (T, Refusal)> {
        let mut state = self.state.lock();
        if state.closed {
            return Err((item, Refusal::Closed));
        }
        let fits =
            state.items.is_empty() || (state.items.len() < self.items_max && state.bytes + bytes <= self.bytes_max);
        if !fits {
            return Err((item, Refusal::Full));
        }
        state.items.push_back((item, bytes));
        state.bytes += bytes;
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Waits for an item, lets all who are about to come do so, then takes a portion of what waits, at most `items_max` and `bytes_max` but one at least; nothing if
    /// it was woken. `None`: closed and empty.
    pub(crate) async fn take(&self, portion: Portion, items_max: usize, bytes_max: usize) -> Option<Vec<T>> {
        loop {
            let filled = self.filled.notified();
            {
                let mut state = self.state.lock();
                if !state.items.is_empty() {
                    break;
                }
                if state.closed {
                    return None;
                }
                if std::mem::take(&mut state.woken) {
                    return Some(Vec::new());
                }
            }
            filled.await;
        }
        self.gather(items_max, bytes_max).await;
        let mut state = self.state.lock();
        let items_max = items_max.min(portion.of(state.items.len()));
        Some(self.drain(&mut state, items_max, bytes_max))
    }

    /// Lets others run as long as that brings more items. No timer: only what can run now runs first, so that a lone item waits for one turn.
    async fn gather(&self, items_max: usize, bytes_max: usize) {
        let waiting = || {
            let state = self.state.lock();
            (state.items.len(), state.items.len() >= items_max || state.bytes >= bytes_max)
        };
        let (mut before, _) = waiting();
        for _ in 0..GATHER_TURNS {
            tokio::task::yield_now().await;
            let (items, is_full) = waiting();
            if is_full || items <= before {
                return;
            }
            before = items;
        }
    }

    fn drain(&self, state: &mut State<T>, items_max: usize, bytes_max: usize) -> Vec<T> {
        let mut taken = Vec::new();
        let mut taken_bytes = 0;
        while let Some((_, bytes)) = state.items.front() {
            if !taken.is_empty() && (taken.len() >= items_max || taken_bytes + bytes > bytes_max) {
                break;
            }
            let (item, bytes) = state.items.pop_front().expect("there is a front");
            taken_bytes += bytes;
            taken.push(item);
        }
        state.bytes -= taken_bytes;
        self.in_flight.fetch_add(taken.len(), Ordering::Relaxed);
        taken
    }

    /// Notes that items which were taken are answered.
    pub(crate) fn answered(&self, items: usize) {
        self.in_flight.fetch_sub(items, Ordering::Relaxed);
    }

    /// Lets the consumer look around although nothing waits.
    pub(crate) fn wake(&self) {
        self.state.lock().woken = true;
        self.filled.notify_one();
    }

    /// Refuses all later items; those that wait are still taken.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
    }

    /// Drops all that wait; their submitters see their answers' senders go.
    pub(crate) fn clear(&self) {
        let mut state = self.state.lock();
        state.bytes = 0;
        let items = std::mem::take(&mut state.items);
        drop(state);
        drop(items);
    }

    pub(crate) fn depth(&self) -> Depth {
        let state = self.state.lock();
        Depth { items: state.items.len(), bytes: state.bytes, in_flight: self.in_flight.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn batches_are_bounded_in_items_and_bytes() {
        let queue = Queue::new(100, 100);
        for (item, bytes) in [(1, 10), (2, 10), (3, 50), (4, 10)] {
            assert!(queue.push(item, bytes).is_ok());
        }
        assert_eq!(queue.take(Portion::All, 1, 100).await, Some(vec![1]));
        assert_eq!(queue.take(Portion::All, 10, 20).await, Some(vec![2]));
        assert_eq!(queue.take(Portion::All, 10, 20).await, Some(vec![3]));
        queue.close();
        assert_eq!(queue.take(Portion::All, 10, 20).await, Some(vec![4]));
        assert_eq!(queue.take(Portion::All, 10, 20).await, None);
        assert_eq!(queue.depth().in_flight, 4);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_consumer_is_woken_once_and_items_come_first() {
        let queue = Queue::new(10, 10);
        queue.wake();
        assert!(queue.push(1, 1).is_ok());
        assert_eq!(queue.take(Portion::All, 10, 10).await, Some(vec![1]));
        assert_eq!(queue.take(Portion::All, 10, 10).await, Some(vec![]));
        queue.close();
        queue.wake();
        assert_eq!(queue.take(Portion::All, 10, 10).await, None);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_batch_takes_what_each_turn_brings() {
        let queue = std::sync::Arc::new(Queue::new(100, 100));
        assert!(queue.push(0, 1).is_ok());
        let others = std::sync::Arc::clone(&queue);
        let pushing = tokio::spawn(async move {
            for item in 1..100 {
                assert!(others.push(item, 1).is_ok());
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(queue.take(Portion::All, 5, 100).await, Some((0..5).collect::<Vec<_>>()), "until it is full");
        let taken = queue.take(Portion::All, 100, 100).await.unwrap();
        assert!((2..=2 * GATHER_TURNS).contains(&taken.len()), "{taken:?}: while they come, but not for ever");
        pushing.abort();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn half_of_many_is_left_and_few_are_taken_as_a_whole() {
        for (waiting, taken) in [(1, 1), (24, 24), (25, 24), (48, 24), (49, 25), (100, 50)] {
            let queue = Queue::new(100, 100);
            for item in 0..waiting {
                assert!(queue.push(item, 1).is_ok());
            }
            let first = queue.take(Portion::Half, 1000, 1000).await.unwrap();
            assert_eq!(first, (0..taken).collect::<Vec<_>>(), "of {waiting}");
            queue.close();
            let mut rest = first.len();
            while let Some(more) = queue.take(Portion::Half, 1000, 1000).await {
                assert!(!more.is_empty());
                rest += more.len();
            }
            assert_eq!(rest, waiting, "none is left behind");
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let queue = Queue::new(2, 100);
        assert!(queue.push(1, 500).is_ok());
        assert!(matches!(queue.push(2, 1), Err((2, Refusal::Full))));
        let queue = Queue::new(2, 100);
        assert!(queue.push(1, 1).is_ok() && queue.push(2, 1).is_ok());
        assert!(matches!(queue.push(3, 1), Err((3, Refusal::Full))));
        queue.close();
        assert!(matches!(queue.push(4, 1), Err((4, Refusal::Closed))));
    }
}
