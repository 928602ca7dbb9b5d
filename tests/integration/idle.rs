//! What a server costs that nobody asks for anything: under 1 % of a core.
//!
//! CPU time is counted, not time: what else runs on the machine makes no difference.

use std::{fs, time::Duration};

use gabion_tests::{Content, Server, Setup};

/// A tick is 10 ms of CPU time: what Linux tells programs is in hundredths of a second, whatever its own clock is.
const TICKS_PER_S: u64 = 100;
/// How long the server is watched.
const WATCHED_S: u64 = 10;
/// 1 % of a core.
const TICKS_MAX: u64 = WATCHED_S * TICKS_PER_S / 100;
/// Longest time for what is left of the load: checkpoints, segments that are sealed.
const QUIET_LIMIT_S: u64 = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_server_takes_no_cpu() {
    let server = Server::start(Setup::six()).await.unwrap();
    // Its connections stay open.
    let client = server.client();
    for bucket in ["first", "second", "third"] {
        client.create_bucket().bucket(bucket).send().await.unwrap();
        for (seed, len) in (0..50).map(|seed| (seed, 4096)).chain([(50, 9_000_001)]) {
            let body = Content::new(seed, len).bytes();
            client.put_object().bucket(bucket).key(format!("{seed}")).body(body.into()).send().await.unwrap();
        }
        client.delete_object().bucket(bucket).key("0").send().await.unwrap();
        client.create_multipart_upload().bucket(bucket).key("upload").send().await.unwrap();
    }
    for _ in 0..QUIET_LIMIT_S {
        if ticks_within(&server, 1).await <= 1 {
            break;
        }
    }
    let ticks = ticks_within(&server, WATCHED_S).await;
    println!("{ticks} ticks of CPU time in {WATCHED_S} s");
    assert!(ticks <= TICKS_MAX, "{ticks} ticks of CPU time in {WATCHED_S} s, at most {TICKS_MAX} are allowed");
}

/// CPU time that the server takes from now on, in ticks.
async fn ticks_within(server: &Server, seconds: u64) -> u64 {
    let before = ticks(server);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    ticks(server) - before
}

/// CPU time of the server since it was started, in its own code and in the kernel, in ticks.
fn ticks(server: &Server) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid().unwrap())).unwrap();
    // The name of the program is in parentheses and may have spaces; `utime` and `stime` are the fields 14 and 15, what follows it is the third.
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}
