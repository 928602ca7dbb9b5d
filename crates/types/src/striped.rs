//! What all threads write and few read, in one copy for each of a number of threads: a processor that counts does not take the cache line from another that does
//! (docs/MEASUREMENTS.md, "Lines that processors take from each other").

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many copies there are.
pub const STRIPES: usize = 16;

/// A copy on lines of its own: processors fetch two of 64 bytes at a time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe<T>(T);

/// [`STRIPES`] copies of `T`. Which one a thread uses follows from when it came: neither is a copy one thread's alone, nor do few threads always have different ones.
#[derive(Debug)]
pub struct Striped<T>(Box<[Stripe<T>; STRIPES]>);

impl<T> Striped<T> {
    /// Copies that `make` makes of their numbers, which are below [`STRIPES`].
    pub fn new(make: impl Fn(usize) -> T) -> Self {
        Self(Box::new(std::array::from_fn(|number| Stripe(make(number)))))
    }

    /// The copy that this thread is to use. Others may use it as well.
    #[must_use]
    pub fn mine(&self) -> &T {
        &self.0[thread_number() % STRIPES].0
    }

    /// All copies.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|stripe| &stripe.0)
    }
}

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        Self::new(|_| T::default())
    }
}

/// Threads are numbered as they come.
fn thread_number() -> usize {
    const NONE: usize = usize::MAX;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(NONE) });
    NUMBER.with(|number| {
        if number.get() == NONE {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed) & (NONE >> 1));
        }
        number.get()
    })
}

/// A number that only grows, and that any thread may add to.
#[derive(Debug, Default)]
pub struct Counter(Striped<AtomicU64>);

impl Counter {
    /// The value. What is added meanwhile may be missing.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.mine().fetch_add(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_what_all_threads_added() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for thread in 0..3 * STRIPES as u64 {
                let counter = &counter;
                scope.spawn(move || (0..1000).for_each(|_| counter.add(thread)));
            }
        });
        assert_eq!(counter.get(), 1000 * (0..3 * STRIPES as u64).sum::<u64>());
    }

    #[test]
    fn a_thread_keeps_its_copy_and_not_all_have_the_same() {
        let numbers = Striped::new(|number| number);
        assert!(numbers.iter().copied().eq(0..STRIPES));
        let mine = || (*numbers.mine(), *numbers.mine());
        let found: std::collections::BTreeSet<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..STRIPES).map(|_| scope.spawn(mine)).collect();
            threads
                .into_iter()
                .map(|thread| {
                    let (one, again) = thread.join().unwrap();
                    assert_eq!(one, again);
                    one
                })
                .collect()
        });
        // Other tests number threads as well.
        assert!(found.len() > 1);
    }

    #[test]
    fn copies_lie_apart() {
        let copies = Striped::<AtomicU64>::default();
        let places: Vec<usize> = copies.iter().map(|copy| std::ptr::from_ref(copy).addr()).collect();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 128));
    }
}
