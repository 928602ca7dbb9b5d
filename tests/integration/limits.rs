//! What an object costs, counted: inodes, bytes, syncs and reads (the bounds of the design, section 8).

use std::fs;

use gabion_tests::{Content, Server, Setup, bytes_of};

const SYNCS: &str = "gabion_log_syncs_total";
const WRITTEN_BYTES: [&str; 2] = ["gabion_log_stored_bytes_total", "gabion_log_prewritten_bytes_total"];
const UNCOPIED_BYTES: &str = "gabion_http_uncopied_bytes_total";

const OBJECTS: u32 = 20_000;
const OBJECT_BYTES: f64 = 4096.0;
const ROUNDS_MAX: usize = 6;
/// A stripe is one sync per shard: of 64 clients so many objects and more share it, where nobody takes the processors from them some 35.
const RECORDS_PER_STRIPE_MIN: f64 = 12.0;
const GETS: u64 = 2000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_objects_cost_no_inode_few_syncs_and_few_bytes() {
    for (setup, shards, overhead) in [(Setup::six(), 6.0, 6.0 / 4.0), (Setup::single(), 1.0, 1.0)] {
        let setup = setup.flag("--segment-payload-bytes", "256MiB");
        let geometry = setup.geometry;
        let server = Server::start(setup).await.unwrap();
        // The first object opens segments: what that costs is not the objects' share.
        server.bench(&["put", "--count", "1", "--warmup", "0s", "--keep"]).await.unwrap();
        let bound = 1.25 * overhead * (OBJECT_BYTES + 512.0);
        // How full stripes get follows from how fast the clients come back: where other tests take the processors from them, 64
        // clients are no load of 64. So one of a few rounds has to do, in all that is counted.
        let mut round = 0;
        let (syncs, bytes) = loop {
            let (before, io_before) = (server.metrics().await.unwrap(), Io::of(&server));
            let (count, prefix) = (OBJECTS.to_string(), format!("round{round}/"));
            let put = ["put", "--count", &count, "--size", "4096", "-c", "64", "--warmup", "0s", "--keep"];
            let report = server.bench(&[&put[..], &["--prefix", &prefix]].concat()).await.unwrap();
            assert_eq!(report["results"][0]["operations"], OBJECTS);
            let (after, io_after) = (server.metrics().await.unwrap(), Io::of(&server));
            let per_object = |name| (after.sum(name) - before.sum(name)) / f64::from(OBJECTS);
            let logged = WRITTEN_BYTES.map(per_object).iter().sum::<f64>();
            // With the index. Where the file system is in memory the kernel counts nothing.
            let written = (io_after.written - io_before.written) as f64 / f64::from(OBJECTS);
            println!("{geometry}: {logged:.0} bytes per object to the log, {written:.0} in all");
            let (syncs, bytes) = (per_object(SYNCS), written.max(logged));
            round += 1;
            if round == ROUNDS_MAX || bytes <= bound && syncs <= shards / RECORDS_PER_STRIPE_MIN {
                break (syncs, bytes);
            }
        };

        let inodes = server.inodes().unwrap();
        println!("{geometry}: {inodes} inodes, {syncs:.3} syncs and {bytes:.0} bytes per object of 4096 bytes");
        assert!(inodes < 100, "{geometry}: {inodes} files and directories");
        assert!(syncs <= shards / RECORDS_PER_STRIPE_MIN, "{geometry}: {syncs} syncs per object");
        assert!(bytes <= bound, "{geometry}: {bytes} bytes per object, bound {bound}");
    }
}

/// The kernel counts what it is asked for. With the driver of threads every read of a file is one system call; with io_uring those that the page cache
/// can not answer go by the ring, where nobody counts them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_read_is_one_read_of_one_target() {
    let server =
        Server::start(Setup::six().flag("--driver", "threads").flag("--memory-warm-bytes", "0")).await.unwrap();
    let prepare = ["get", "--objects", "500", "--count", "1", "-c", "16", "--warmup", "0s", "--keep"];
    server.bench(&prepare).await.unwrap();
    let before = Io::of(&server);
    let count = GETS.to_string();
    let get = ["get", "--objects", "500", "--no-prepare", "--count", &count, "-c", "16", "--warmup", "0s", "--keep"];
    let report = server.bench(&get).await.unwrap();
    assert_eq!(report["results"][0]["error_count"], 0);
    let after = Io::of(&server);
    let (reads, bytes) = (after.reads - before.reads, after.read - before.read);
    println!("{reads} reads and {bytes} bytes for {GETS} objects of 4096 bytes");
    // The server may have a file or two to read for itself.
    assert!((GETS..=GETS + GETS / 100).contains(&reads), "{reads} reads for {GETS} objects");
    assert!(bytes <= (GETS + GETS / 100) * 4096, "{bytes} bytes read for {GETS} objects of 4096 bytes");
}

/// What a process asked the kernel for, of files, sockets excluded.
struct Io {
    reads: u64,
    /// Bytes that were read, from the page cache as well.
    read: u64,
    /// Bytes that go to disks.
    written: u64,
}

impl Io {
    fn of(server: &Server) -> Self {
        let io = fs::read_to_string(format!("/proc/{}/io", server.pid().unwrap())).unwrap();
        let field = |name| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap();
        Self { reads: field("syscr:"), read: field("rchar:"), written: field("write_bytes:") }
    }
}

/// What the page cache has of large objects is sent from there where file system and driver allow it, and it is what was put, in whole and in part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_go_from_the_page_cache() {
    let server = Server::start(Setup::six()).await.unwrap();
    let expected = Content::new(7, 9_000_001).bytes();
    // One client, so mostly one connection: it lends pages after long bodies, too.
    let client = server.client();
    client.create_bucket().bucket("pages").send().await.unwrap();
    client.put_object().bucket("pages").key("key").body(expected.clone().into()).send().await.unwrap();
    let uncopied = async || server.metrics().await.unwrap().sum(UNCOPIED_BYTES);
    for range in [None, None, Some((0, 9_000_000)), Some((700_000, 2_900_001)), Some((1, 8_999_999))] {
        let before = uncopied().await;
        let get = client.get_object().bucket("pages").key("key");
        let got = get.set_range(range.map(|(first, last)| format!("bytes={first}-{last}"))).send().await.unwrap();
        let (first, last) = range.unwrap_or((0, 9_000_000));
        assert!(bytes_of(got).await.unwrap() == expected[first..=last], "{range:?}");
        println!("{range:?}: {} bytes of {} uncopied", uncopied().await - before, last + 1 - first);
    }
    let log = server.log();
    let lends = ["(ext4, io_uring)", "(XFS, io_uring)"].iter().any(|target| log.contains(target));
    assert_eq!(uncopied().await > 9_000_000.0, lends && !log.contains("what is sent is copied"), "{log}");
}
