//! Holding writers back while compaction makes room for them (docs/adr/0007).
//!
//! When space is short and there is garbage, bodies are let in as fast as room comes back: the room that is left is dealt out as
//! *credit*, in the order in which writers came, and who finds none waits, before it takes a lock and before its body is read. Compaction does not
//! wait for anything meanwhile, and goes on until there is room for all who wait. As long as space is not short, this costs a write two additions.
//!
//! It does not decide what is garbage (`crate::compact` does), nor does it hold back deletions and what ends an upload: they make room.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use gabion_metadata::rows::ObjectRow;
use gabion_segment::{Demand, Room};
use gabion_types::SegmentId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{StoreError, compact, store::Inner};

/// Writers that wait at a time: more are told to come again at once. Each has a connection, no more.
const WAITING_MAX: usize = 16 * 1024;
/// Room that is dealt out at once, in bytes: longer bodies ask for it in runs of so much. A slow client keeps no more from others.
pub(crate) const ADMITTED_BYTES_MAX: u64 = 16 << 20;
/// What is outstanding makes space short no sooner than if it were so much, in bytes: else many slow clients could with bodies that never come.
const OUTSTANDING_BYTES_MAX: u64 = 16 * ADMITTED_BYTES_MAX;
/// What a body, or a stripe of one, takes beside its bytes: its record, the header of a stripe that it may be alone in, padding.
pub(crate) const OVERHEAD_BYTES: u64 = 4096;
/// What a record says of an extent, and of a part, in bytes.
const EXTENT_BYTES: u64 = 56;
const PART_BYTES: u64 = 128;

/// Who may write how much.
pub(crate) struct Holdback {
    /// Whether writers are let in by credit.
    is_on: AtomicBool,
    /// Bytes that were let in and are not written yet, whether or not it is on.
    outstanding_bytes: AtomicU64,
    waiting: AtomicUsize,
    waiting_bytes: AtomicU64,
    /// Held by the one whose turn it is; the others wait for it, in the order in which they came.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// Rings for the one whose turn it is.
    changed: Notify,
    /// Rings when compaction is waited for.
    wanted: Notify,
    /// Rings for all that compaction does slowly when it is waited for.
    pressed: Notify,
    /// Rings when the room should be measured.
    measure: Arc<Notify>,
    /// One looks at the targets at a time: who is later knows better.
    measuring: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Bytes that may still be let in.
    credit_bytes: u64,
    /// What the credit was reckoned from: bytes that were outstanding when the room was measured, and those let in since.
    charged_bytes: u64,
    /// What compaction moves at the moment.
    moving: Option<Moving>,
    /// It has borrowed room: what it takes on the way says nothing about the room that there is.
    is_lent: bool,
    /// There is nothing to gain before somebody who was let in is done.
    is_idle: bool,
    /// The last round of compaction gave nothing back: nobody waits for the next.
    is_fruitless: bool,
}

/// What a round of compaction moves.
struct Moving {
    victims: HashSet<SegmentId>,
    bytes: u64,
}

/// A body that was let in, until it is written or given up.
pub(crate) struct Admitted {
    holdback: Arc<Holdback>,
    bytes: u64,
    /// Whether what it was let in for is on its way to the targets.
    is_spent: bool,
}

impl Admitted {
    /// The part that the next stripe takes, at most `bytes`; nothing if there is no more than what the body's record takes.
    pub(crate) fn split(&mut self, bytes: u64) -> Option<Self> {
        let bytes = bytes.min(self.bytes.saturating_sub(OVERHEAD_BYTES));
        self.bytes -= bytes;
        (bytes > 0).then(|| Self { holdback: Arc::clone(&self.holdback), bytes, is_spent: false })
    }

    /// What it was let in for is about to be written.
    pub(crate) fn spend(&mut self) {
        self.is_spent = true;
    }

    /// It counts no more, and nothing was written: who was let in a moment ago has to wait after all.
    fn take_back(mut self) {
        self.holdback.outstanding_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        self.bytes = 0;
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let before = self.holdback.outstanding_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        if !self.is_spent {
            self.holdback.given_up(self.bytes);
        }
        if self.holdback.is_on() && self.holdback.waiting() > 0 {
            self.holdback.written(before - self.bytes);
        }
    }
}

impl Holdback {
    /// Off; `measure` rings when room was taken or given back.
    pub(crate) fn new(measure: Arc<Notify>) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            outstanding_bytes: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            waiting_bytes: AtomicU64::new(0),
            turn: tokio::sync::Mutex::default(),
            state: Mutex::default(),
            changed: Notify::new(),
            wanted: Notify::new(),
            pressed: Notify::new(),
            measure,
            measuring: tokio::sync::Mutex::default(),
        }
    }

    /// Waits until a body of `body_bytes` may be written, at most `longest`. Cancel safe.
    ///
    /// # Errors
    /// `Busy` when it takes too long, or too many wait.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        body_bytes: u64,
        longest: Duration,
        held_back: impl FnOnce(),
    ) -> Result<Admitted, StoreError> {
        let bytes = body_bytes.saturating_add(OVERHEAD_BYTES);
        // Counted first: whoever switches it on sees it, or is seen. That takes one order of all four accesses, so they are sequentially consistent.
        let admitted = self.let_in(bytes);
        if !self.is_on.load(Ordering::SeqCst) {
            return Ok(admitted);
        }
        admitted.take_back();
        if let Ok(_turn) = self.turn.try_lock()
            && let Some(admitted) = self.try_admit(bytes)
        {
            return Ok(admitted);
        }
        held_back();
        let _waiting = Waiting::begin(self, bytes).ok_or(StoreError::Busy)?;
        // There is to be room for this one, too.
        self.room_changed();
        Box::pin(tokio::time::timeout(longest, self.wait(bytes))).await.map_err(|_| StoreError::Busy)
    }

    /// Waits for its turn, and then until there is credit enough.
    async fn wait(self: &Arc<Self>, bytes: u64) -> Admitted {
        let _turn = self.turn.lock().await;
        loop {
            if let Some(admitted) = self.try_admit(bytes) {
                return admitted;
            }
            self.changed.notified().await;
        }
    }

    fn try_admit(self: &Arc<Self>, bytes: u64) -> Option<Admitted> {
        let mut state = self.state.lock();
        if self.is_on.load(Ordering::Acquire) {
            state.credit_bytes = state.credit_bytes.checked_sub(bytes)?;
            state.charged_bytes += bytes;
        }
        Some(self.let_in(bytes))
    }

    fn let_in(self: &Arc<Self>, bytes: u64) -> Admitted {
        self.outstanding_bytes.fetch_add(bytes, Ordering::SeqCst);
        Admitted { holdback: Arc::clone(self), bytes, is_spent: false }
    }

    /// A body that was let in will not come. While room is lent nothing is measured that would find what it leaves.
    fn given_up(&self, bytes: u64) {
        let mut state = self.state.lock();
        if state.is_lent {
            state.charged_bytes = state.charged_bytes.saturating_sub(bytes);
            state.credit_bytes = state.credit_bytes.saturating_add(bytes);
            self.changed.notify_one();
        }
    }

    /// Something was written while others wait. What was reckoned with may have turned out to be too much: worth a look when half of it is done.
    fn written(&self, outstanding_bytes: u64) {
        let mut state = self.state.lock();
        if !state.is_lent && (state.is_idle || outstanding_bytes <= state.charged_bytes / 2) {
            // What kept segments from being reclaimed may be complete.
            state.is_fruitless = false;
            self.measure.notify_one();
        }
    }

    /// Deals out what may be written; with nothing, everyone may write.
    fn set(&self, state: &mut State, data_bytes: Option<u64>) {
        let was_on = self.is_on.swap(data_bytes.is_some(), Ordering::SeqCst);
        state.charged_bytes = self.outstanding_bytes.load(Ordering::SeqCst);
        state.credit_bytes = data_bytes.unwrap_or(0).saturating_sub(state.charged_bytes);
        self.changed.notify_one();
        if data_bytes.is_some() && !was_on {
            self.pressed.notify_waiters();
        }
    }

    /// Whether writers are let in by credit.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Bytes that writers are about to write, or wait to.
    fn wanted_bytes(&self) -> u64 {
        let outstanding_bytes = self.outstanding_bytes.load(Ordering::Acquire);
        if self.is_on() {
            outstanding_bytes.saturating_add(self.waiting_bytes.load(Ordering::Acquire))
        } else {
            outstanding_bytes.min(OUTSTANDING_BYTES_MAX)
        }
    }

    /// Number of writers that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Resolves when compaction is waited for.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Leaves the machine to others for so long. Who waits for room must not wait for this.
    pub(crate) async fn pause(&self, pause: Duration) {
        let pressed = self.pressed.notified();
        if !self.is_on() {
            tokio::select! {
                biased;
                () = pressed => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Asks for a look at the targets: room was taken or given back.
    pub(crate) fn room_changed(&self) {
        self.measure.notify_one();
    }

    /// The files of a segment with so much payload are gone.
    pub(crate) fn removed(&self, segment: SegmentId, payload_bytes: u64) {
        let mut state = self.state.lock();
        state.is_fruitless = false;
        // What compaction gains is reckoned when it gives back what it borrowed.
        let is_victim = state.moving.as_ref().is_some_and(|moving| moving.victims.contains(&segment));
        if state.is_lent && !is_victim {
            state.credit_bytes = state.credit_bytes.saturating_add(payload_bytes);
            self.changed.notify_one();
        }
        self.measure.notify_one();
    }

    /// Notes whether a round of compaction, which writers waited for or not, gave anything back.
    pub(crate) fn round_ended(&self, was_waited_for: bool, gave_back: bool) {
        let is_fruitless = &mut self.state.lock().is_fruitless;
        *is_fruitless = !gave_back && (was_waited_for || *is_fruitless);
    }
}

/// A writer that waits, and what for.
struct Waiting<'a> {
    holdback: &'a Holdback,
    bytes: u64,
}

impl<'a> Waiting<'a> {
    fn begin(holdback: &'a Holdback, bytes: u64) -> Option<Self> {
        holdback.waiting_bytes.fetch_add(bytes, Ordering::AcqRel);
        let one = Self { holdback, bytes };
        (holdback.waiting.fetch_add(1, Ordering::AcqRel) < WAITING_MAX).then_some(one)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.holdback.waiting.fetch_sub(1, Ordering::AcqRel);
        self.holdback.waiting_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A round of compaction moves rows; to be dropped when what it gained is there.
pub(crate) struct MovingRows<'a>(&'a Inner);

impl MovingRows<'_> {
    /// Whether writers depend on what it gains.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.0.holdback.is_on()
    }
}

impl Drop for MovingRows<'_> {
    fn drop(&mut self) {
        let holdback = &self.0.holdback;
        {
            let mut state = holdback.state.lock();
            state.moving = None;
            state.is_lent = false;
        }
        self.0.log.lend(0);
        holdback.room_changed();
    }
}

impl Inner {
    /// Waits until a body, or so much of it, may be written.
    ///
    /// # Errors
    /// `Busy` when it takes too long.
    pub(crate) async fn admit(&self, body_bytes: u64) -> Result<Admitted, StoreError> {
        let longest = Duration::from_millis(self.config.compaction.writers_wait_ms);
        let admitted = self.holdback.admit(body_bytes, longest, || self.metrics.writes_held_back.add(1)).await;
        if admitted.is_err() {
            self.metrics.writes_held_back_in_vain.add(1);
            // Somebody else may have made room.
            self.holdback.room_changed();
        }
        admitted
    }

    /// Waits until a record about an object may be written that refers to its bytes where they lie: a copy, a renaming, or a change of what is said
    /// about it. To be called before a lock is taken that compaction takes as well.
    ///
    /// # Errors
    /// As [`Inner::admit`].
    pub(crate) async fn admit_record(&self, row: &ObjectRow) -> Result<Admitted, StoreError> {
        let extents = row.size / self.log.stripe_payload_bytes().max(1) as u64 + 1;
        let parts = row.parts.map_or(0, |parts| u64::from(parts.count));
        let mut admitted = self.admit(extents * EXTENT_BYTES + parts * PART_BYTES).await?;
        admitted.spend();
        Ok(admitted)
    }

    /// How much room there is when compaction is about to move `moving_bytes`; what writers want to write is to fit as well.
    pub(crate) async fn room(&self, moving_bytes: u64) -> Room {
        self.log.room(Demand { moving_bytes, writers_bytes: self.holdback.wanted_bytes() }).await
    }

    /// Looks how much room there is: whether writers must be held back, and what they may write.
    pub(crate) async fn measure_room(&self) {
        if self.config.compaction.writers_wait_ms == 0 {
            return;
        }
        let holdback = &self.holdback;
        let _one = holdback.measuring.lock().await;
        if holdback.state.lock().is_lent {
            return;
        }
        let room = self.room(0).await;
        let has_gain = room.is_short && compact::has_gain(self, &room);
        let moving_bytes = {
            let mut state = holdback.state.lock();
            state.is_fruitless &= room.is_short;
            let gains = has_gain && !state.is_fruitless;
            // Who was let in gives something back when he is done, if only what he did not need.
            let may_gain = room.is_short && holdback.is_on() && holdback.outstanding_bytes.load(Ordering::Acquire) > 0;
            state.is_idle = !gains && may_gain;
            if gains {
                holdback.wanted.notify_one();
            }
            match &state.moving {
                Some(moving) if gains || may_gain => moving.bytes,
                _ => return holdback.set(&mut state, (gains || may_gain).then_some(room.data_bytes)),
            }
        };
        self.lend_room(moving_bytes).await;
    }

    /// Compaction is about to move `bytes` of `victims`. If writers are held back, now or later, they get what is left beside that, and what it
    /// takes on the way does not count.
    pub(crate) async fn begin_moving(&self, victims: HashSet<SegmentId>, bytes: u64) -> MovingRows<'_> {
        let holdback = &self.holdback;
        let _one = holdback.measuring.lock().await;
        holdback.state.lock().moving = Some(Moving { victims, bytes });
        let moving = MovingRows(self);
        if holdback.is_on() {
            self.lend_room(bytes).await;
        }
        moving
    }

    async fn lend_room(&self, moving_bytes: u64) {
        let room = self.room(moving_bytes).await;
        let mut state = self.holdback.state.lock();
        if state.moving.is_none() {
            // The round ended meanwhile, and asked for another look.
            return;
        }
        self.log.lend(room.lent_bytes);
        state.is_lent = true;
        self.holdback.set(&mut state, Some(room.data_bytes));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(20);

    fn held(credit_bytes: u64) -> Arc<Holdback> {
        let holdback = Arc::new(Holdback::new(Arc::default()));
        deal(&holdback, Some(credit_bytes));
        holdback
    }

    fn deal(holdback: &Holdback, bytes: Option<u64>) {
        holdback.set(&mut holdback.state.lock(), bytes);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_while_it_is_off() {
        let holdback = Arc::new(Holdback::new(Arc::default()));
        let first = holdback.admit(1 << 40, LONGEST, || panic!("it waited")).now_or_never();
        assert!(first.is_some_and(|admitted| admitted.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn credit_is_dealt_in_order() {
        let holdback = held(3 * OVERHEAD_BYTES);
        let first = holdback.admit(OVERHEAD_BYTES, LONGEST, || panic!("it waited")).await.ok();
        let mut second = Box::pin(holdback.admit(OVERHEAD_BYTES, LONGEST, || {}));
        let mut third = Box::pin(holdback.admit(0, LONGEST, || {}));
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none(), "there is enough for it, and it is not its turn");
        assert_eq!(holdback.waiting(), 2);
        // What was let in counts until it is written.
        deal(&holdback, Some(3 * OVERHEAD_BYTES));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        deal(&holdback, Some(3 * OVERHEAD_BYTES));
        let second = second.await.ok();
        let third = third.await.ok();
        assert!(second.is_some() && third.is_some());
        assert_eq!(holdback.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_lets_the_next_one_come() {
        let holdback = held(0);
        let mut first = Box::pin(holdback.admit(1 << 30, LONGEST, || {}));
        let mut second = Box::pin(holdback.admit(0, LONGEST, || {}));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        deal(&holdback, Some(OVERHEAD_BYTES));
        drop(first);
        assert!(second.await.is_ok());
        assert_eq!(holdback.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_ends() {
        let holdback = held(0);
        let before = tokio::time::Instant::now();
        assert!(matches!(holdback.admit(0, LONGEST, || {}).await, Err(StoreError::Busy)));
        assert_eq!(before.elapsed(), LONGEST);
        assert_eq!((holdback.waiting(), holdback.outstanding_bytes.load(Ordering::Relaxed)), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn all_go_when_there_is_nothing_to_wait_for() {
        let holdback = held(0);
        let waiting = (0..100).map(|_| holdback.admit(1 << 20, LONGEST, || {}));
        let mut waiting = Box::pin(futures::future::join_all(waiting));
        assert!((&mut waiting).now_or_never().is_none());
        deal(&holdback, None);
        assert!(waiting.await.iter().all(Result::is_ok));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_back_on_the_way_is_dealt_out() {
        let holdback = held(0);
        holdback.state.lock().is_lent = true;
        let mut waiting = Box::pin(holdback.admit(0, LONGEST, || {}));
        assert!((&mut waiting).now_or_never().is_none());
        holdback.removed(SegmentId::new(1, 1), OVERHEAD_BYTES);
        assert!(waiting.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_let_in_and_does_not_come_is_dealt_out_again() {
        let holdback = held(2 * OVERHEAD_BYTES);
        holdback.state.lock().is_lent = true;
        let first = holdback.admit(OVERHEAD_BYTES, LONGEST, || panic!("it waited")).await.ok();
        let mut second = Box::pin(holdback.admit(OVERHEAD_BYTES, LONGEST, || {}));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        let mut second = second.await.ok();
        // What is written is not there any more.
        let mut third = Box::pin(holdback.admit(OVERHEAD_BYTES, LONGEST, || {}));
        assert!((&mut third).now_or_never().is_none());
        second.as_mut().unwrap().spend();
        drop(second);
        assert!(matches!(third.await, Err(StoreError::Busy)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_and_has_to_wait_has_written_nothing() {
        let holdback = held(0);
        {
            let mut state = holdback.state.lock();
            (state.is_idle, state.is_fruitless) = (true, true);
        }
        let mut first = Box::pin(holdback.admit(0, LONGEST, || {}));
        let mut second = Box::pin(holdback.admit(0, LONGEST, || {}));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        assert!(holdback.state.lock().is_fruitless);
    }
}
