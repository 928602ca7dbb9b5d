//! Memory is bounded by configuration, not by load.

use gabion_tests::{Server, Setup};

/// 64 clients with 16 MiB each would be 1 GiB if bodies were collected; the server's buffers and caches must stay well below.
const PEAK_BYTES_MAX: u64 = 900 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_puts_and_gets_do_not_grow_the_server() {
    let server = Server::start(Setup::six()).await.unwrap();
    let idle = server.peak_memory_bytes().unwrap();
    let put = ["put", "--count", "128", "--size", "16MiB", "-c", "64", "--warmup", "0s"];
    let report = server.bench(&put).await.unwrap();
    let after_puts = server.peak_memory_bytes().unwrap();
    let get = ["get", "--objects", "16", "--count", "256", "--size", "16MiB", "-c", "64", "--warmup", "0s"];
    server.bench(&get).await.unwrap();
    let peak = server.peak_memory_bytes().unwrap();
    let mib = |bytes: u64| bytes >> 20;
    println!("idle {} MiB, after puts {} MiB, after gets {} MiB; {report}", mib(idle), mib(after_puts), mib(peak));
    assert!(peak < PEAK_BYTES_MAX, "idle {} MiB, after puts {}, after gets {}", mib(idle), mib(after_puts), mib(peak));
}
