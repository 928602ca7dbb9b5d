//! Content-MD5 and x-amz-checksum-*: verified, stored, returned.

use aws_sdk_s3::{
    primitives::ByteStream,
    types::{ChecksumAlgorithm, ChecksumMode, ChecksumType, CompletedMultipartUpload, CompletedPart, ObjectAttributes},
};
use gabion_tests::{Content, bytes_of, failure};

use crate::{BUCKET, refused, served};

const ALGORITHMS: [ChecksumAlgorithm; 5] = [
    ChecksumAlgorithm::Crc32,
    ChecksumAlgorithm::Crc32C,
    ChecksumAlgorithm::Crc64Nvme,
    ChecksumAlgorithm::Sha1,
    ChecksumAlgorithm::Sha256,
];

/// The five checksum fields of an answer, in the order of [`ALGORITHMS`].
macro_rules! checksums {
    ($answer:expr) => {{
        let answer = &$answer;
        [
            answer.checksum_crc32(),
            answer.checksum_crc32_c(),
            answer.checksum_crc64_nvme(),
            answer.checksum_sha1(),
            answer.checksum_sha256(),
        ]
        .map(|value| value.map(str::to_owned))
    }};
}

#[tokio::test]
async fn what_the_client_computes_is_verified_stored_and_returned() {
    let (mut server, client) = served().await;
    let mut stored = Vec::new();
    for (index, algorithm) in ALGORITHMS.into_iter().enumerate() {
        for len in [0, 1000, 3_000_000] {
            let key = format!("{algorithm}/{len}");
            // The SDK sends this one in a trailer.
            let put = client.put_object().bucket(BUCKET).key(&key).checksum_algorithm(algorithm.clone());
            let put = put.body(ByteStream::from(Content::new(1, len).bytes())).send().await.unwrap();
            let values = checksums!(put);
            assert!(values[index].is_some(), "{key}: {values:?}");
            assert_eq!(values.iter().flatten().count(), 1);
            assert_eq!(put.checksum_type(), Some(&ChecksumType::FullObject));
            stored.push((key, len, values));
        }
    }
    server.crash().await.unwrap();
    let client = server.client();
    for (key, len, values) in stored {
        let head =
            client.head_object().bucket(BUCKET).key(&key).checksum_mode(ChecksumMode::Enabled).send().await.unwrap();
        assert_eq!(checksums!(head), values, "{key}");
        let silent = client.head_object().bucket(BUCKET).key(&key).send().await.unwrap();
        assert_eq!(checksums!(silent).iter().flatten().count(), 0, "only on demand");
        // With the mode enabled the SDK verifies what it reads.
        let got =
            client.get_object().bucket(BUCKET).key(&key).checksum_mode(ChecksumMode::Enabled).send().await.unwrap();
        assert_eq!(checksums!(got), values);
        assert_eq!(bytes_of(got).await.unwrap(), Content::new(1, len).bytes());
        let attributes = client
            .get_object_attributes()
            .bucket(BUCKET)
            .key(&key)
            .object_attributes(ObjectAttributes::Checksum)
            .send()
            .await
            .unwrap();
        assert_eq!(checksums!(attributes.checksum().unwrap()), values);
    }
}

#[tokio::test]
async fn without_any_the_server_computes_crc64nvme() {
    let (server, _) = served().await;
    let client = server.small_client();
    let put = client.put_object().bucket(BUCKET).key("k").body(ByteStream::from_static(b"123456789")).send();
    put.await.unwrap();
    let head = client.head_object().bucket(BUCKET).key("k").checksum_mode(ChecksumMode::Enabled).send().await.unwrap();
    // The check value of CRC-64/NVME, ae8b14860a799888.
    assert_eq!(head.checksum_crc64_nvme(), Some("rosUhgp5mIg="));
    assert_eq!(head.checksum_type(), Some(&ChecksumType::FullObject));
}

#[tokio::test]
async fn wrong_digests_are_refused_and_nothing_is_stored() {
    let (server, _) = served().await;
    let client = server.small_client();
    for len in [100, 2_000_000] {
        let put = || client.put_object().bucket(BUCKET).key("k").body(ByteStream::from(Content::new(1, len).bytes()));
        let zeros = |bytes: usize| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, vec![0u8; bytes]);
        let attempts = [
            put().checksum_crc32(zeros(4)).send().await,
            put().checksum_crc32_c(zeros(4)).send().await,
            put().checksum_crc64_nvme(zeros(8)).send().await,
            put().checksum_sha1(zeros(20)).send().await,
            put().checksum_sha256(zeros(32)).send().await,
            put().content_md5(zeros(16)).send().await,
        ];
        for (index, attempt) in attempts.into_iter().enumerate() {
            assert_eq!(failure(attempt), refused(400, "BadDigest"), "{index}, {len} bytes");
        }
        assert_eq!(failure(put().content_md5("nonsense").send().await), refused(400, "InvalidDigest"));
        let malformed = failure(put().checksum_sha256("AAAA").send().await);
        assert_eq!(malformed.status(), Some(400), "{malformed:?}");
        assert_eq!(failure(client.head_object().bucket(BUCKET).key("k").send().await).status(), Some(404));
    }
}

#[tokio::test]
async fn checksums_of_multipart_objects() {
    let (mut server, _) = served().await;
    let contents = [Content::new(1, 5 << 20), Content::new(2, 1000)];
    let rows = [
        (ChecksumAlgorithm::Crc32, ChecksumType::Composite),
        (ChecksumAlgorithm::Crc32, ChecksumType::FullObject),
        (ChecksumAlgorithm::Crc32C, ChecksumType::Composite),
        (ChecksumAlgorithm::Crc64Nvme, ChecksumType::FullObject),
        (ChecksumAlgorithm::Sha1, ChecksumType::Composite),
        (ChecksumAlgorithm::Sha256, ChecksumType::Composite),
    ];
    let mut completed = Vec::new();
    for (algorithm, kind) in rows {
        let client = server.client();
        let key = format!("{algorithm}/{kind}");
        let create = client.create_multipart_upload().bucket(BUCKET).key(&key).checksum_algorithm(algorithm.clone());
        let created = create.checksum_type(kind.clone()).send().await.unwrap();
        let id = created.upload_id().unwrap();
        let mut parts = Vec::new();
        for (index, content) in contents.into_iter().enumerate() {
            let number = index as i32 + 1;
            let part = client.upload_part().bucket(BUCKET).key(&key).upload_id(id).part_number(number);
            let part = part.checksum_algorithm(algorithm.clone()).body(ByteStream::from(content.bytes()));
            let part = part.send().await.unwrap();
            assert_eq!(checksums!(part).iter().flatten().count(), 1, "{key}");
            let [crc32, crc32c, crc64, sha1, sha256] = checksums!(part);
            parts.push(
                CompletedPart::builder()
                    .part_number(number)
                    .set_e_tag(part.e_tag().map(str::to_owned))
                    .set_checksum_crc32(crc32)
                    .set_checksum_crc32_c(crc32c)
                    .set_checksum_crc64_nvme(crc64)
                    .set_checksum_sha1(sha1)
                    .set_checksum_sha256(sha256)
                    .build(),
            );
        }
        let complete = client.complete_multipart_upload().bucket(BUCKET).key(&key).upload_id(id);
        let upload = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let done = complete.multipart_upload(upload).send().await.unwrap();
        let values = checksums!(done);
        let value = values.iter().flatten().next().expect("the checksum of the whole");
        assert_eq!(done.checksum_type(), Some(&kind), "{key}");
        assert_eq!(value.ends_with("-2"), kind == ChecksumType::Composite, "{key}: {value}");
        completed.push((key, kind, values));
    }
    server.crash().await.unwrap();
    let client = server.client();
    for (key, kind, values) in completed {
        let head =
            client.head_object().bucket(BUCKET).key(&key).checksum_mode(ChecksumMode::Enabled).send().await.unwrap();
        assert_eq!((checksums!(head), head.checksum_type()), (values, Some(&kind)), "{key}");
    }
    // The full-object CRC of parts is that of the same bytes in one piece.
    let whole = contents.iter().flat_map(|content| content.bytes()).collect::<Vec<u8>>();
    let put = client.put_object().bucket(BUCKET).key("whole").checksum_algorithm(ChecksumAlgorithm::Crc64Nvme);
    let put = put.body(ByteStream::from(whole)).send().await.unwrap();
    let key = "CRC64NVME/FULL_OBJECT";
    let head = client.head_object().bucket(BUCKET).key(key).checksum_mode(ChecksumMode::Enabled).send().await.unwrap();
    assert_eq!(put.checksum_crc64_nvme(), head.checksum_crc64_nvme());
}
