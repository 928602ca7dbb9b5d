//! A process that commits is killed for real; what it leaves is a prefix of its commits, with all that it acknowledged.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    env,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use gabion_metadata::{CachedIndex, FjallIndex, Index, IndexError, IndexOptions, ScanRange, Table, Write};

/// Names the index directory to the killed process, which is this test binary again.
const CHILD_DIR: &str = "GABION_TEST_KILLED_INDEX";

fn open(dir: &Path) -> Result<CachedIndex<FjallIndex>, IndexError> {
    FjallIndex::open(dir, IndexOptions::default()).map(|engine| CachedIndex::new(engine, 1 << 20))
}

fn row(i: u64) -> Vec<u8> {
    format!("row {i:08}").into_bytes()
}

fn commits(index: &dyn Index) -> u64 {
    let count = index.get(Table::Usage, b"count").unwrap();
    count.map_or(0, |count| u64::from_be_bytes(count[..].try_into().unwrap()))
}

/// Not a test by itself: commits for ever, and says so after each commit. Commit i puts a row and counts, in two tables.
#[test]
#[ignore = "the process that is killed"]
fn commit_until_killed() {
    let Some(dir) = env::var_os(CHILD_DIR) else { return };
    let index = open(Path::new(&dir)).unwrap();
    let mut out = std::io::stdout();
    for i in commits(&index) + 1.. {
        let writes = vec![
            Write::Put(Table::Object, row(i), vec![i as u8; (i % 300) as usize]),
            Write::Put(Table::Usage, b"count".to_vec(), i.to_be_bytes().to_vec()),
        ];
        index.commit(&[], writes).unwrap();
        if i % 100 == 0 {
            index.persist().unwrap();
        }
        writeln!(out, "committed {i}").unwrap();
    }
}

#[test]
fn a_killed_process_leaves_all_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..8 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "commit_until_killed", "--ignored", "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let acknowledged = lines.map_while(|line| {
            let line = line.unwrap();
            let (_, i) = line.split_once("committed ").unwrap_or_default();
            Some(i.parse::<u64>().unwrap_or(0))
        });
        // Killed in the middle of its work, after a number of commits that differs from round to round. What it
        // said until it was dead counts too.
        let mut last = 0;
        for (heard, i) in acknowledged.enumerate() {
            last = last.max(i);
            if heard == 150 + 97 * round {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success());
        let index = open(dir.path()).unwrap();
        let count = commits(&index);
        assert!(count >= last && last > 0, "round {round}: {last} acknowledged, {count} there");
        let rows = index.scan(ScanRange::all(Table::Object), usize::MAX).unwrap();
        assert_eq!(rows.len() as u64, count);
        for (i, (key, value)) in (1..).zip(&rows) {
            assert_eq!((key, &value[..]), (&row(i), &vec![i as u8; (i % 300) as usize][..]));
        }
    }
}

#[test]
fn a_second_process_is_told_that_the_index_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path()).unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "commit_until_killed", "--ignored", "--nocapture"])
        .env(CHILD_DIR, dir.path())
        .output()
        .unwrap();
    drop(index);
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("Locked"), "{message}");
}
