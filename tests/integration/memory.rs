//! Memory is bounded by configuration, not by load.

use std::time::Duration;

use aws_sdk_s3::presigning::PresigningConfig;
use gabion_tests::{Server, Setup};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const MIB: u64 = 1 << 20;

/// What is configured below, and what a process has besides: threads, connections, the allocator's slack. If bodies were collected,
/// 64 clients with 16 MiB each would need 1 GiB more.
const PEAK_BYTES_MAX: u64 = 700 * MIB;

fn setup() -> Setup {
    Setup::six()
        .flag("--memory-stripe-bytes", "128MiB")
        .flag("--memory-put-bytes", "64MiB")
        .flag("--memory-read-bytes", "320MiB")
        .flag("--index-cache-bytes", "64MiB")
        .flag("--index-row-cache-bytes", "32MiB")
}

/// Most memory that the server had after puts of 16 MiB by so many clients, and after gets of 16 such objects.
async fn peaks(server: &Server, clients: u32, puts: u32, gets: u32) -> (u64, u64) {
    let [clients, puts, gets] = [clients, puts, gets].map(|count| count.to_string());
    let load = ["--size", "16MiB", "-c", &clients, "--warmup", "0s"];
    server.bench(&[&["put", "--count", &puts][..], &load].concat()).await.unwrap();
    let after_puts = server.peak_memory_bytes().unwrap();
    server.bench(&[&["get", "--objects", "16", "--count", &gets][..], &load].concat()).await.unwrap();
    (after_puts, server.peak_memory_bytes().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_puts_and_gets_do_not_grow_the_server() {
    let server = Server::start(setup()).await.unwrap();
    let idle = server.peak_memory_bytes().unwrap();
    let (after_puts, after_gets) = peaks(&server, 64, 128, 256).await;
    let shown = format!("idle {}, puts {}, gets {} MiB", idle / MIB, after_puts / MIB, after_gets / MIB);
    println!("{shown}");
    assert!(after_gets < PEAK_BYTES_MAX, "{shown}");
}

/// As it is configured by itself (what the index keeps in memory comes with more objects than these).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_of_256_clients_take_less_than_a_gib() {
    let server = Server::start(Setup::six()).await.unwrap();
    let (after_puts, after_gets) = peaks(&server, 256, 256, 512).await;
    let shown = format!("puts {}, gets {} MiB", after_puts / MIB, after_gets / MIB);
    println!("{shown}");
    assert!(after_gets < 1024 * MIB, "{shown}");
}

/// Clients that ask and do not read hold sockets, not stripes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_stall_do_not_grow_the_server() {
    let server = Server::start(setup()).await.unwrap();
    let prepare = ["get", "--objects", "1", "--count", "1", "-c", "1", "--size", "64MiB", "--warmup", "0s", "--keep"];
    server.bench(&prepare).await.unwrap();
    let client = server.small_client();
    let config = PresigningConfig::expires_in(Duration::from_secs(600)).unwrap();
    let get = client.get_object().bucket("gabion-bench").key("bench/0000000000").presigned(config).await.unwrap();
    let path = get.uri().strip_prefix(&server.endpoint()).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", server.address());
    let mut stalled = Vec::new();
    for _ in 0..128 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stalled.push(stream);
    }
    // The first of them are being answered.
    let mut head = [0; 12];
    stalled[0].read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    // Others are served meanwhile.
    let mixed = ["mixed", "--objects", "50", "--count", "200", "-c", "8", "--warmup", "0s", "--bucket", "other"];
    let report = server.bench(&mixed).await.unwrap();
    let peak = server.peak_memory_bytes().unwrap();
    println!("{} MiB with {} stalled readers; {report}", peak / MIB, stalled.len());
    assert!(peak < PEAK_BYTES_MAX, "{} MiB", peak / MIB);
    assert!(report["results"].as_array().unwrap().iter().all(|row| row["error_count"] == 0), "{report}");
}
