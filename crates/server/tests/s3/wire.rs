//! Over HTTP/1.1, byte by byte: what hyper adds.

use std::convert::Infallible;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::harness::{Call, Payload, S3, peer};

fn connect(s3: &S3) -> DuplexStream {
    let (client, server) = tokio::io::duplex(1 << 16);
    let service = s3.service.clone();
    let handler = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.call(request, peer()).await) }
    });
    tokio::spawn(async move {
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(server), handler);
        // A client that hangs up is not the test's failure.
        let _ = connection.await;
    });
    client
}

fn head(call: Call) -> (String, Vec<u8>) {
    let (parts, body) = call.build().into_parts();
    let mut head = format!("{} {} HTTP/1.1\r\n", parts.method, parts.uri);
    for (name, value) in &parts.headers {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    head.push_str("\r\n");
    (head, body)
}

async fn read_until(stream: &mut DuplexStream, end: &str) -> String {
    let mut text = String::new();
    while !text.contains(end) {
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the connection ended after {text}");
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    text
}

#[tokio::test]
async fn continue_is_said_to_good_requests_only() {
    let s3 = S3::with_bucket().await;
    let put = || s3.put("/bkt/k").body("hello").payload(Payload::Unsigned).smuggle("expect", "100-continue");
    let mut stream = connect(&s3);
    let (head_text, body) = head(put());
    stream.write_all(head_text.as_bytes()).await.unwrap();
    assert_eq!(read_until(&mut stream, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&body).await.unwrap();
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && !answer.contains("connection: close"), "{answer}");

    let mut stream = connect(&s3);
    let (head_text, _) = head(put().change(|call| call.secret_key = "wrong"));
    stream.write_all(head_text.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "</Error>").await;
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn the_connection_is_closed_when_continue_is_skipped() {
    let s3 = S3::with_bucket().await;
    let mut stream = connect(&s3);
    let (head_text, _) = head(s3.put("/bkt/empty").smuggle("expect", "100-continue"));
    stream.write_all(head_text.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn answers_are_dated() {
    let s3 = S3::with_bucket().await;
    let mut stream = connect(&s3);
    let (head_text, _) = head(s3.get("/bkt/none"));
    stream.write_all(head_text.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "</Error>").await.to_lowercase();
    assert!(answer.starts_with("http/1.1 404 "));
    assert!(answer.contains("\r\ndate: ") && answer.contains("\r\nserver: gabion\r\n"), "{answer}");
    assert!(answer.contains("\r\nx-amz-request-id: "));
}

#[tokio::test]
async fn a_failed_request_that_was_read_keeps_its_connection() {
    let s3 = S3::with_bucket().await;
    let mut stream = connect(&s3);
    for _ in 0..2 {
        let (head_text, body) = head(s3.put("/bkt/k").body("hello").header("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg=="));
        stream.write_all(head_text.as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let answer = read_until(&mut stream, "</Error>").await;
        assert!(answer.contains("BadDigest") && !answer.contains("connection: close"), "{answer}");
    }
}
