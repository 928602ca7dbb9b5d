use std::{
    sync::{
        Barrier,
        atomic::AtomicBool,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use super::*;
use crate::{
    MemoryIndex,
    conformance::{self, Fixture},
};

const KEY: &[u8] = b"key";

fn put(row: &str) -> Vec<Write> {
    vec![Write::Put(Table::Object, KEY.into(), row.into())]
}

struct Crashing {
    engine: MemoryIndex,
    index: Arc<CachedIndex<MemoryIndex>>,
    crashes: usize,
}

impl Fixture for Crashing {
    fn index(&self) -> Arc<dyn Index> {
        self.index.clone()
    }

    fn crash_and_reopen(&mut self) {
        self.engine.crash(self.crashes * 3);
        self.crashes += 1;
        self.index = Arc::new(CachedIndex::new(self.engine.clone(), 1 << 20));
    }
}

#[test]
fn conforms_over_memory() {
    // A cache that holds next to nothing takes the other paths.
    for row_cache_bytes in [1 << 20, 1] {
        conformance::run(&|| {
            let engine = MemoryIndex::new();
            let index = Arc::new(CachedIndex::new(engine.clone(), row_cache_bytes));
            Box::new(Crashing { engine, index, crashes: 0 })
        });
    }
}

/// An engine that stops at the end of a get or a commit, when told to, until it is let go.
#[derive(Clone)]
struct Stopping {
    engine: MemoryIndex,
    stop_get: Arc<Mutex<Option<Stop>>>,
    stop_commit: Arc<Mutex<Option<Stop>>>,
}

struct Stop {
    reached: Sender<()>,
    go_on: Receiver<()>,
}

impl Stop {
    /// The stop, what tells that it is reached, and what lets go.
    ///
    /// Dropped, the latter lets go too: move it into the scope, so that a failed assertion ends the test.
    fn new() -> (Self, Receiver<()>, Sender<()>) {
        let ((reached, is_reached), (let_go, go_on)) = (channel(), channel());
        (Self { reached, go_on }, is_reached, let_go)
    }

    fn take(stop: &Mutex<Option<Stop>>) {
        let stop = stop.lock().take();
        if let Some(stop) = stop {
            stop.reached.send(()).unwrap();
            let _ = stop.go_on.recv();
        }
    }
}

impl Index for Stopping {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Value>, IndexError> {
        let row = self.engine.get(table, key);
        Stop::take(&self.stop_get);
        row
    }

    fn scan(&self, range: ScanRange, limit: usize) -> Result<Rows, IndexError> {
        self.engine.scan(range, limit)
    }

    fn snapshot(&self) -> Arc<dyn IndexSnapshot> {
        self.engine.snapshot()
    }

    fn commit(&self, preconditions: &[Precondition], writes: Vec<Write>) -> Result<(), IndexError> {
        let outcome = self.engine.commit(preconditions, writes);
        Stop::take(&self.stop_commit);
        outcome
    }

    fn persist(&self) -> Result<(), IndexError> {
        self.engine.persist()
    }

    fn check(&self) -> Result<(), IndexError> {
        self.engine.check()
    }

    fn available_bytes(&self) -> Option<u64> {
        self.engine.available_bytes()
    }

    fn stats(&self) -> IndexStats {
        self.engine.stats()
    }
}

fn stopping() -> (Arc<CachedIndex<Stopping>>, Stopping) {
    let engine = Stopping { engine: MemoryIndex::new(), stop_get: Arc::default(), stop_commit: Arc::default() };
    (Arc::new(CachedIndex::new(engine.clone(), 1 << 20)), engine)
}

#[test]
fn a_reader_overtaken_by_a_commit_caches_nothing() {
    for other_row in [false, true] {
        let (index, engine) = stopping();
        index.commit(&[], put("old")).unwrap();
        let (stop, reached, let_go) = Stop::new();
        *engine.stop_get.lock() = Some(stop);
        let index = &index;
        thread::scope(move |scope| {
            let reader = scope.spawn(|| index.get(Table::Object, KEY).unwrap().unwrap());
            reached.recv().unwrap();
            // The reader has the old row in its hands.
            index
                .commit(&[], if other_row { vec![Write::Delete(Table::Object, KEY.into())] } else { put("new") })
                .unwrap();
            let_go.send(()).unwrap();
            assert_eq!(reader.join().unwrap(), "old");
        });
        let expected = (!other_row).then_some(&b"new"[..]);
        for _ in 0..2 {
            assert_eq!(index.get(Table::Object, KEY).unwrap().as_deref(), expected);
        }
        assert_eq!(index.stats().cache_hits, 1);
    }
}

#[test]
fn nobody_sees_the_old_row_once_the_engine_has_the_new_one() {
    let (index, engine) = stopping();
    index.commit(&[], put("old")).unwrap();
    assert_eq!(index.get(Table::Object, KEY).unwrap().unwrap(), "old");
    let (stop, reached, let_go) = Stop::new();
    *engine.stop_commit.lock() = Some(stop);
    let index = &index;
    thread::scope(move |scope| {
        scope.spawn(|| index.commit(&[], put("new")).unwrap());
        reached.recv().unwrap();
        // The commit is in the engine and has not returned: scans see it, so must gets.
        assert_eq!(index.scan(ScanRange::all(Table::Object), 1).unwrap()[0].1, "new");
        assert_eq!(index.get(Table::Object, KEY).unwrap().unwrap(), "new");
        let_go.send(()).unwrap();
    });
    let hits = index.stats().cache_hits;
    assert_eq!(index.get(Table::Object, KEY).unwrap().unwrap(), "new");
    assert_eq!(index.stats().cache_hits, hits + 1, "the commit corrects the cached row, it does not drop it");
}

#[test]
fn a_reader_that_asked_during_a_commit_caches_nothing() {
    let (index, engine) = stopping();
    let (stop_commit, in_commit, end_commit) = Stop::new();
    let (stop_get, in_get, end_get) = Stop::new();
    *engine.stop_commit.lock() = Some(stop_commit);
    let (index, engine) = (&index, &engine);
    thread::scope(move |scope| {
        let writer = scope.spawn(|| index.commit(&[], put("one")).unwrap());
        in_commit.recv().unwrap();
        *engine.stop_get.lock() = Some(stop_get);
        let reader = scope.spawn(|| index.get(Table::Object, KEY).unwrap().unwrap());
        in_get.recv().unwrap();
        end_commit.send(()).unwrap();
        writer.join().unwrap();
        index.commit(&[], put("two")).unwrap();
        end_get.send(()).unwrap();
        assert_eq!(reader.join().unwrap(), "one");
    });
    assert_eq!(index.get(Table::Object, KEY).unwrap().unwrap(), "two");
}

#[test]
fn absences_are_cached_and_corrected() {
    let index = CachedIndex::new(MemoryIndex::new(), 1 << 20);
    assert_eq!(index.get(Table::Object, KEY).unwrap(), None);
    assert_eq!(index.get(Table::Object, KEY).unwrap(), None);
    assert_eq!(index.stats().cache_hits, 1);
    index.commit(&[Precondition::Absent(Table::Object, KEY.into())], put("1")).unwrap();
    assert_eq!(index.get(Table::Object, KEY).unwrap().unwrap(), "1");
    assert_eq!(index.stats().cache_hits, 2);
}

#[test]
fn tables_read_in_runs_are_not_cached() {
    let index = CachedIndex::new(MemoryIndex::new(), 1 << 20);
    index.get(Table::Part, KEY).unwrap();
    index.get(Table::Manifest, KEY).unwrap();
    assert_eq!(index.stats().cached_rows, 0);
}

#[test]
fn stays_within_its_bytes() {
    let index = CachedIndex::new(MemoryIndex::new(), 100_000);
    for i in 0_u32..5000 {
        let key = i.to_be_bytes();
        index.commit(&[], vec![Write::Put(Table::Object, key.to_vec(), vec![0; i as usize % 700])]).unwrap();
        index.get(Table::Object, &key).unwrap();
    }
    let stats = index.stats();
    assert!(stats.cached_bytes <= 100_000 && stats.cached_bytes > 50_000, "{stats:?}");
    assert!(stats.cached_rows > 50, "{stats:?}");
    // A cached row that grows is weighed anew.
    for i in 0_u32..5000 {
        index.commit(&[], vec![Write::Put(Table::Object, i.to_be_bytes().to_vec(), vec![0; 5000])]).unwrap();
    }
    assert!(index.stats().cached_bytes <= 100_000);
}

#[test]
fn a_cached_row_that_outgrows_the_cache_is_not_left_behind() {
    let index = CachedIndex::new(MemoryIndex::new(), 4096);
    for len in [1, 100, 1000, 3000, 5000, 100_000, 10] {
        index.commit(&[], vec![Write::Put(Table::Object, KEY.into(), vec![0; len])]).unwrap();
        for _ in 0..2 {
            assert_eq!(index.get(Table::Object, KEY).unwrap().unwrap().len(), len);
        }
    }
}

#[test]
fn rows_never_go_back_under_load() {
    const KEYS: u64 = 8;
    let index = CachedIndex::new(MemoryIndex::new(), 2000);
    let key = |i: u64| format!("key {i}").into_bytes();
    let count = |row: Option<Value>| row.map_or(0, |row| u64::from_be_bytes(row[..].try_into().unwrap()));
    let done = AtomicBool::new(false);
    let begin = Barrier::new(6);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut last = [0; KEYS as usize];
                begin.wait();
                while !done.load(Ordering::Relaxed) {
                    for i in 0..KEYS {
                        let now = count(index.get(Table::Object, &key(i)).unwrap());
                        assert!(now >= last[i as usize], "key {i} went back from {} to {now}", last[i as usize]);
                        last[i as usize] = now;
                    }
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (index, begin) = (&index, &begin);
                scope.spawn(move || {
                    begin.wait();
                    for round in 1..5000_u64 {
                        let i = round * 2 % KEYS + writer;
                        let row = round.to_be_bytes().to_vec();
                        index.commit(&[], vec![Write::Put(Table::Object, key(i), row)]).unwrap();
                        assert_eq!(count(index.get(Table::Object, &key(i)).unwrap()), round);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
}
