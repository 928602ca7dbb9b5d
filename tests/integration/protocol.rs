//! What no well-behaved client sends, and what lies around S3: signatures, presigned URLs, health, the graceful end.

use std::{
    os::unix::fs::PermissionsExt,
    process::Stdio,
    time::{Duration, SystemTime},
};

use aws_sdk_s3::{
    presigning::{PresignedRequest, PresigningConfig},
    primitives::ByteStream,
    types::ServerSideEncryption,
};
use gabion_tests::{Answer, Content, Server, bytes_of, client_for, exchange, failure, get};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{BUCKET, refused, served};

/// Presigns what the builder would send; valid from `age` ago for a minute.
macro_rules! presigned {
    ($request:expr, $age:expr) => {{
        let start = now() - $age;
        let config = PresigningConfig::builder().start_time(start).expires_in(Duration::from_secs(60)).build().unwrap();
        $request.presigned(config).await.unwrap()
    }};
}

#[expect(clippy::disallowed_methods, reason = "a presigned URL carries the real date")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Sends a presigned request by hand, with headers that its signature does not cover.
async fn send(server: &Server, request: &PresignedRequest, more: &[(&str, &str)], body: &[u8]) -> Answer {
    let path = request.uri().strip_prefix(&server.endpoint()).unwrap();
    let mut text =
        format!("{} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", request.method(), server.address());
    for (name, value) in
        request.headers().filter(|(name, _)| *name != "host" && *name != "content-length").chain(more.iter().copied())
    {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("Content-Length: {}\r\n\r\n", body.len());
    exchange(server.address(), &[text.as_bytes(), body].concat()).await.unwrap()
}

#[tokio::test]
async fn strangers_are_refused() {
    let (server, client) = served().await;
    client.put_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(get(server.address(), "/nobucket").await.unwrap().status, 404, "as on AWS");
    for path in ["/", "/bucket", "/bucket/k", "/bucket/none"] {
        let answer = get(server.address(), path).await.unwrap();
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
        assert!(answer.body.contains("<Code>AccessDenied</Code>"), "{path}: {answer:?}");
        assert!(answer.header("x-amz-request-id").is_some_and(|id| !id.is_empty()), "{answer:?}");
    }
    let stranger = client_for(&server.endpoint(), "NOBODY", "nothing");
    assert_eq!(failure(stranger.list_buckets().send().await), refused(403, "InvalidAccessKeyId"));
    let liar = client_for(&server.endpoint(), "GABIONTESTACCESSKEY0", "wrong");
    assert_eq!(failure(liar.list_buckets().send().await), refused(403, "SignatureDoesNotMatch"));
    let put = liar.put_object().bucket(BUCKET).key("k").body(ByteStream::from_static(b"forged")).send().await;
    assert_eq!(failure(put), refused(403, "SignatureDoesNotMatch"));
    assert_eq!(client.head_object().bucket(BUCKET).key("k").send().await.unwrap().content_length(), Some(0));
}

#[tokio::test]
async fn presigned_requests() {
    let (server, _) = served().await;
    let client = server.small_client();
    let put = presigned!(client.put_object().bucket(BUCKET).key("a b/ü"), Duration::ZERO);
    let answer = send(&server, &put, &[], b"presigned").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let read = presigned!(client.get_object().bucket(BUCKET).key("a b/ü"), Duration::ZERO);
    let answer = send(&server, &read, &[("Range", "bytes=3-")], b"").await;
    assert_eq!((answer.status, answer.body.as_str()), (206, "signed"), "headers other than x-amz-* need no signature");

    let late = presigned!(client.get_object().bucket(BUCKET).key("a b/ü"), Duration::from_secs(120));
    let answer = send(&server, &late, &[], b"").await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(answer.body.contains("AccessDenied"), "{answer:?}");
    let other = presigned!(client.get_object().bucket(BUCKET).key("other"), Duration::ZERO);
    let forged = send(&server, &other, &[], b"").await;
    assert_eq!(forged.status, 404);
    let path = other.uri().replace("/other?", "/a%20b/%C3%BC?");
    let path = path.strip_prefix(&server.endpoint()).unwrap();
    let answer = get(server.address(), path).await.unwrap();
    assert_eq!(answer.status, 403, "a signature is for one key: {answer:?}");
}

/// A presigned PUT must not become another operation by headers that its maker never saw.
#[tokio::test]
async fn unsigned_amz_headers_are_refused() {
    let (server, client) = served().await;
    let small = server.small_client();
    client.put_object().bucket(BUCKET).key("secret").body(ByteStream::from_static(b"secret")).send().await.unwrap();
    let attacks = [
        ("x-amz-copy-source", "bucket/secret"),
        ("X-Amz-Copy-Source", "/bucket/secret"),
        ("x-amz-meta-forged", "1"),
        ("x-amz-website-redirect-location", "http://elsewhere.example/"),
        ("x-amz-storage-class", "STANDARD"),
        ("x-amz-acl", "public-read"),
        ("x-amz-tagging", "a=b"),
    ];
    for (name, value) in attacks {
        let put = presigned!(small.put_object().bucket(BUCKET).key("victim"), Duration::ZERO);
        let answer = send(&server, &put, &[(name, value)], b"").await;
        assert!((400..=403).contains(&answer.status), "{name}: {answer:?}");
        let victim = client.head_object().bucket(BUCKET).key("victim").send().await;
        assert_eq!(failure(victim).status(), Some(404), "{name} created the object");
    }
    let part = small.create_multipart_upload().bucket(BUCKET).key("victim").send().await.unwrap();
    let id = part.upload_id().unwrap();
    let part = small.upload_part().bucket(BUCKET).key("victim").upload_id(id).part_number(1);
    let part = presigned!(part, Duration::ZERO);
    let answer = send(&server, &part, &[("x-amz-copy-source", "bucket/secret")], b"").await;
    assert!((400..=403).contains(&answer.status), "{answer:?}");
    let parts = client.list_parts().bucket(BUCKET).key("victim").upload_id(id).send().await.unwrap();
    assert_eq!(parts.parts().len(), 0);
}

#[tokio::test]
async fn a_signature_of_another_day_is_too_old() {
    let (server, _) = served().await;
    // Signed with a date of long ago; the date is looked at before the signature.
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nx-amz-date: 20200101T000000Z\r\n\
         x-amz-content-sha256: UNSIGNED-PAYLOAD\r\nAuthorization: AWS4-HMAC-SHA256 \
         Credential=GABIONTESTACCESSKEY0/20200101/us-east-1/s3/aws4_request, \
         SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={}\r\n\r\n",
        server.address(),
        "0".repeat(64)
    );
    let answer = exchange(server.address(), request.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(answer.body.contains("RequestTimeTooSkewed"), "{answer:?}");
}

#[tokio::test]
async fn what_is_not_implemented_says_so() {
    let (_server, client) = served().await;
    client.put_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(failure(client.get_object_torrent().bucket(BUCKET).key("k").send().await).status(), Some(501));
    let doubly = client.put_object().bucket(BUCKET).key("enc").server_side_encryption(ServerSideEncryption::AwsKmsDsse);
    assert_eq!(failure(doubly.send().await).status(), Some(501), "never stored in the clear by silence");
}

#[tokio::test]
async fn noise_hurts_nobody() {
    let (server, client) = served().await;
    let long_header = format!("GET / HTTP/1.1\r\nHost: x\r\nx: {}\r\n\r\n", "a".repeat(1 << 20));
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(1 << 20));
    let many_headers = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "a: b\r\n".repeat(5000));
    let noise: [&[u8]; 8] = [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PUT /bucket/k HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"PUT /bucket/k HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        long_header.as_bytes(),
        long_target.as_bytes(),
        many_headers.as_bytes(),
    ];
    for bytes in noise {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        // The server may have closed before it read everything.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await.expect("it ends");
        let text = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty()
                || text.starts_with("HTTP/1.1 4")
                || text.starts_with("HTTP/1.0 4")
                || text.starts_with("HTTP/1.1 5"),
            "{text}"
        );
    }
    client.list_buckets().send().await.expect("the server is well");
}

#[tokio::test]
async fn a_body_is_asked_for_with_100_continue() {
    let (server, _) = served().await;
    let client = server.small_client();
    let put = presigned!(client.put_object().bucket(BUCKET).key("k"), Duration::ZERO);
    let path = put.uri().strip_prefix(&server.endpoint()).unwrap();
    let mut stream = BufReader::new(TcpStream::connect(server.address()).await.unwrap());
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
        server.address()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    assert!(line.starts_with("HTTP/1.1 100"), "{line}");
    stream.write_all(b"hello").await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("HTTP/1.1 200"), "{rest}");

    // A request that is refused is not asked for its body.
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = format!(
        "PUT /bucket/k HTTP/1.1\r\nHost: {}\r\nContent-Length: 5000000\r\nExpect: 100-continue\r\n\r\n",
        server.address()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 403");
}

/// aws-cli 1 misreads what follows on a connection on which `100 Continue` was skipped, as HTTP allows for an empty body.
#[tokio::test]
async fn the_connection_is_closed_when_100_continue_is_skipped() {
    let (server, _) = served().await;
    let client = server.small_client();
    let put = presigned!(client.put_object().bucket(BUCKET).key("empty"), Duration::ZERO);
    let path = put.uri().strip_prefix(&server.endpoint()).unwrap();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n",
        server.address()
    );
    // Nothing asks for the end of the connection: that it ends is the server's doing.
    let answer = exchange(server.address(), head.as_bytes()).await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_nothing() {
    let (server, client) = served().await;
    let small = server.small_client();
    for (len, sent) in [(1000, 500), (5_000_000, 3_000_000)] {
        let put = presigned!(small.put_object().bucket(BUCKET).key("k"), Duration::ZERO);
        let path = put.uri().strip_prefix(&server.endpoint()).unwrap();
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let head = format!("PUT {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {len}\r\n\r\n", server.address());
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![0; sent]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 200"));
        assert_eq!(failure(client.head_object().bucket(BUCKET).key("k").send().await).status(), Some(404));
    }
}

#[tokio::test]
async fn health_and_metrics_stand_on_the_admin_port() {
    let (server, client) = served().await;
    client.put_object().bucket(BUCKET).key("k").send().await.unwrap();
    for path in ["/health/live", "/health/ready"] {
        assert_eq!(get(server.admin(), path).await.unwrap().status, 200, "{path}");
        assert_ne!(get(server.address(), path).await.unwrap().status, 200, "{path} is no bucket");
    }
    let page = get(server.admin(), "/metrics").await.unwrap();
    assert_eq!(page.status, 200);
    assert!(page.body.contains("PutObject"), "requests are counted by operation:\n{}", page.body);
    assert!(!page.body.contains("GABIONTESTACCESSKEY0"));
}

#[tokio::test]
async fn sigterm_finishes_what_is_in_flight() {
    let (mut server, _) = served().await;
    let client = server.small_client();
    let put = presigned!(client.put_object().bucket(BUCKET).key("k"), Duration::ZERO);
    let path = put.uri().strip_prefix(&server.endpoint()).unwrap().to_owned();
    let content = Content::new(4, 3_000_000);
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = format!("PUT {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n", server.address(), content.len);
    let bytes = content.bytes();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&bytes[..1_000_000]).await.unwrap();
    let address = server.address().to_owned();
    let upload = async move {
        // The server is told to end while the body is on its way: it stops listening, then gets the rest.
        while TcpStream::connect(&address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stream.write_all(&bytes[1_000_000..]).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        answer
    };
    let (ended, answer) = tokio::join!(server.stop(), upload);
    assert!(ended.unwrap(), "{}", server.log_tail());
    assert_eq!(&answer, b"HTTP/1.1 200");
    server.spawn().await.unwrap();
    let got = server.client().get_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(bytes_of(got).await.unwrap(), content.bytes());
}

/// Without credentials in the environment they are generated, once, for the owner's eyes only, and never logged.
#[tokio::test]
async fn generated_credentials_are_private() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("data");
    let mut child = tokio::process::Command::new(Server::program())
        .arg("server")
        .arg(&target)
        .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .env_remove("GABION_ROOT_ACCESS_KEY")
        .env_remove("GABION_ROOT_SECRET_KEY")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let credentials = target.join("state/credentials");
    let ready = async {
        while !credentials.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ready).await.expect("credentials are written");
    assert_eq!(credentials.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&credentials).unwrap();
    let secret = text.lines().find_map(|line| line.strip_prefix("secret_key=")).expect("secret_key=…").trim();
    assert!(secret.len() >= 32, "long enough not to be guessed");
    child.kill().await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(!String::from_utf8_lossy(&said).contains(secret), "the secret is not printed");
}

#[tokio::test]
async fn two_servers_do_not_share_a_state_directory() {
    let (server, client) = served().await;
    let output = tokio::process::Command::new(Server::program())
        .arg("server")
        .args(server.storage_arguments())
        .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), output).await.expect("it gives up").unwrap();
    assert!(!output.status.success());
    client.put_object().bucket(BUCKET).key("k").send().await.expect("the first one is unharmed");
}
