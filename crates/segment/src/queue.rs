//! What waits for a lane: bounded in number and bytes, taken in batches by one consumer.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

/// Turns of the executor that items wait at most for others to come: a trickle that never ends must not keep them.
const GATHER_TURNS: usize = 16;

/// Items that half of what waits has at least, if so many wait: fewer are not worth a batch of their own.
const HALF_ITEMS_MIN: usize = 24;

/// Bytes that are worth a batch: what comes beyond them goes to another queue, if there is one.
pub(crate) const GATHER_BYTES: usize = 1 << 20;

/// Of how many who write half is waited for.
const WRITERS: RangeInclusive<usize> = 4..=96;
/// How long: as short as timers are, which may be a millisecond late.
const TURN_WAIT: Duration = Duration::from_millis(1);
/// After so many waits in vain in a row, no more batches are taken without one than after the last.
const VAIN_MAX: u32 = 6;

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
    /// How many the last batch had.
    last: usize,
    /// The consumer is told when so many wait, or so many bytes.
    wanted: (usize, usize),
    /// Waits in vain since one that was not.
    vain: u32,
    /// Batches that are taken without a wait for that.
    at_once: u32,
}

impl<T> State<T> {
    /// Half of those who write, if they are to be waited for: who are here, and who were in the last batch, and so are not.
    fn turn(&mut self) -> usize {
        if self.at_once > 0 {
            self.at_once -= 1;
            return 0;
        }
        let writers = self.last + self.items.len();
        if WRITERS.contains(&writers) { writers / 2 } else { 0 }
    }

    /// Whether so many wait, or so many bytes, or nobody else comes; if not, the consumer is told when.
    fn has(&mut self, items: usize, bytes: usize) -> bool {
        let has = self.items.len() >= items || self.bytes >= bytes || self.closed;
        self.wanted = if has { (0, 0) } else { (items, bytes) };
        has
    }

    /// Notes what came of a wait. Who comes at times of his own is not to wait for others again and again.
    fn waited(&mut self, in_vain: bool) {
        self.wanted = (0, 0);
        self.vain = if in_vain { (self.vain + 1).min(VAIN_MAX) } else { 0 };
        self.at_once = (1 << self.vain) - 1;
    }
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
    /// All of it, once half of those who write are here or a moment has passed: a batch costs much, whatever it has. Those who are answered together come again together, so
    /// that else most of them may come while few are on their way to the disk, and few while most are.
    Turn,
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
            state: Mutex::new(State {
                items: VecDeque::new(),
                bytes: 0,
                closed: false,
                woken: false,
                last: 0,
                wanted: (0, 0),
                vain: 0,
                at_once: 0,
            }),
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
        let is_wanted = state.items.len() >= state.wanted.0 || state.bytes >= state.wanted.1;
        drop(state);
        if is_wanted {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits for an item, lets all who are about to come do so, then takes a portion of what waits, at most `items_max` and `bytes_max` but one at least; nothing if
    /// it was woken. `None`: closed and empty.
    pub(crate) async fn take(&self, portion: Portion, items_max: usize, bytes_max: usize) -> Option<Vec<T>> {
        let turn = loop {
            let filled = self.filled.notified();
            {
                let mut state = self.state.lock();
                // If this was dropped when it waited for more.
                state.wanted = (0, 0);
                if !state.items.is_empty() {
                    break if portion == Portion::Turn { state.turn() } else { 0 };
                }
                if state.closed {
                    return None;
                }
                if std::mem::take(&mut state.woken) {
                    return Some(Vec::new());
                }
            }
            filled.await;
        };
        self.gather(items_max, bytes_max).await;
        self.wait_for(turn.min(items_max), bytes_max.min(GATHER_BYTES)).await;
        let mut state = self.state.lock();
        let items_max = match portion {
            Portion::All | Portion::Turn => items_max,
            Portion::Half => items_max.min(state.items.len().div_ceil(2).max(HALF_ITEMS_MIN)),
        };
        let taken = self.drain(&mut state, items_max, bytes_max);
        state.last = taken.len();
        Some(taken)
    }

    /// Waits until so many are here, or so many bytes, but not for long: they may have gone.
    async fn wait_for(&self, items: usize, bytes: usize) {
        if self.state.lock().has(items, bytes) {
            return;
        }
        let mut patience = pin!(sleep(TURN_WAIT));
        let in_vain = loop {
            let filled = pin!(self.filled.notified());
            if self.state.lock().has(items, bytes) {
                break false;
            }
            if let Either::Right(_) = select(filled, patience.as_mut()).await {
                break true;
            }
        };
        self.state.lock().waited(in_vain);
    }

    /// Lets others run as long as that brings more items: only what can run now runs first, so that a lone item waits for one turn.
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
    use std::sync::Arc;

    use tokio::task::yield_now;
    use tokio::time::Instant;

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

    #[tokio::test(start_paused = true)]
    async fn half_of_those_who_write_is_waited_for_for_a_moment() {
        let queue = Arc::new(Queue::new(1000, 10 * GATHER_BYTES));
        let push = |items: usize| (0..items).for_each(|item| assert!(queue.push(item, 1).is_ok()));
        let take = || {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move {
                let before = Instant::now();
                let taken = queue.take(Portion::Turn, 1000, 10 * GATHER_BYTES).await.unwrap().len();
                (taken, before.elapsed() >= TURN_WAIT)
            })
        };
        // The clock stands as long as there is something to be done.
        let settle = async || {
            for _ in 0..2 * GATHER_TURNS {
                yield_now().await;
            }
        };
        push(10);
        assert_eq!(take().await.unwrap(), (10, false));
        // One by one, as they hear of their last ones; then some are here already.
        for (here, more) in [(0, 5), (3, 1)] {
            push(here);
            let taking = take();
            for _ in 0..more {
                settle().await;
                assert!(!taking.is_finished());
                push(1);
            }
            settle().await;
            assert!(taking.is_finished(), "half of them are here");
            assert_eq!(taking.await.unwrap(), (here + more, false));
        }
        // Of an odd number the smaller half is enough: nobody is waited for who was just answered. So it is where all come at a time.
        for items in [9, 8, 9, 20, 20, 20] {
            push(items);
            assert_eq!(take().await.unwrap(), (items, false), "{items}");
        }
        // Who have gone are waited for once, and less often each time.
        for (items, waited) in
            [(1, true), (1, false), (40, false), (1, true), (40, false), (1, false), (40, false), (1, true)]
        {
            push(items);
            assert_eq!(take().await.unwrap(), (items, waited));
        }
        for _ in 0..7 {
            push(40);
            assert_eq!(take().await.unwrap(), (40, false));
        }
        // Bytes are enough as well.
        let taking = take();
        push(1);
        settle().await;
        assert!(!taking.is_finished());
        assert!(queue.push(0, GATHER_BYTES).is_ok());
        settle().await;
        assert!(taking.is_finished());
        assert_eq!(taking.await.unwrap(), (2, false));
        // So many are not waited for.
        push(60);
        assert_eq!(take().await.unwrap(), (60, false));
        push(37);
        assert_eq!(take().await.unwrap(), (37, false));
        // Whoever waits no more is told of each that comes.
        let taking = take();
        push(1);
        settle().await;
        taking.abort();
        settle().await;
        assert_eq!(queue.take(Portion::All, 1000, 1000).await.unwrap().len(), 1);
        let taking = take();
        settle().await;
        push(1);
        assert_eq!(taking.await.unwrap(), (1, false));
        push(20);
        assert_eq!(take().await.unwrap(), (20, false));
        let taking = take();
        push(1);
        settle().await;
        assert!(!taking.is_finished());
        queue.close();
        assert_eq!(taking.await.unwrap(), (1, false));
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
