//! What waits for a lane: bounded in number and bytes, taken in batches by one consumer.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Turns of the executor that items wait at most for others to come: a trickle that never ends must not keep them.
const GATHER_TURNS: usize = 16;

/// Items that half of what waits has at least, if so many wait: fewer are not worth a batch of their own.
const HALF_ITEMS_MIN: usize = 24;

/// Items, and bytes, that are worth a batch: more are not waited for, and go to another queue if there is one.
pub(crate) const GATHER_ITEMS: usize = 64;
pub(crate) const GATHER_BYTES: usize = 1 << 20;

/// One in so many of those who write is not waited for: the last ones come late, and to wait for all costs more time than they are worth.
const NOT_WAITED_FOR: usize = 8;

/// So many waits in vain in a row make the most of batches that are taken without one: 2 to this power, less one.
const IN_VAIN_MAX: u32 = 6;

/// A bounded queue with many producers and one consumer.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Notify,
    /// Taken and not yet answered.
    in_flight: AtomicUsize,
    items_max: usize,
    bytes_max: usize,
}

/// Counts an item that was taken as in flight until it is answered, however that comes.
pub(crate) struct InFlight<T>(pub(crate) Arc<Queue<T>>);

impl<T> Drop for InFlight<T> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

struct State<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    closed: bool,
    woken: bool,
    /// How many the last batch had.
    last: usize,
    /// With fewer items and fewer bytes than these the consumer does not want to be told.
    wanted: (usize, usize),
    company: Company,
    /// How long those of the last batch were kept for others.
    held: Option<Duration>,
}

impl<T> State<T> {
    /// How many write: who waits, and who was in the last batch, if that was just done.
    fn writers(&self) -> usize {
        self.last + self.items.len()
    }

    /// Whether there is what the consumer wants, or there will not be.
    fn has_wanted(&self) -> bool {
        let (items, bytes) = self.wanted;
        self.items.len() >= items || self.bytes >= bytes || self.closed
    }
}

/// Whether those who write are waited for: less often each time that it was not worth it.
#[derive(Default)]
struct Company {
    /// Waits since the last one that was worth it.
    in_vain: u32,
    /// Batches that are to be taken without one.
    alone: u32,
}

impl Company {
    fn is_due(&mut self) -> bool {
        let is_due = self.alone == 0;
        self.alone = self.alone.saturating_sub(1);
        is_due
    }

    fn note(&mut self, is_worth_it: bool) {
        self.in_vain = if is_worth_it { 0 } else { (self.in_vain + 1).min(IN_VAIN_MAX) };
        self.alone = (1 << self.in_vain) - 1;
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
    /// All of it, once seven eighths of those who write are here (of a few, all), or so much time has passed: a batch costs much, whatever it has. Those who are answered together come
    /// again together, so that else most of them may come while few are on their way to the disk, and few while most are.
    Together(Duration),
}

impl Portion {
    fn of(self, items: usize) -> usize {
        match self {
            Self::All | Self::Together(_) => items,
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
            state: Mutex::new(State {
                items: VecDeque::new(),
                bytes: 0,
                closed: false,
                woken: false,
                last: 0,
                wanted: (0, 0),
                company: Company::default(),
                held: None,
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
        let is_wanted = state.has_wanted();
        drop(state);
        if is_wanted {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits for an item, lets all who are about to come do so, then takes a portion of what waits, at most `items_max` and `bytes_max` but one at least; nothing if
    /// it was woken. `None`: closed and empty.
    pub(crate) async fn take(&self, portion: Portion, items_max: usize, bytes_max: usize) -> Option<Vec<T>> {
        let start = Instant::now();
        let writers = {
            let mut state = self.state.lock();
            // If this was dropped while it waited for more.
            state.wanted = (0, 0);
            state.held = None;
            // Not later: who comes from now on may be one of the last batch.
            state.writers()
        };
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
        if let Portion::Together(patience) = portion
            && (2..=GATHER_ITEMS.min(items_max).min(self.items_max)).contains(&writers)
        {
            let items = writers - writers / NOT_WAITED_FOR;
            self.wait_for(items, bytes_max.min(GATHER_BYTES).min(self.bytes_max), start, patience).await;
        }
        let mut state = self.state.lock();
        let items_max = items_max.min(portion.of(state.items.len()));
        let taken = self.drain(&mut state, items_max, bytes_max);
        state.last = taken.len();
        Some(taken)
    }

    /// Waits until there are so many items or bytes, or `patience` has passed since `start`, if such waits are worth it.
    async fn wait_for(&self, items: usize, bytes: usize, start: Instant, patience: Duration) {
        let (begin, deadline) = (Instant::now(), start + patience);
        let here = {
            let mut state = self.state.lock();
            state.wanted = (items, bytes);
            if state.has_wanted() || begin >= deadline || !state.company.is_due() {
                state.wanted = (0, 0);
                return;
            }
            state.items.len()
        };
        let mut late = pin!(sleep_until(deadline));
        loop {
            let filled = pin!(self.filled.notified());
            if self.state.lock().has_wanted() {
                break;
            }
            if let Either::Right(_) = select(filled, late.as_mut()).await {
                break;
            }
        }
        let waited = begin.elapsed();
        let mut state = self.state.lock();
        state.wanted = (0, 0);
        state.held = Some(waited);
        let (here, came) = (here as u32, state.items.len().saturating_sub(here) as u32);
        // Who came is spared the batch before theirs, and the cores its cost, which is worth as much again: patience. Those who were here waited for it.
        state.company.note(patience.saturating_sub(waited) * came >= waited * here);
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

    /// How long those of the last batch were kept for others, if they were.
    pub(crate) fn held(&self) -> Option<Duration> {
        self.state.lock().held
    }

    /// How many write at the moment at which a batch is done.
    pub(crate) fn writers(&self) -> usize {
        self.state.lock().writers()
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
    use tokio::task::{JoinHandle, yield_now};

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(3);

    /// A queue of those who write together: what is taken, and whether it was after all patience.
    struct Band(Arc<Queue<usize>>);

    impl Band {
        fn new() -> Self {
            Self(Arc::new(Queue::new(1000, 10 * GATHER_BYTES)))
        }

        fn push(&self, items: usize) {
            (0..items).for_each(|item| assert!(self.0.push(item, 1).is_ok()));
        }

        fn take(&self) -> JoinHandle<(usize, bool)> {
            let queue = Arc::clone(&self.0);
            tokio::spawn(async move {
                let before = Instant::now();
                let taken = queue.take(Portion::Together(PATIENCE), 1000, 10 * GATHER_BYTES).await.unwrap().len();
                (taken, before.elapsed() >= PATIENCE)
            })
        }

        /// Who were on their way come back while the last batch is on its way.
        async fn batch(&self, items: usize) -> (usize, bool) {
            self.push(items);
            self.take().await.unwrap()
        }

        /// Takes what comes one by one, the last of which is the one that was waited for.
        async fn one_by_one(&self, here: usize, more: usize) {
            self.push(here);
            let taking = self.take();
            for _ in 0..more {
                settle().await;
                assert!(!taking.is_finished());
                self.push(1);
            }
            settle().await;
            assert!(taking.is_finished(), "all who are waited for are here");
            assert_eq!(taking.await.unwrap(), (here + more, false));
        }
    }

    /// Lets others run. The clock stands as long as there is something to be done.
    async fn settle() {
        for _ in 0..2 * GATHER_TURNS {
            yield_now().await;
        }
    }

    /// Of eleven who write one is here, and is kept for the others.
    async fn one_of_eleven() -> (Band, JoinHandle<(usize, bool)>) {
        let band = Band::new();
        band.batch(10).await;
        band.push(1);
        let taking = band.take();
        settle().await;
        assert!(!taking.is_finished());
        (band, taking)
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_write_but_an_eighth_are_waited_for() {
        let band = Band::new();
        assert_eq!(band.batch(10).await, (10, false));
        // As they hear of their last ones: nine of ten. Then with others, who came meanwhile: eleven of twelve, and ten of eleven.
        band.one_by_one(0, 9).await;
        band.one_by_one(3, 8).await;
        band.one_by_one(0, 10).await;
        // 56 of 64.
        let many = Band::new();
        assert_eq!(many.batch(56).await, (56, false));
        many.one_by_one(8, 48).await;
        // Of a few, all.
        let few = Band::new();
        assert_eq!(few.batch(7).await, (7, false));
        few.one_by_one(0, 7).await;
        few.one_by_one(0, 7).await;
        // One who writes alone does not wait for himself.
        assert_eq!(band.batch(1).await, (1, true));
        for _ in 0..3 {
            let taking = band.take();
            settle().await;
            band.push(1);
            assert_eq!(taking.await.unwrap(), (1, false));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_do_not_come_are_waited_for_less_often_each_time() {
        let band = Band::new();
        let mut waits = Vec::new();
        for batch in 0..300 {
            // Those of the last batch never come again before others do.
            if band.batch(2).await == (2, true) {
                waits.push(batch);
            }
        }
        assert_eq!(waits, [1, 3, 7, 15, 31, 63, 127, 191, 255]);
        // Until they do.
        let band = Band::new();
        band.batch(2).await;
        assert!(band.batch(2).await.1 && !band.batch(2).await.1);
        band.one_by_one(2, 2).await;
        assert!(band.batch(2).await.1, "that was not in vain");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_worth_it_that_saves_more_than_it_costs() {
        for (here, more, after_ms, is_worth_it) in
            [(2, 1, 2, false), (2, 3, 2, false), (2, 4, 2, true), (2, 1, 1, true), (3, 1, 1, false)]
        {
            let band = Band::new();
            band.batch(more).await;
            band.push(here);
            let taking = band.take();
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            assert!(!taking.is_finished());
            band.push(more);
            assert_eq!(taking.await.unwrap(), (here + more, false));
            assert_eq!(
                band.batch(2).await,
                (2, is_worth_it),
                "{here}, {more} after {after_ms} ms: whether the next is waited for"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_waited_for_who_brings_nothing() {
        let band = Band::new();
        assert_eq!(band.batch(GATHER_ITEMS - 1).await, (GATHER_ITEMS - 1, false));
        // A batch of so many is worth it as it is.
        assert_eq!(band.batch(2).await, (2, false));
        // What comes later than that did not come together with them.
        let taking = band.take();
        tokio::time::sleep(PATIENCE).await;
        let before = Instant::now();
        band.push(1);
        assert_eq!(taking.await.unwrap().0, 1);
        assert_eq!(before.elapsed(), Duration::ZERO);
        // So many bytes are worth it, too.
        let (band, taking) = one_of_eleven().await;
        assert!(band.0.push(0, GATHER_BYTES).is_ok());
        settle().await;
        assert!(taking.is_finished());
        assert_eq!(taking.await.unwrap(), (2, false));
        // Nor is anybody for whom there is no room.
        let narrow = Queue::new(3, 1000);
        (0..2).for_each(|item| assert!(narrow.push(item, 1).is_ok()));
        narrow.take(Portion::All, 10, 1000).await;
        (0..2).for_each(|item| assert!(narrow.push(item, 1).is_ok()));
        assert_eq!(narrow.take(Portion::Together(PATIENCE), 10, 1000).await.unwrap().len(), 2);
        assert_eq!(narrow.held(), None);
        // Nobody comes who is refused.
        let (band, taking) = one_of_eleven().await;
        band.0.close();
        assert_eq!(taking.await.unwrap(), (1, false));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_no_more_is_told_of_each_that_comes() {
        let (band, taking) = one_of_eleven().await;
        taking.abort();
        settle().await;
        assert_eq!(band.0.take(Portion::All, 1000, 1000).await.unwrap().len(), 1);
        let taking = band.take();
        settle().await;
        assert!(!taking.is_finished());
        band.push(1);
        settle().await;
        assert!(taking.is_finished());
    }

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
