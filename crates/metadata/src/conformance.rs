//! The laws that every engine must keep, as a test suite that it runs over itself.
//!
//! An engine's tests call [`run`] with a factory of fixtures; a law that is broken panics with its name on the stack. Crashes
//! are the fixture's: how a killed process or a power cut is made differs by engine, what may be left after one does not.

#![allow(clippy::unwrap_used, reason = "a test suite: a panic is its report")]

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::{
    Index, IndexError, IndexSnapshot, Precondition, Rows, ScanRange, Table, WalkedRow, Write, keys::successor,
};

/// An engine under test.
pub trait Fixture {
    /// The index; empty in a new fixture.
    fn index(&self) -> Arc<dyn Index>;

    /// Crashes and opens the index again. Nobody holds the old one when it is called.
    fn crash_and_reopen(&mut self);
}

/// Runs every law, each over a fixture of its own.
///
/// # Panics
/// When a law is broken.
pub fn run(fixture: &dyn Fn() -> Box<dyn Fixture>) {
    for law in [
        rows_are_as_last_written,
        scans_are_ordered_and_bounded,
        random_scans_agree_with_a_model,
        tables_are_apart,
        snapshots_do_not_move,
        walks_do_not_move,
        conflicts_leave_nothing,
        preconditions_come_before_writes,
        the_last_write_of_a_row_holds,
        lengths_are_checked,
        batches_are_never_seen_in_part,
        increments_are_never_lost,
        persisted_commits_survive_a_crash,
        a_crash_leaves_a_prefix_of_the_commits,
        ingested_rows_are_as_good_as_committed_ones,
    ] {
        law(fixture());
    }
}

fn put(table: Table, key: &str, row: &str) -> Write {
    Write::Put(table, key.into(), row.into())
}

fn delete(table: Table, key: &str) -> Write {
    Write::Delete(table, key.into())
}

fn texts(rows: Rows) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    rows.into_iter().map(|(key, row)| (text(&key), text(&row))).collect()
}

fn keys(rows: Rows) -> Vec<String> {
    texts(rows).into_iter().map(|(key, _)| key).collect()
}

fn is_conflict(result: Result<(), IndexError>, at: &str) -> bool {
    matches!(result, Err(IndexError::Conflict { key, .. }) if key == at.as_bytes())
}

fn rows_are_as_last_written(fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    for table in Table::ALL {
        assert_eq!(index.get(table, b"key").unwrap(), None);
        index.commit(&[], vec![put(table, "key", "one")]).unwrap();
        assert_eq!(index.get(table, b"key").unwrap().unwrap(), "one");
        index.commit(&[], vec![put(table, "key", "two"), put(table, "empty", "")]).unwrap();
        assert_eq!(index.get(table, b"key").unwrap().unwrap(), "two");
        assert_eq!(index.get(table, b"empty").unwrap().unwrap(), "");
        index.commit(&[], vec![delete(table, "key"), delete(table, "never there")]).unwrap();
        assert_eq!(index.get(table, b"key").unwrap(), None);
        assert_eq!(index.get(table, b"").unwrap(), None);
        assert_eq!(index.get(table, b"\0").unwrap(), None);
    }
    index.commit(&[], vec![]).unwrap();
    index.persist().unwrap();
    index.check().unwrap();
    let _ = index.stats();
}

fn scans_are_ordered_and_bounded(fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    let scan = |range, limit| keys(index.scan(range, limit).unwrap());
    let objects = || ScanRange::all(Table::Object);
    assert!(scan(objects(), 10).is_empty());
    let all = ["aa", "ab", "ab\0", "ab\0x", "abc", "ac", "b0", "b1"];
    // Neither in order nor in one commit.
    for key in ["b1", "ab", "abc", "aa", "ab\0x", "b0", "ac", "ab\0"] {
        index.commit(&[], vec![put(Table::Object, key, key)]).unwrap();
    }
    assert_eq!(scan(objects(), 100), all);
    assert_eq!(scan(objects(), 3), all[..3]);
    assert!(scan(objects(), 0).is_empty());
    assert_eq!(scan(objects().from(b"ab\0"), 2), ["ab\0", "ab\0x"]);
    assert_eq!(scan(objects().after(b"ab\0"), 2), ["ab\0x", "abc"]);
    assert_eq!(scan(objects().after(b"ab!"), 1), ["abc"]);
    assert_eq!(scan(objects().up_to(b"ab"), 9), ["aa", "ab"]);
    assert!(scan(objects().after(b"b1"), 9).is_empty());
    let prefix = || ScanRange::prefix(Table::Object, b"ab");
    assert_eq!(scan(prefix(), 9), all[1..5]);
    assert_eq!(scan(prefix().after(b"ab"), 9), all[2..5]);
    assert_eq!(scan(prefix().from(b"a"), 9), all[1..5]);
    assert!(scan(prefix().after(b"ac"), 9).is_empty());
    assert!(scan(ScanRange::prefix(Table::Object, b"zz"), 9).is_empty());
    assert_eq!(scan(ScanRange::prefix(Table::Object, b""), 9), all);
    let mut down = all;
    down.reverse();
    assert_eq!(scan(objects().descending(), 9), down);
    assert_eq!(scan(prefix().descending(), 2), ["abc", "ab\0x"]);
    assert_eq!(scan(prefix().up_to(b"ab\0").descending(), 1), ["ab\0"]);
    // A listing with a delimiter passes a common prefix in one seek.
    assert_eq!(scan(objects().from(&successor(b"ab").unwrap()), 1), ["ac"]);
    // Ends that are out of order hold nothing.
    for end in [Bound::Excluded(b"aa".to_vec()), Bound::Included(b"aa".to_vec()), Bound::Excluded(b"ab".to_vec())] {
        for start in [Bound::Included(b"ab".to_vec()), Bound::Excluded(b"ab".to_vec())] {
            assert!(scan(ScanRange { start, end: end.clone(), ..objects() }, 9).is_empty());
        }
    }
    let exact = Bound::Included(b"ab".to_vec());
    assert_eq!(scan(ScanRange { start: exact.clone(), end: exact, ..objects() }, 9), ["ab"]);
    index.commit(&[], vec![delete(Table::Object, "ab"), delete(Table::Object, "abc")]).unwrap();
    assert_eq!(scan(prefix(), 9), ["ab\0", "ab\0x"]);
}

/// A sequence of numbers that looks random and is the same in every run (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn key(&mut self) -> Vec<u8> {
        let len = 2 + self.below(3);
        (0..len).map(|_| [0x00, 0x01, b'a', 0xff][self.below(4) as usize]).collect()
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        }
    }
}

fn random_scans_agree_with_a_model(fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut numbers = Numbers(1);
    for step in 0_u32..400 {
        let key = numbers.key();
        let write = if numbers.below(4) == 0 {
            model.remove(&key);
            Write::Delete(Table::Upload, key)
        } else {
            let row = step.to_be_bytes().to_vec();
            model.insert(key.clone(), row.clone());
            Write::Put(Table::Upload, key, row)
        };
        index.commit(&[], vec![write]).unwrap();

        let (start, end) = (numbers.bound(), numbers.bound());
        let mut range = ScanRange { start, end, ..ScanRange::all(Table::Upload) };
        let limit = numbers.below(20) as usize;
        let mut expected: Vec<_> = Vec::new();
        if !range.is_empty() {
            expected = model.range::<[u8], _>(range.bounds()).map(|(k, v)| (k.clone(), v.clone().into())).collect();
        }
        if numbers.below(2) == 0 {
            range = range.descending();
            expected.reverse();
        }
        expected.truncate(limit);
        assert_eq!(index.scan(range.clone(), limit).unwrap(), expected, "step {step}, {range:?}");
    }
}

fn tables_are_apart(fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    index.commit(&[], Table::ALL.map(|table| put(table, "key", table.name())).to_vec()).unwrap();
    index.commit(&[], vec![delete(Table::Segment, "key")]).unwrap();
    for table in Table::ALL {
        let expected = (table != Table::Segment).then_some(table.name());
        let row = index.get(table, b"key").unwrap();
        assert_eq!(row.as_deref(), expected.map(str::as_bytes));
        assert_eq!(index.scan(ScanRange::all(table), 9).unwrap().len(), usize::from(expected.is_some()));
    }
}

fn snapshots_do_not_move(fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    index.commit(&[], vec![put(Table::Object, "aa", "1"), put(Table::Bucket, "bb", "1")]).unwrap();
    let before = index.snapshot();
    index
        .commit(&[], vec![put(Table::Object, "aa", "2"), delete(Table::Bucket, "bb"), put(Table::Object, "cc", "2")])
        .unwrap();
    let after = index.snapshot();
    let see = |snapshot: &dyn IndexSnapshot| {
        let mut rows = texts(snapshot.scan(ScanRange::all(Table::Object), 9).unwrap());
        rows.extend(texts(snapshot.scan(ScanRange::all(Table::Bucket), 9).unwrap()));
        let rows: Vec<String> = rows.into_iter().map(|(key, row)| key + &row).collect();
        (snapshot.get(Table::Object, b"aa").unwrap().unwrap(), rows.join(" "))
    };
    assert_eq!(see(&*before), ("1".into(), "aa1 bb1".into()));
    assert_eq!(see(&*after), ("2".into(), "aa2 cc2".into()));
    index.commit(&[], vec![delete(Table::Object, "aa"), delete(Table::Object, "cc")]).unwrap();
    assert_eq!(see(&*before), ("1".into(), "aa1 bb1".into()));
    assert_eq!(see(&*after), ("2".into(), "aa2 cc2".into()));
}

fn walks_do_not_move(fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    let key = |number: u32| format!("key {number:05}").into_bytes();
    let row = |number: u32, round: u8| [number.to_be_bytes().as_slice(), &[round]].concat();
    let write = |round: u8| {
        let puts = (0..3000).map(|number| Write::Put(Table::Object, key(number), row(number, round)));
        index.commit(&[], puts.collect()).unwrap();
    };
    write(0);
    index.commit(&[], vec![put(Table::Bucket, "bucket", "first"), put(Table::System, "not asked for", "row")]).unwrap();
    let mut walk = index.walk(&[Table::Bucket, Table::Part, Table::Object]).unwrap();
    let mut found = Vec::new();
    // It does not matter how much is read before others write.
    for upto in [0, 1, 500, usize::MAX] {
        while found.len() < upto
            && let Some(WalkedRow { table, key, row }) = walk.next().unwrap()
        {
            found.push((table, key.to_vec(), row.to_vec()));
        }
        write(1);
        let deletions = (0..3000).step_by(2).map(|number| Write::Delete(Table::Object, key(number)));
        index.commit(&[], deletions.collect()).unwrap();
        index.commit(&[], vec![put(Table::Bucket, "bucket", "later"), put(Table::Part, "part", "new")]).unwrap();
        index.persist().unwrap();
    }
    assert!(walk.next().unwrap().is_none(), "it stays at its end");
    let mut expected = vec![(Table::Bucket, b"bucket".to_vec(), b"first".to_vec())];
    expected.extend((0..3000).map(|number| (Table::Object, key(number), row(number, 0))));
    assert_eq!(found, expected);
    let mut walk = index.walk(&[]).unwrap();
    assert!(walk.next().unwrap().is_none());
}

fn conflicts_leave_nothing(fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    let object = Table::Object;
    let (here, gone) = (|| b"here".to_vec(), || b"gone".to_vec());
    index.commit(&[], vec![put(object, "here", "1")]).unwrap();
    let refused = [
        (Precondition::Absent(object, here()), "here"),
        (Precondition::Present(object, gone()), "gone"),
        (Precondition::Equals(object, here(), b"2".to_vec()), "here"),
        (Precondition::Equals(object, gone(), b"1".to_vec()), "gone"),
        // The same key in another table is another row.
        (Precondition::Present(Table::Bucket, here()), "here"),
    ];
    let writes = || vec![put(object, "here", "3"), put(object, "new", "3"), delete(object, "gone")];
    // With rows that were read before and rows that were not: caches must not matter.
    for read_first in [false, true] {
        if read_first {
            index.get(object, b"here").unwrap();
            index.get(object, b"gone").unwrap();
        }
        for (precondition, at) in &refused {
            assert!(is_conflict(index.commit(std::slice::from_ref(precondition), writes()), at), "{precondition:?}");
            let both = [Precondition::Present(object, here()), precondition.clone()];
            assert!(is_conflict(index.commit(&both, writes()), at), "{precondition:?}");
            assert_eq!(texts(index.scan(ScanRange::all(object), 9).unwrap()), [("here".into(), "1".into())]);
            assert_eq!(index.get(object, b"here").unwrap().unwrap(), "1");
            assert_eq!(index.get(object, b"new").unwrap(), None);
        }
    }
    // The first that does not hold is named.
    let two = [Precondition::Present(object, gone()), Precondition::Absent(object, here())];
    assert!(is_conflict(index.commit(&two, writes()), "gone"));
    let all_hold = [
        Precondition::Absent(object, gone()),
        Precondition::Present(object, here()),
        Precondition::Equals(object, here(), b"1".to_vec()),
    ];
    index.commit(&all_hold, writes()).unwrap();
    assert_eq!(keys(index.scan(ScanRange::all(object), 9).unwrap()), ["here", "new"]);
    assert_eq!(index.get(object, b"here").unwrap().unwrap(), "3");
}

fn preconditions_come_before_writes(fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    let absent = [Precondition::Absent(Table::Bucket, b"abc".to_vec())];
    index.commit(&absent, vec![put(Table::Bucket, "abc", "1")]).unwrap();
    assert!(is_conflict(index.commit(&absent, vec![put(Table::Bucket, "abc", "2")]), "abc"));
    let equals = [Precondition::Equals(Table::Bucket, b"abc".to_vec(), b"1".to_vec())];
    index.commit(&equals, vec![delete(Table::Bucket, "abc")]).unwrap();
    assert!(is_conflict(index.commit(&equals, vec![put(Table::Bucket, "abc", "3")]), "abc"));
    index.commit(&absent, vec![put(Table::Bucket, "abc", "4")]).unwrap();
}

fn the_last_write_of_a_row_holds(mut fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    let table = Table::Usage;
    index.get(table, b"aa").unwrap();
    let writes = vec![
        put(table, "aa", "1"),
        put(table, "aa", "2"),
        put(table, "bb", "1"),
        delete(table, "bb"),
        delete(table, "cc"),
        put(table, "cc", "1"),
    ];
    index.commit(&[], writes).unwrap();
    index.persist().unwrap();
    let check = |index: &dyn Index| {
        let rows = texts(index.scan(ScanRange::all(table), 9).unwrap());
        assert_eq!(rows, [("aa".into(), "2".into()), ("cc".into(), "1".into())]);
        assert_eq!(index.get(table, b"aa").unwrap().unwrap(), "2");
        assert_eq!(index.get(table, b"bb").unwrap(), None);
    };
    check(&*index);
    drop(index);
    fixture.crash_and_reopen();
    check(&*fixture.index());
}

fn lengths_are_checked(fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    let key = |len: usize| vec![b'k'; len];
    for write in [
        Write::Put(Table::Object, key(0), vec![]),
        Write::Put(Table::Object, key(1), vec![]),
        Write::Delete(Table::Object, key(*crate::ROW_KEY_BYTES.end() + 1)),
        Write::Put(Table::Object, key(2), vec![0; crate::ROW_BYTES_MAX + 1]),
    ] {
        let result = index.commit(&[], vec![put(Table::Object, "other", ""), write]);
        assert!(matches!(result, Err(IndexError::Invalid { .. })), "{result:?}");
    }
    assert!(index.scan(ScanRange::all(Table::Object), 9).unwrap().is_empty());
    let longest = Write::Put(Table::Object, key(*crate::ROW_KEY_BYTES.end()), vec![7; crate::ROW_BYTES_MAX]);
    index.commit(&[], vec![longest]).unwrap();
    let row = index.get(Table::Object, &key(*crate::ROW_KEY_BYTES.end())).unwrap().unwrap();
    assert!(row.len() == crate::ROW_BYTES_MAX && row.iter().all(|&byte| byte == 7));
}

fn batches_are_never_seen_in_part(fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    let done = AtomicBool::new(false);
    // One count in rows of several tables, which change together and never go back.
    let write = |count: u64| {
        let rows = [(Table::Bucket, "one"), (Table::Object, "aa"), (Table::Object, "zz"), (Table::Usage, "one")];
        rows.map(|(table, key)| Write::Put(table, key.into(), count.to_be_bytes().to_vec())).to_vec()
    };
    let count = |row: &[u8]| u64::from_be_bytes(row.try_into().unwrap());
    index.commit(&[], write(0)).unwrap();
    thread::scope(|scope| {
        for reader in 0..3 {
            let (index, done) = (&index, &done);
            scope.spawn(move || {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let snapshot = index.snapshot();
                    let mut seen = vec![count(&snapshot.get(Table::Usage, b"one").unwrap().unwrap())];
                    let objects = snapshot.scan(ScanRange::all(Table::Object), 9).unwrap();
                    seen.extend(objects.iter().map(|(_, row)| count(row)));
                    seen.push(count(&snapshot.get(Table::Bucket, b"one").unwrap().unwrap()));
                    assert!(seen.len() == 4 && seen.iter().all(|other| *other == seen[0]), "{seen:?}");
                    assert!(seen[0] >= last, "reader {reader} went back from {last} to {}", seen[0]);
                    last = seen[0];
                    // Rows read one by one never go back either, neither against a snapshot nor a scan.
                    for (table, key) in [(Table::Object, b"zz"), (Table::Object, b"aa")] {
                        let now = count(&index.get(table, key).unwrap().unwrap());
                        assert!(now >= last, "reader {reader} went back from {last} to {now}");
                        last = now;
                    }
                    let rows = index.scan(ScanRange::all(Table::Object), 1).unwrap();
                    assert!(count(&rows[0].1) >= last);
                    last = count(&rows[0].1);
                }
            });
        }
        for count in 1..2000 {
            index.commit(&[], write(count)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn increments_are_never_lost(fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    let (threads, each) = (4, 100_u64);
    index.commit(&[], vec![Write::Put(Table::Usage, b"count".to_vec(), 0_u64.to_be_bytes().to_vec())]).unwrap();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut done = 0;
                while done < each {
                    let old = index.get(Table::Usage, b"count").unwrap().unwrap();
                    let new = (u64::from_be_bytes(old[..].try_into().unwrap()) + 1).to_be_bytes().to_vec();
                    let unchanged = Precondition::Equals(Table::Usage, b"count".to_vec(), old.to_vec());
                    match index.commit(&[unchanged], vec![Write::Put(Table::Usage, b"count".to_vec(), new)]) {
                        Ok(()) => done += 1,
                        Err(IndexError::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(index.get(Table::Usage, b"count").unwrap().unwrap()[..], (threads * each).to_be_bytes());
}

fn persisted_commits_survive_a_crash(mut fixture: Box<dyn Fixture>) {
    for round in 0_u8..5 {
        let index = fixture.index();
        let earlier = index.scan(ScanRange::all(Table::Manifest), 99).unwrap();
        assert_eq!(earlier.len(), usize::from(round));
        assert_eq!(index.get(Table::System, b"gone").unwrap(), None);
        let writes = vec![
            Write::Put(Table::Manifest, vec![b'k', round], vec![round; 1000]),
            Write::Put(Table::System, b"last".to_vec(), vec![round]),
            put(Table::System, "gone", ""),
        ];
        index.commit(&[], writes).unwrap();
        index.commit(&[], vec![delete(Table::System, "gone")]).unwrap();
        index.persist().unwrap();
        drop(index);
        fixture.crash_and_reopen();
        let index = fixture.index();
        index.check().unwrap();
        assert_eq!(index.get(Table::System, b"last").unwrap().unwrap()[..], [round]);
        assert_eq!(index.get(Table::Manifest, &[b'k', round]).unwrap().unwrap()[..], [round; 1000]);
    }
}

fn a_crash_leaves_a_prefix_of_the_commits(mut fixture: Box<dyn Fixture>) {
    // Commit i puts a row of its own, deletes that of commit i - 2, and counts.
    let row = |i: u32| format!("row {i:06}").into_bytes();
    let mut next = 1;
    for round in 0..6 {
        let index = fixture.index();
        let persisted = next + 10 * round;
        for i in next..persisted + 17 {
            let mut writes = vec![
                Write::Put(Table::Object, row(i), vec![round as u8; 50 * round as usize]),
                Write::Put(Table::Usage, b"count".to_vec(), i.to_be_bytes().to_vec()),
            ];
            if i > 2 {
                writes.push(Write::Delete(Table::Object, row(i - 2)));
            }
            index.commit(&[], writes).unwrap();
            if i == persisted {
                index.persist().unwrap();
            }
        }
        drop(index);
        fixture.crash_and_reopen();
        let index = fixture.index();
        index.check().unwrap();
        let count = index.get(Table::Usage, b"count").unwrap().unwrap();
        let last = u32::from_be_bytes(count[..].try_into().unwrap());
        assert!((persisted..persisted + 17).contains(&last), "persisted {persisted}, found {last}");
        let expected: Vec<Vec<u8>> = ((last - 1).max(1)..=last).map(row).collect();
        let found = index.scan(ScanRange::all(Table::Object), 99).unwrap();
        assert_eq!(found.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), expected);
        next = last + 1;
    }
}

fn ingested_rows_are_as_good_as_committed_ones(mut fixture: Box<dyn Fixture>) {
    let index = fixture.index();
    let row = |number: u32| (format!("key {number:08}").into_bytes(), vec![number as u8; 200]);
    index.commit(&[], vec![put(Table::System, "before", "it")]).unwrap();
    // Known to be absent.
    assert_eq!(index.get(Table::Object, &row(7).0).unwrap(), None);
    index.persist().unwrap();
    let mut ingest = index.ingest(Table::Object).unwrap();
    for (key, row) in (0..20_000).map(row) {
        ingest.put(key, row).unwrap();
    }
    for key in [row(19_999).0, row(5).0, b"k".to_vec()] {
        assert!(matches!(ingest.put(key, Vec::new()), Err(IndexError::Invalid { .. })), "only what ascends");
    }
    ingest.finish().unwrap();
    let mut ingest = index.ingest(Table::Bucket).unwrap();
    ingest.put(b"given".to_vec(), b"up".to_vec()).unwrap();
    drop(ingest);
    index.ingest(Table::Part).unwrap().finish().unwrap();
    assert_eq!(index.get(Table::Object, &row(7).0).unwrap().unwrap()[..], row(7).1);
    // What is committed later counts.
    index
        .commit(&[], vec![Write::Delete(Table::Object, row(8).0), Write::Put(Table::Object, row(9).0, b"new".to_vec())])
        .unwrap();
    index.persist().unwrap();
    drop(index);
    fixture.crash_and_reopen();
    let index = fixture.index();
    index.check().unwrap();
    let rows = index.scan(ScanRange::all(Table::Object), usize::MAX).unwrap();
    let expected = (0..20_000).filter(|number| *number != 8).map(|number| match number {
        9 => (row(9).0, b"new".to_vec()),
        other => row(other),
    });
    assert!(rows.iter().map(|(key, row)| (key.clone(), row.to_vec())).eq(expected));
    assert_eq!(keys(index.scan(ScanRange::all(Table::System), 9).unwrap()), ["before"]);
    assert!(index.scan(ScanRange::all(Table::Part), 9).unwrap().is_empty());
}
