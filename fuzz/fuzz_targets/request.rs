//! Whole requests through routing, signatures, the aws-chunked decoder, headers and documents to a store and back.
//!
//! The input is a byte that says how the request is signed, and then its text: `METHOD target`, headers, an empty line, the body. The
//! server never answers `500 InternalError`: nothing that a client sends is a fault of the server's.
#![no_main]
#![allow(dead_code, reason = "the harness of the server's tests has more than is needed here")]

#[path = "../../crates/server/tests/s3/harness.rs"]
mod harness;

use std::cell::RefCell;

use harness::{Call, Payload, S3, Sign};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method};
use percent_encoding::percent_decode_str;
use tokio::runtime::Runtime;

/// What the harness asks for.
const FAST_PATH: bool = true;
/// Requests to one store: it never gives back what it wrote to its disk in memory.
const REQUESTS_PER_STORE: usize = 500;

struct World {
    runtime: Runtime,
    s3: S3,
    requests: usize,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&how, text)) = bytes.split_first() else { return };
    let Some(call) = read(text) else { return };
    let call = signed(call, how);
    WORLD.with_borrow_mut(|world| {
        if world.as_ref().is_some_and(|world| world.requests == REQUESTS_PER_STORE) {
            *world = None;
        }
        let world = world.get_or_insert_with(World::new);
        world.requests += 1;
        let answer = world.runtime.block_on(call.send(&world.s3));
        assert_ne!(answer.status, 500, "{}", String::from_utf8_lossy(&answer.body));
    });
});

impl World {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let s3 = runtime.block_on(async {
            let s3 = S3::with_bucket().await;
            for (key, body) in [("k", &b"some text"[..]), ("large", &[7; 70_000])] {
                s3.put(&format!("/bkt/{key}")).body(body).send(&s3).await.expect(200);
            }
            s3
        });
        Self { runtime, s3, requests: 0 }
    }
}

/// The request of a text; nothing when no HTTP server would hand it on.
fn read(text: &[u8]) -> Option<Call> {
    let end = text.windows(2).position(|pair| pair == b"\n\n").unwrap_or(text.len());
    let (head, body) = (std::str::from_utf8(&text[..end]).ok()?, text.get(end + 2..).unwrap_or_default());
    let mut lines = head.split('\n');
    let (method, target) = lines.next()?.split_once(' ')?;
    Method::from_bytes(method.as_bytes()).ok()?;
    let parsed = target.parse::<PathAndQuery>().ok().filter(|_| target.starts_with('/'))?;
    percent_decode_str(parsed.query().unwrap_or_default()).decode_utf8().ok()?;
    if parsed.as_str() != target {
        return None;
    }
    let mut call = Call::new(method, target);
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        HeaderName::from_bytes(name.as_bytes()).ok()?;
        HeaderValue::from_bytes(value.as_bytes()).ok()?;
        call = call.header(name, value);
    }
    Some(call.body(body))
}

fn signed(mut call: Call, how: u8) -> Call {
    let sent = call.body.clone();
    let trailer = || ("x-amz-checksum-crc32", "AAAAAA==".to_owned());
    // In the framed ways the input is what is sent, frames and all, or is framed here and so sure to reach what reads it.
    let (sign, payload) = match how % 10 {
        0 => (Sign::Header, Payload::Signed),
        1 => (Sign::Header, Payload::Unsigned),
        2 => (Sign::Header, Payload::UnsignedChunks { chunk_bytes: 16, trailer: trailer() }),
        3 => (Sign::Header, Payload::SignedChunks { chunk_bytes: 16, trailer: None }),
        4 => (Sign::Header, Payload::SignedChunks { chunk_bytes: 16, trailer: Some(trailer()) }),
        5 => (Sign::Query(60), Payload::Signed),
        6 => (Sign::Version2, Payload::Signed),
        7 => (Sign::Not, Payload::Signed),
        8 => {
            call.sent = Some(sent);
            (Sign::Header, Payload::UnsignedChunks { chunk_bytes: 16, trailer: trailer() })
        }
        _ => {
            call.sent = Some(sent);
            (Sign::Header, Payload::SignedChunks { chunk_bytes: 16, trailer: None })
        }
    };
    call.sign(sign).payload(payload)
}
