//! How long the embedded index takes to open after its process was killed with a full journal, and what a commit and
//! a point read cost.
//!
//! `cargo run --release --ignore-rust-version -p gabion-metadata --example open_after_kill [rows] [journal MiB]`

#![allow(clippy::disallowed_methods, reason = "a measurement: the wall clock is its result")]
#![allow(clippy::print_stdout, reason = "a program that prints figures")]
#![allow(clippy::unwrap_used, reason = "a measurement")]

use std::{
    env, fs,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use gabion_metadata::{CachedIndex, FjallIndex, Index, IndexOptions, Table, Write};

/// A row of a small object has about this many bytes.
const ROW_BYTES: usize = 180;
/// Commits between two checkpoints.
const PERSIST_EVERY: u64 = 20_000;

fn key(i: u64) -> Vec<u8> {
    // Spread over the key space, as the keys of many clients are.
    format!("bucket\0objects/{:016x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

/// What one small PUT changes: its object, the counters of its bucket, its segment.
fn put(i: u64) -> Vec<Write> {
    vec![
        Write::Put(Table::Object, key(i), (0..ROW_BYTES).map(|at| (i as usize * 31 + at * 7) as u8).collect()),
        Write::Put(Table::Usage, b"bucket".to_vec(), i.to_be_bytes().to_vec()),
        Write::Put(Table::Segment, vec![7; 16], vec![i as u8; 120]),
    ]
}

fn main() {
    let mut args = env::args().skip(1);
    let rows: u64 = args.next().map_or(2_000_000, |rows| rows.parse().unwrap());
    let journal: u64 = args.next().map_or(64, |mib| mib.parse().unwrap());
    let options = IndexOptions { journal_bytes_max: journal << 20, ..IndexOptions::default() };
    let dir = env::temp_dir().join("gabion-open-after-kill");
    if args.next().is_some() {
        return fill(&dir, rows, options);
    }
    let _ = fs::remove_dir_all(&dir);
    let child = Command::new(env::current_exe().unwrap())
        .args([rows.to_string(), journal.to_string(), "fill".into()])
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    println!("{}", lines.next().unwrap().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();

    let begin = Instant::now();
    let index = FjallIndex::open(&dir, options).unwrap();
    let open = begin.elapsed();
    let stats = index.stats();
    println!("open after kill: {} ms; {} MiB on disk", open.as_millis(), stats.disk_bytes >> 20);

    let reads = 200_000.min(rows);
    let read = |name: &str, index: &dyn Index, spread: u64| {
        let begin = Instant::now();
        for i in 0..reads {
            assert!(index.get(Table::Object, &key(i * 7919 % spread)).unwrap().is_some());
        }
        println!("point read, {name}: {} ns", begin.elapsed().as_nanos() / u128::from(reads));
    };
    read("all rows, engine", &index, rows);
    read("10 000 rows, engine", &index, 10_000.min(rows));
    let cached = CachedIndex::new(index, 128 << 20);
    read("10 000 rows, row cache", &cached, 10_000.min(rows));
    let begin = Instant::now();
    (rows..rows + reads).for_each(|i| cached.commit(&[], put(i)).unwrap());
    println!("commit of 3 rows: {} ns", begin.elapsed().as_nanos() / u128::from(reads));
    drop(cached);
    fs::remove_dir_all(&dir).unwrap();
}

fn fill(dir: &Path, rows: u64, options: IndexOptions) {
    let index = FjallIndex::open(dir, options).unwrap();
    let (mut journal_most, mut i) = (0, 0);
    let begin = Instant::now();
    // On past the rows until the journal is as long as it ever was: the worst moment to be killed.
    while i < rows || (index.stats().journal_bytes + (8 << 20) < journal_most && i < 2 * rows) {
        index.commit(&[], put(i)).unwrap();
        i += 1;
        if i % PERSIST_EVERY == 0 {
            index.persist().unwrap();
            journal_most = journal_most.max(index.stats().journal_bytes);
        }
    }
    let each = begin.elapsed().as_nanos() / u128::from(i);
    let journal = index.stats().journal_bytes >> 20;
    let most = journal_most >> 20;
    println!("{i} commits of 3 rows, {each} ns each; journal {journal} MiB, at most {most} MiB");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}
