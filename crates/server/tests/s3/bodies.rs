//! Bodies: framing, digests, lengths.

use gabion_store::ChecksumAlgorithm;

use crate::harness::{Payload, S3, Sign, checksum, crc32, sha256_hex};

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[tokio::test]
async fn chunked_bodies_arrive_whole() {
    let s3 = S3::with_bucket().await;
    for len in [0, 1, 8192, 100_000, 3 << 20] {
        let body = payload(len);
        for (name, framing) in [
            ("signed", Payload::SignedChunks { chunk_bytes: 65_536, trailer: None }),
            (
                "trailer",
                Payload::SignedChunks { chunk_bytes: 65_536, trailer: Some(("x-amz-checksum-crc32", crc32(&body))) },
            ),
            (
                "unsigned",
                Payload::UnsignedChunks { chunk_bytes: 1 << 20, trailer: ("x-amz-checksum-crc32", crc32(&body)) },
            ),
        ] {
            let stored = s3.put("/bkt/k").body(body.clone()).payload(framing).send(&s3).await;
            assert_eq!(stored.status, 200, "{name} {len}: {}", stored.text());
            if name != "signed" {
                assert_eq!(stored.header("x-amz-checksum-crc32"), Some(crc32(&body).as_str()));
            }
            let read = s3.get("/bkt/k").send(&s3).await.expect(200);
            assert!(read.body == body, "{name} {len}");
            assert_eq!(read.header("content-encoding"), None);
        }
    }
}

/// Hashes are taken of all chunks that have arrived, wherever what arrives ends.
#[tokio::test]
async fn chunks_are_verified_in_whatever_pieces_they_come() {
    let s3 = S3::with_bucket().await;
    let body = payload(200_000);
    let flips: [fn(&mut Vec<u8>); 4] = [
        |sent| sent[100] ^= 1,
        |sent| sent[8200] ^= 1,
        |sent| sent[100_000] ^= 1,
        |sent| {
            let near_the_end = sent.len() - 300;
            sent[near_the_end] ^= 1;
        },
    ];
    for chunk_bytes in [8192, 65_536, 199_000, 200_000] {
        let framing = Payload::SignedChunks { chunk_bytes, trailer: None };
        for piece_bytes in [7, 90, 8192, 8193, 8283, 50_001, 131_247, 1 << 20] {
            let call = || s3.put("/bkt/k").body(body.clone()).payload(framing.clone());
            for flip in flips {
                let tampered = call().change(|call| call.tamper = Some(flip));
                tampered.send_in_pieces(&s3, piece_bytes).await.refused(403, "SignatureDoesNotMatch");
            }
            s3.get("/bkt/k").send(&s3).await.refused(404, "NoSuchKey");
            call().send_in_pieces(&s3, piece_bytes).await.expect(200);
            assert!(s3.get("/bkt/k").send(&s3).await.expect(200).body == body, "{chunk_bytes} {piece_bytes}");
            s3.delete("/bkt/k").send(&s3).await.expect(204);
        }
    }
    // From half a mebibyte on they are read to where they are wanted.
    let body = payload(3 << 20);
    for (chunk_bytes, piece_bytes) in
        [524_287, 524_288, 524_289, 1 << 20].into_iter().zip([10_000, 100_003, 2 << 20, 7777])
    {
        let framing = Payload::SignedChunks { chunk_bytes, trailer: None };
        let call = || s3.put("/bkt/k").body(body.clone()).payload(framing.clone());
        let tampered = call().change(|call| call.tamper = Some(|sent| sent[2_000_000] ^= 1));
        tampered.send_in_pieces(&s3, piece_bytes).await.refused(403, "SignatureDoesNotMatch");
        call().send_in_pieces(&s3, piece_bytes).await.expect(200);
        assert!(s3.get("/bkt/k").send(&s3).await.expect(200).body == body, "{chunk_bytes} {piece_bytes}");
    }
}

/// The order of chunks, and what stands between them, counts as well where all of them are there at once.
#[tokio::test]
async fn chunks_are_not_to_be_rearranged() {
    let s3 = S3::with_bucket().await;
    // Of a frame of 8192 bytes: its line, the bytes, and a line break.
    const LINE: usize = 87;
    const FRAME: usize = LINE + 8192 + 2;
    let swap_bytes: fn(&mut Vec<u8>) = |sent| {
        let (one, other) = sent.split_at_mut(FRAME);
        one[LINE..LINE + 8192].swap_with_slice(&mut other[LINE..LINE + 8192]);
    };
    let swap_chunks: fn(&mut Vec<u8>) = |sent| {
        let (one, other) = sent.split_at_mut(FRAME);
        one.swap_with_slice(&mut other[..FRAME]);
    };
    let drop_one: fn(&mut Vec<u8>) = |sent| drop(sent.drain(FRAME..2 * FRAME));
    let break_line: fn(&mut Vec<u8>) = |sent| sent[FRAME - 1] = b'x';
    for (tamper, status, code) in [
        (swap_bytes, 403, "SignatureDoesNotMatch"),
        (swap_chunks, 403, "SignatureDoesNotMatch"),
        (drop_one, 403, "SignatureDoesNotMatch"),
        (break_line, 400, "IncompleteBody"),
    ] {
        for piece_bytes in [1000, FRAME - 1, FRAME, 1 << 20] {
            let framing = Payload::SignedChunks { chunk_bytes: 8192, trailer: None };
            let call = s3.put("/bkt/k").body(payload(50_000)).payload(framing);
            let tampered = call.change(|call| call.tamper = Some(tamper));
            tampered.send_in_pieces(&s3, piece_bytes).await.refused(status, code);
            s3.get("/bkt/k").send(&s3).await.refused(404, "NoSuchKey");
        }
    }
}

#[tokio::test]
async fn tampered_chunks_are_refused() {
    let s3 = S3::with_bucket().await;
    let body = payload(200_000);
    let signed = Payload::SignedChunks { chunk_bytes: 65_536, trailer: None };
    let trailer = Payload::SignedChunks { chunk_bytes: 65_536, trailer: Some(("x-amz-checksum-crc32", crc32(&body))) };
    let unsigned = Payload::UnsignedChunks { chunk_bytes: 65_536, trailer: ("x-amz-checksum-crc32", crc32(&body)) };
    let flip: fn(&mut Vec<u8>) = |sent| sent[150_000] ^= 1;
    let cut: fn(&mut Vec<u8>) = |sent| sent.truncate(150_000);
    let no_trailer: fn(&mut Vec<u8>) = |sent| {
        let text = String::from_utf8_lossy(sent).into_owned();
        sent.truncate(sent.len() - (text.len() - text.rfind("x-amz-checksum").unwrap()));
        sent.extend(b"\r\n");
    };
    let other_trailer: fn(&mut Vec<u8>) = |sent| {
        let position = sent.windows(14).rposition(|window| window == b"x-amz-checksum").unwrap();
        sent[position + 22] ^= 1;
    };
    let table = [
        (signed.clone(), flip, 403, "SignatureDoesNotMatch"),
        (signed, cut, 400, "IncompleteBody"),
        (trailer.clone(), flip, 403, "SignatureDoesNotMatch"),
        // Their signature is missing as well.
        (trailer.clone(), no_trailer, 400, "IncompleteBody"),
        (trailer, other_trailer, 403, "SignatureDoesNotMatch"),
        (unsigned.clone(), flip, 400, "BadDigest"),
        (unsigned.clone(), cut, 400, "IncompleteBody"),
        (unsigned.clone(), no_trailer, 400, "MalformedTrailerError"),
        (unsigned, other_trailer, 400, "BadDigest"),
    ];
    for (framing, tamper, status, code) in table {
        let call = s3.put("/bkt/k").body(body.clone()).payload(framing).change(|call| call.tamper = Some(tamper));
        call.send(&s3).await.refused(status, code);
        s3.get("/bkt/k").send(&s3).await.refused(404, "NoSuchKey");
    }
}

#[tokio::test]
async fn all_checksums_in_headers_and_trailers() {
    let s3 = S3::with_bucket().await;
    let body = payload(4000);
    let names = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256", "sha512", "md5", "xxhash64", "xxhash3", "xxhash128"];
    assert_eq!(names.len(), ChecksumAlgorithm::ALL.len());
    for (algorithm, name) in ChecksumAlgorithm::ALL.into_iter().zip(names) {
        let header: &'static str = format!("x-amz-checksum-{name}").leak();
        let good = checksum(algorithm, &body);
        let bad = checksum(algorithm, b"other");
        let unsigned = |value: &str| Payload::UnsignedChunks { chunk_bytes: 4096, trailer: (header, value.to_owned()) };
        let call = s3.put("/bkt/k").body(body.clone()).header("x-amz-sdk-checksum-algorithm", algorithm.as_str());
        let stored = call.clone().header(header, &*good).send(&s3).await.expect(200);
        assert_eq!(stored.header(header), Some(good.as_str()));
        assert_eq!(stored.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
        call.clone().header(header, &*bad).send(&s3).await.refused(400, "BadDigest");
        call.clone().header(header, "AAA").send(&s3).await.refused(400, "InvalidRequest");
        call.clone().payload(unsigned(&good)).send(&s3).await.expect(200);
        call.clone().payload(unsigned(&bad)).send(&s3).await.refused(400, "BadDigest");
        call.payload(unsigned("!!")).send(&s3).await.refused(400, "InvalidRequest");
        let head = s3.head("/bkt/k").header("x-amz-checksum-mode", "ENABLED").send(&s3).await.expect(200);
        assert_eq!(head.header(header), Some(good.as_str()));
        assert_eq!(s3.head("/bkt/k").send(&s3).await.header(header), None);
        let range = s3.get("/bkt/k").header("range", "bytes=0-1").header("x-amz-checksum-mode", "ENABLED");
        assert_eq!(range.send(&s3).await.expect(206).header(header), None);
    }
}

#[tokio::test]
async fn without_a_checksum_crc64nvme_is_stored() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("hello").send(&s3).await.expect(200);
    let head = s3.head("/bkt/k").header("x-amz-checksum-mode", "ENABLED").send(&s3).await;
    let expected = checksum(ChecksumAlgorithm::Crc64Nvme, b"hello");
    assert_eq!(head.header("x-amz-checksum-crc64nvme"), Some(expected.as_str()));
}

#[tokio::test]
async fn contradictory_checksums_are_refused() {
    let s3 = S3::with_bucket().await;
    let call = s3.put("/bkt/k").body("hello");
    let good = crc32(b"hello");
    let two = call.clone().header("x-amz-checksum-crc32", &*good).header("x-amz-checksum-sha1", "x");
    two.send(&s3).await.refused(400, "InvalidRequest");
    let other = call.clone().header("x-amz-checksum-crc32", &*good).header("x-amz-sdk-checksum-algorithm", "SHA1");
    other.send(&s3).await.refused(400, "InvalidRequest");
    call.clone().header("x-amz-sdk-checksum-algorithm", "CRC32").send(&s3).await.refused(400, "InvalidRequest");
    call.clone().header("x-amz-sdk-checksum-algorithm", "CRC16").send(&s3).await.refused(400, "InvalidRequest");
    call.clone().header("x-amz-trailer", "x-amz-checksum-crc32").send(&s3).await.refused(400, "InvalidRequest");
    call.clone().header("x-amz-checksum-sha512", "x").send(&s3).await.refused(400, "InvalidRequest");
    let both = call.header("x-amz-checksum-crc32", &*good);
    let both = both.payload(Payload::UnsignedChunks { chunk_bytes: 9, trailer: ("x-amz-checksum-crc32", good) });
    both.send(&s3).await.refused(400, "InvalidRequest");
}

#[tokio::test]
async fn content_md5_is_checked() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("hello").md5().send(&s3).await.expect(200);
    let call = s3.put("/bkt/k").body("hello");
    call.clone().header("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==").send(&s3).await.refused(400, "BadDigest");
    for bad in ["", "AAAA", "not base64", "d41d8cd98f00b204e9800998ecf8427e"] {
        let (answer, polled) = call.clone().header("content-md5", bad).send_head(&s3).await;
        answer.refused(400, "InvalidDigest");
        assert!(!polled, "{bad}");
    }
}

#[tokio::test]
async fn the_signed_hash_is_checked() {
    let s3 = S3::with_bucket().await;
    let wrong = Payload::Says(sha256_hex(b"other"));
    let refused = s3.put("/bkt/k").body("hello").payload(wrong.clone()).send(&s3).await;
    let refused = refused.refused(400, "XAmzContentSHA256Mismatch");
    assert_eq!(refused.element("ClientComputedContentSHA256"), Some(sha256_hex(b"other")));
    assert_eq!(refused.element("S3ComputedContentSHA256"), Some(sha256_hex(b"hello")));
    let big = s3.put("/bkt/k").body(payload(3 << 20)).payload(wrong.clone());
    big.send(&s3).await.refused(400, "XAmzContentSHA256Mismatch");
    let document = s3.post("/bkt?delete").body("<Delete><Object><Key>k</Key></Object></Delete>").md5().payload(wrong);
    document.send(&s3).await.refused(400, "XAmzContentSHA256Mismatch");
    s3.get("/bkt/k").send(&s3).await.refused(404, "NoSuchKey");
    // That it is wrong of nothing is known before anything else.
    for call in [s3.put("/none/k?tagging"), s3.get("/bkt/k"), s3.head("/bkt"), s3.put("/bkt/k")] {
        let wrong = Payload::Says(sha256_hex(b"other"));
        assert_eq!(call.payload(wrong).send(&s3).await.status, 400);
    }
    let nobody = s3.put("/bkt/k").sign(Sign::Not);
    nobody.clone().header("x-amz-content-sha256", "nonsense").send(&s3).await.refused(400, "XAmzContentSHA256Mismatch");
    nobody.header("x-amz-content-sha256", sha256_hex(b"")).send(&s3).await.refused(403, "AccessDenied");
}

/// As on AWS, where small chunks are refused for what they cost.
#[tokio::test]
async fn chunks_are_of_a_certain_size() {
    let s3 = S3::with_bucket().await;
    let body = payload(20_000);
    let trailer = || ("x-amz-checksum-crc32", crc32(&body));
    for (chunk_bytes, is_good) in [(8192, true), (20_000, true), (30_000, true), (8191, false), (1, false)] {
        for framing in [
            Payload::SignedChunks { chunk_bytes, trailer: None },
            Payload::SignedChunks { chunk_bytes, trailer: Some(trailer()) },
            Payload::UnsignedChunks { chunk_bytes, trailer: trailer() },
        ] {
            let answer = s3.put("/bkt/k").body(body.clone()).payload(framing).send(&s3).await;
            if is_good {
                answer.expect(200);
                continue;
            }
            let answer = answer.refused(403, "InvalidChunkSizeError");
            let said = (answer.element("Chunk").unwrap(), answer.element("BadChunkSize").unwrap());
            assert_eq!(said, ("2".to_owned(), chunk_bytes.to_string()));
        }
    }
}

#[tokio::test]
async fn trailers_need_not_be_announced_where_there_are_none() {
    let s3 = S3::with_bucket().await;
    let send = |sent: &'static str, length: &str| {
        let call = s3.put("/bkt/k").payload(Payload::Says("STREAMING-UNSIGNED-PAYLOAD-TRAILER".into()));
        let call = call.header("x-amz-decoded-content-length", length);
        call.change(|call| call.sent = Some(sent.as_bytes().to_vec())).send(&s3)
    };
    send("5\r\nhello\r\n0\r\n\r\n", "5").await.expect(200);
    assert_eq!(s3.get("/bkt/k").send(&s3).await.text(), "hello");
    let unannounced = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
    send(unannounced, "5").await.refused(400, "MalformedTrailerError");
    send("5\r\nhello\r\n0\r\n:NhCmhg==\r\n\r\n", "5").await.refused(400, "MalformedTrailerError");
    for (sent, length) in [
        ("5\r\nhello\r\n0\r\n", "5"),
        ("5\r\nhello\r\n0\r\n\r\n", "4"),
        ("5\r\nhello\r\n0\r\n\r\n", "6"),
        ("5\nhello\r\n0\r\n\r\n", "5"),
        ("6\r\nhello\r\n0\r\n\r\n", "5"),
        ("x\r\nhello\r\n0\r\n\r\n", "5"),
        ("5;chunk-signature=0\r\nhello\r\n0\r\n\r\n", "5"),
        ("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n", "5"),
    ] {
        let refused = send(sent, length).await.refused(400, "IncompleteBody");
        let is_counted = length != "5";
        assert_eq!(refused.element("Message").unwrap().contains("Content-Length"), is_counted, "{sent:?}");
    }
    let call = s3.put("/bkt/k").payload(Payload::Says("STREAMING-UNSIGNED-PAYLOAD-TRAILER".into()));
    call.send(&s3).await.refused(411, "MissingContentLength");
    let document = s3.put("/bkt?cors").payload(Payload::Says("STREAMING-UNSIGNED-PAYLOAD-TRAILER".into()));
    document.header("x-amz-decoded-content-length", "5").send(&s3).await.refused(400, "InvalidRequest");
}

#[tokio::test]
async fn nobody_may_send_chunks_too() {
    let s3 = S3::with_bucket().await;
    let policy = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bkt/*"}}"#;
    s3.put("/bkt?policy").body(policy).send(&s3).await.expect(204);
    let send = |content: &str, sent: &str| {
        let call = s3.put("/bkt/k").sign(Sign::Not).header("x-amz-content-sha256", content);
        call.header("x-amz-decoded-content-length", "5").body(sent).send(&s3)
    };
    let chunks = "5\r\nhello\r\n0\r\n\r\n";
    send("STREAMING-UNSIGNED-PAYLOAD-TRAILER", chunks).await.expect(200);
    assert_eq!(s3.get("/bkt/k").send(&s3).await.expect(200).text(), "hello");
    send("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", chunks).await.refused(400, "InvalidRequest");
    send(&sha256_hex(b"other"), "hello").await.refused(400, "XAmzContentSHA256Mismatch");
    send(&sha256_hex(b"hello"), "hello").await.expect(200);
}

#[tokio::test]
async fn a_length_is_needed_and_kept() {
    let s3 = S3::with_bucket().await;
    for payload in [Payload::Signed, Payload::Unsigned] {
        let call = s3.put("/bkt/k").body("hello").payload(payload).change(|call| call.no_length = true);
        call.clone().send(&s3).await.refused(411, "MissingContentLength");
        // HTTP/2 ends a body by itself.
        call.change(|call| call.version = http::Version::HTTP_2).send(&s3).await.expect(200);
    }
    let call = s3.put("/bkt/short").body("hello").payload(Payload::Unsigned).change(|call| call.no_length = true);
    call.clone().header("content-length", "6").send(&s3).await.refused(400, "IncompleteBody");
    call.clone().header("content-length", "4").send(&s3).await.refused(400, "IncompleteBody");
    call.header("content-length", "x").send(&s3).await.refused(400, "InvalidArgument");
    s3.get("/bkt/short").send(&s3).await.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_unread() {
    let s3 = S3::with_bucket().await;
    let call = s3.put("/bkt/k").payload(Payload::Unsigned).change(|call| call.no_length = true);
    let (answer, polled) = call.header("content-length", (5_u64 * (1 << 30) + 1).to_string()).send_head(&s3).await;
    answer.refused(400, "EntityTooLarge");
    assert!(!polled);
    let document = s3.post("/bkt?delete").payload(Payload::Unsigned).md5().change(|call| call.no_length = true);
    let (answer, polled) = document.header("content-length", "5000000").send_head(&s3).await;
    answer.refused(400, "MaxMessageLengthExceeded");
    assert!(!polled);
}

/// So that a client that waits for `100 Continue` never sends what would be thrown away.
#[tokio::test]
async fn a_body_is_not_asked_for_in_vain() {
    let s3 = S3::with_bucket().await;
    let put = s3.put("/bkt/k").body("hello").payload(Payload::Unsigned);
    let vain = [
        (put.clone().sign(Sign::Not), 403),
        (put.clone().change(|call| call.secret_key = "wrong"), 403),
        (put.clone().header("x-amz-acl", "public-read"), 400),
        (put.clone().header("x-amz-checksum-crc32", "x"), 400),
        (put.clone().header("x-amz-meta-a", "v".repeat(3000)), 400),
        (put.clone().header("if-modified-since", "Thu, 01 Dec 2044 16:00:00 GMT"), 501),
        (put.clone().header("if-match", "\"x\""), 404),
        (s3.put("/none/k").body("x").payload(Payload::Unsigned), 404),
        (s3.put("/bkt/k?partNumber=1&uploadId=x").body("x").payload(Payload::Unsigned), 404),
        (s3.put("/bkt/k?partNumber=0&uploadId=x").body("x").payload(Payload::Unsigned), 404),
        (s3.put("/bkt/none?acl").body("x").payload(Payload::Unsigned), 404),
    ];
    for (call, status) in vain {
        let (answer, polled) = call.send_head(&s3).await;
        assert!(!polled, "{}", answer.text());
        answer.expect(status);
    }
}

/// Whichever path it takes: it must not matter which of them knows the operation.
#[tokio::test]
async fn objects_alone_come_in_chunks() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    for call in [s3.delete("/bkt/k"), s3.get("/bkt/k"), s3.put("/bkt/k?tagging")] {
        let chunks = Payload::SignedChunks { chunk_bytes: 8192, trailer: None };
        call.payload(chunks).send(&s3).await.refused(400, "InvalidRequest");
    }
    s3.get("/bkt/k").send(&s3).await.expect(200);
}
