//! The AWS SDK for Rust, with what it does by default: the cases of `../test_sdks.py`, where it is said what is printed.

use std::{collections::HashMap, fmt::Debug, future::Future, io::Write, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use aws_sdk_s3::{
    Client,
    presigning::{PresignedRequest, PresigningConfig},
    primitives::ByteStream,
    types::{
        BucketVersioningStatus, ChecksumAlgorithm, ChecksumMode, CompletedMultipartUpload, CompletedPart, Delete,
        MetadataDirective, ObjectAttributes, ObjectIdentifier, Tag, Tagging, VersioningConfiguration,
    },
};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use gabion_tests::{Answer, Content, Outcome, bytes_of, client_for, exchange, failure};
use md5::{Digest, Md5};

const MIB: usize = 1 << 20;
const ODD_KEYS: [&str; 11] = [
    "a b",
    "a+b",
    "a&b<c>\"d'",
    "per%20cent%",
    "größe/ü",
    "日本/😀",
    "new\nline",
    "tab\tand\rreturn",
    "dir//double/",
    "~*()!",
    "end ",
];

/// What every case has.
#[derive(Clone)]
struct Smoke {
    s3: Client,
    endpoint: String,
    /// With what the names of buckets begin.
    prefix: String,
    bucket: String,
}

fn variable(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set"))
}

fn equal<T: PartialEq + Debug>(got: T, expected: T) -> Result<()> {
    ensure!(got == expected, "{got:?} is not {expected:?}");
    Ok(())
}

fn refused(status: u16, code: &str) -> Outcome {
    Outcome::Refused(status, code.to_owned())
}

fn content(len: usize) -> Bytes {
    Content::new(len as u64, len).bytes()
}

/// `bucket/key` as CopySource has it.
fn source(bucket: &str, key: &str) -> String {
    let encoded = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    format!("{bucket}/{}", key.bytes().map(encoded).collect::<String>())
}

impl Smoke {
    async fn put(&self, key: &str, body: impl Into<Bytes>) -> Result<()> {
        self.s3.put_object().bucket(&self.bucket).key(key).body(ByteStream::from(body.into())).send().await?;
        Ok(())
    }

    async fn get(&self, key: &str) -> Result<Bytes> {
        bytes_of(self.s3.get_object().bucket(&self.bucket).key(key).send().await?).await
    }

    async fn buckets(self) -> Result<()> {
        let Smoke { s3, bucket, prefix, .. } = &self;
        equal(s3.head_bucket().bucket(bucket).send().await?.bucket_region(), Some("us-east-1"))?;
        equal(
            s3.get_bucket_location().bucket(bucket).send().await?.location_constraint().map_or("", |at| at.as_str()),
            "",
        )?;
        let mut pages = s3.list_buckets().prefix(prefix).into_paginator().page_size(1).send();
        let mut names = Vec::new();
        while let Some(page) = pages.next().await {
            names.extend(page?.buckets().iter().filter_map(|item| item.name()).map(str::to_owned));
        }
        equal(&names, &vec![bucket.clone()])?;
        let other = format!("{prefix}-short-lived");
        s3.create_bucket().bucket(&other).send().await?;
        s3.delete_bucket().bucket(&other).send().await?;
        let gone = s3.head_bucket().bucket(&other).send().await.err().context("it is gone")?;
        ensure!(gone.as_service_error().is_some_and(|error| error.is_not_found()), "{gone:?}");
        Ok(())
    }

    async fn objects(self) -> Result<()> {
        for (key, len) in [("empty", 0), ("dir/größe a+b %2F", 1000), ("m", MIB)] {
            let body = content(len);
            let put = self.s3.put_object().bucket(&self.bucket).key(key).content_type("text/x").metadata("a", "1");
            let put = put.body(ByteStream::from(body.clone())).send().await?;
            equal(put.e_tag(), Some(format!("\"{}\"", hex::encode(Md5::digest(&body))).as_str()))?;
            equal(self.get(key).await?, body)?;
            let head = self.s3.head_object().bucket(&self.bucket).key(key).send().await?;
            equal((head.content_length(), head.content_type()), (Some(len as i64), Some("text/x")))?;
            equal((head.metadata(), head.e_tag()), (Some(&HashMap::from([("a".into(), "1".into())])), put.e_tag()))?;
        }
        Ok(())
    }

    /// The SDK has no sending of parts of its own: its transfer manager is a preview.
    async fn transfers(self) -> Result<()> {
        let Smoke { s3, bucket, .. } = &self;
        let body = content(12 * MIB + 5);
        let upload = s3.create_multipart_upload().bucket(bucket).key("large").send().await?;
        let id = upload.upload_id().context("an upload has an id")?;
        let mut parts = Vec::new();
        for (number, part) in (1..).zip(body.chunks(5 * MIB)) {
            let part = ByteStream::from(Bytes::copy_from_slice(part));
            let call = s3.upload_part().bucket(bucket).key("large").upload_id(id).part_number(number).body(part);
            let sent = call.send().await?;
            let done = CompletedPart::builder()
                .part_number(number)
                .set_e_tag(sent.e_tag)
                .set_checksum_crc32(sent.checksum_crc32);
            parts.push(done.build());
        }
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let complete = s3.complete_multipart_upload().bucket(bucket).key("large").upload_id(id).multipart_upload(parts);
        let done = complete.send().await?;
        ensure!(done.e_tag().is_some_and(|tag| tag.ends_with("-3\"")), "{done:?}");
        equal(self.get("large").await?, body)?;
        let left = s3.create_multipart_upload().bucket(bucket).key("left").send().await?;
        let id = left.upload_id().context("an upload has an id")?;
        let uploads = s3.list_multipart_uploads().bucket(bucket).send().await?;
        equal(uploads.uploads().iter().filter_map(|upload| upload.key()).collect::<Vec<_>>(), vec!["left"])?;
        s3.abort_multipart_upload().bucket(bucket).key("left").upload_id(id).send().await?;
        let gone = failure(s3.list_parts().bucket(bucket).key("left").upload_id(id).send().await);
        equal(gone, refused(404, "NoSuchUpload"))
    }

    async fn ranges(self) -> Result<()> {
        let body = content(3 * MIB);
        self.put("k", body.clone()).await?;
        let get = |range: String| self.s3.get_object().bucket(&self.bucket).key("k").range(range).send();
        equal(bytes_of(get("bytes=0-9".into()).await?).await?, body.slice(..10))?;
        equal(bytes_of(get("bytes=-7".into()).await?).await?, body.slice(body.len() - 7..))?;
        equal(bytes_of(get("bytes=1048570-1048590".into()).await?).await?, body.slice(1_048_570..1_048_591))?;
        equal(failure(get(format!("bytes={}-", body.len())).await), refused(416, "InvalidRange"))
    }

    async fn listings(self) -> Result<()> {
        let Smoke { s3, bucket, .. } = &self;
        let keys: Vec<_> =
            ["a", "b", "c"].iter().flat_map(|group| (0..9).map(move |index| format!("{group}/{index}"))).collect();
        for key in &keys {
            self.put(key, "x").await?;
        }
        let mut pages = s3.list_objects_v2().bucket(bucket).fetch_owner(true).into_paginator().page_size(10).send();
        let (mut found, mut count) = (Vec::new(), 0);
        while let Some(page) = pages.next().await {
            let page = page?;
            ensure!(page.contents().iter().all(|item| item.size() == Some(1) && item.owner().is_some()), "{page:?}");
            found.extend(page.contents().iter().filter_map(|item| item.key()).map(str::to_owned));
            count += 1;
        }
        equal((found, count), (keys, 3))?;
        let mut pages = s3.list_objects_v2().bucket(bucket).delimiter("/").into_paginator().page_size(2).send();
        let mut prefixes = Vec::new();
        while let Some(page) = pages.next().await {
            prefixes.extend(page?.common_prefixes().iter().filter_map(|item| item.prefix()).map(str::to_owned));
        }
        equal(prefixes, vec!["a/".to_owned(), "b/".into(), "c/".into()])?;
        let old = s3.list_objects().bucket(bucket).prefix("b/").marker("b/6").send().await?;
        equal(old.contents().iter().filter_map(|item| item.key()).collect::<Vec<_>>(), vec!["b/7", "b/8"])
    }

    async fn copies(self) -> Result<()> {
        let Smoke { s3, bucket, .. } = &self;
        let key = "dir/söurce +%";
        let body = content(MIB);
        let put = s3.put_object().bucket(bucket).key(key).metadata("a", "1");
        put.body(ByteStream::from(body.clone())).send().await?;
        let copy = |to: &str| s3.copy_object().bucket(bucket).key(to).copy_source(source(bucket, key));
        copy("same").send().await?;
        copy("new").metadata_directive(MetadataDirective::Replace).metadata("b", "2").send().await?;
        for (to, name, value) in [("same", "a", "1"), ("new", "b", "2")] {
            let head = s3.head_object().bucket(bucket).key(to).send().await?;
            equal(head.metadata(), Some(&HashMap::from([(name.into(), value.into())])))?;
            equal(self.get(to).await?, body.clone())?;
        }
        let upload = s3.create_multipart_upload().bucket(bucket).key("part").send().await?;
        let id = upload.upload_id().context("an upload has an id")?;
        let part = s3.upload_part_copy().bucket(bucket).key("part").upload_id(id).part_number(1);
        let part = part.copy_source(source(bucket, key)).copy_source_range("bytes=10-19").send().await?;
        let tag = part.copy_part_result().and_then(|part| part.e_tag()).context("a part has a tag")?;
        let parts =
            CompletedMultipartUpload::builder().parts(CompletedPart::builder().part_number(1).e_tag(tag).build());
        let complete = s3.complete_multipart_upload().bucket(bucket).key("part").upload_id(id);
        complete.multipart_upload(parts.build()).send().await?;
        equal(self.get("part").await?, body.slice(10..20))
    }

    async fn tags_are(&self, expected: &[(&str, &str)]) -> Result<()> {
        let shown = self.s3.get_object_tagging().bucket(&self.bucket).key("k").send().await?;
        equal(shown.tag_set().iter().map(|tag| (tag.key(), tag.value())).collect::<Vec<_>>().as_slice(), expected)
    }

    async fn tags(self) -> Result<()> {
        let Smoke { s3, bucket, .. } = &self;
        let tagging =
            |key: &str, value: &str| Tagging::builder().tag_set(Tag::builder().key(key).value(value).build()?).build();
        s3.put_object().bucket(bucket).key("k").tagging("a=1&b=%C3%BC%20%2B").send().await?;
        self.tags_are(&[("a", "1"), ("b", "ü +")]).await?;
        s3.put_object_tagging().bucket(bucket).key("k").tagging(tagging("größe", "a b")?).send().await?;
        self.tags_are(&[("größe", "a b")]).await?;
        s3.delete_object_tagging().bucket(bucket).key("k").send().await?;
        self.tags_are(&[]).await?;
        s3.put_bucket_tagging().bucket(bucket).tagging(tagging("project", "42")?).send().await?;
        equal(s3.get_bucket_tagging().bucket(bucket).send().await?.tag_set()[0].value(), "42")?;
        s3.delete_bucket_tagging().bucket(bucket).send().await?;
        equal(failure(s3.get_bucket_tagging().bucket(bucket).send().await), refused(404, "NoSuchTagSet"))
    }

    async fn versions(self) -> Result<()> {
        let Smoke { s3, bucket, .. } = &self;
        let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
        s3.put_bucket_versioning().bucket(bucket).versioning_configuration(enabled).send().await?;
        equal(
            s3.get_bucket_versioning().bucket(bucket).send().await?.status(),
            Some(&BucketVersioningStatus::Enabled),
        )?;
        let mut ids = Vec::new();
        for body in ["0", "1"] {
            let put = s3.put_object().bucket(bucket).key("k").body(ByteStream::from_static(body.as_bytes()));
            ids.push(put.send().await?.version_id.context("a version has an id")?);
        }
        let marker = s3.delete_object().bucket(bucket).key("k").send().await?;
        equal(marker.delete_marker(), Some(true))?;
        equal(failure(s3.get_object().bucket(bucket).key("k").send().await), refused(404, "NoSuchKey"))?;
        for (id, body) in ids.iter().zip(["0", "1"]) {
            let got = s3.get_object().bucket(bucket).key("k").version_id(id).send().await?;
            equal(bytes_of(got).await?, Bytes::from(body))?;
        }
        let listed = s3.list_object_versions().bucket(bucket).send().await?;
        let shown: Vec<_> = listed.versions().iter().filter_map(|version| version.version_id()).collect();
        equal(shown, vec![ids[1].as_str(), ids[0].as_str()])?;
        equal(listed.delete_markers()[0].version_id(), marker.version_id())?;
        s3.delete_object().bucket(bucket).key("k").set_version_id(marker.version_id).send().await?;
        equal(self.get("k").await?, Bytes::from("1"))
    }

    /// Sends a presigned request by a client that knows no S3.
    async fn plainly(&self, signed: &PresignedRequest, uri: &str, body: &str) -> Result<Answer> {
        let address = self.endpoint.trim_start_matches("http://");
        let target = uri.strip_prefix(&self.endpoint).context("a URL begins with the endpoint")?;
        let mut head = format!("{} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n", signed.method());
        for (name, value) in signed.headers().filter(|(name, _)| *name != "content-length") {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        Ok(exchange(address, format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?)
    }

    async fn presigned(self) -> Result<()> {
        let key = "a b/ü+";
        let minute = PresigningConfig::expires_in(Duration::from_secs(60))?;
        let put = self.s3.put_object().bucket(&self.bucket).key(key).presigned(minute.clone()).await?;
        equal(self.plainly(&put, put.uri(), "presigned").await?.status, 200)?;
        let get = self.s3.get_object().bucket(&self.bucket).key(key).response_content_type("text/z");
        let get = get.presigned(minute).await?;
        let answer = self.plainly(&get, get.uri(), "").await?;
        equal(
            (answer.status, answer.body.as_str(), answer.header("content-type")),
            (200, "presigned", Some("text/z")),
        )?;
        equal(self.plainly(&get, &get.uri().replace("text%2Fz", "text%2Fhtml"), "").await?.status, 403)
    }

    async fn conditions(self) -> Result<()> {
        let put = |body: &'static str| {
            self.s3.put_object().bucket(&self.bucket).key("k").body(ByteStream::from_static(body.as_bytes()))
        };
        let first = put("1").if_none_match("*").send().await?;
        equal(failure(put("2").if_none_match("*").send().await), refused(412, "PreconditionFailed"))?;
        equal(failure(put("2").if_match("\"other\"").send().await), refused(412, "PreconditionFailed"))?;
        let second = put("2").set_if_match(first.e_tag.clone()).send().await?;
        let get = || self.s3.get_object().bucket(&self.bucket).key("k");
        equal(failure(get().set_if_none_match(second.e_tag).send().await).status(), Some(304))?;
        equal(failure(get().set_if_match(first.e_tag).send().await).status(), Some(412))
    }

    async fn checksums(self) -> Result<()> {
        let Smoke { s3, bucket, .. } = &self;
        let body = content(2 * MIB);
        let put = s3.put_object().bucket(bucket).key("own").body(ByteStream::from(body.clone())).send().await?;
        ensure!(put.checksum_crc32().is_some(), "the SDK sends a CRC32 of its own accord: {put:?}");
        let head = s3.head_object().bucket(bucket).key("own").checksum_mode(ChecksumMode::Enabled).send().await?;
        equal(head.checksum_crc32(), put.checksum_crc32())?;
        // Of a file the checksum is known at its end: aws-chunked, in a trailer.
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), &body)?;
        let stream = ByteStream::from_path(file.path()).await?;
        let chosen = s3.put_object().bucket(bucket).key("chosen").checksum_algorithm(ChecksumAlgorithm::Crc64Nvme);
        let chosen = chosen.body(stream).send().await?;
        ensure!(chosen.checksum_crc64_nvme().is_some(), "{chosen:?}");
        let attributes = s3.get_object_attributes().bucket(bucket).key("chosen");
        let wanted =
            attributes.object_attributes(ObjectAttributes::Checksum).object_attributes(ObjectAttributes::ObjectSize);
        let attributes = wanted.send().await?;
        let told = attributes.checksum().and_then(|checksum| checksum.checksum_crc64_nvme());
        equal((told, attributes.object_size()), (chosen.checksum_crc64_nvme(), Some(body.len() as i64)))?;
        equal(self.get("chosen").await?, body)?;
        let wrong = s3.put_object().bucket(bucket).key("wrong").checksum_crc32("AAAAAA==");
        equal(failure(wrong.body(ByteStream::from_static(b"other")).send().await), refused(400, "BadDigest"))
    }

    async fn deletions(self) -> Result<()> {
        let Smoke { s3, bucket, .. } = &self;
        for key in ODD_KEYS {
            self.put(key, key).await?;
            equal(self.get(key).await?, Bytes::from(key))?;
        }
        let listed = s3.list_objects_v2().bucket(bucket).send().await?;
        let mut found: Vec<_> = listed.contents().iter().filter_map(|item| item.key()).collect();
        let mut expected = ODD_KEYS.to_vec();
        expected.sort_unstable();
        found.sort_unstable();
        equal(found, expected.clone())?;
        expected.push("missing");
        let objects =
            expected.iter().map(|key| ObjectIdentifier::builder().key(*key).build()).collect::<Result<_, _>>()?;
        let all = Delete::builder().set_objects(Some(objects)).build()?;
        let answer = s3.delete_objects().bucket(bucket).delete(all).send().await?;
        ensure!(answer.errors().is_empty(), "{answer:?}");
        equal(answer.deleted().len(), expected.len())?;
        equal(s3.list_objects_v2().bucket(bucket).send().await?.key_count(), Some(0))
    }

    async fn customer_keys(self) -> Result<()> {
        let body = content(200_000);
        let key = |byte: u8| (BASE64_STANDARD.encode([byte; 32]), BASE64_STANDARD.encode(Md5::digest([byte; 32])));
        let (secret, digest) = key(b'a');
        let put = self.s3.put_object().bucket(&self.bucket).key("k").body(ByteStream::from(body.clone()));
        let put = put.sse_customer_algorithm("AES256").sse_customer_key(&secret).sse_customer_key_md5(&digest);
        equal(put.send().await?.sse_customer_algorithm(), Some("AES256"))?;
        let get = || self.s3.get_object().bucket(&self.bucket).key("k").range("bytes=100000-");
        let with = |(secret, digest): (String, String)| {
            get().sse_customer_algorithm("AES256").sse_customer_key(secret).sse_customer_key_md5(digest)
        };
        equal(bytes_of(with((secret, digest)).send().await?).await?, body.slice(100_000..))?;
        for outcome in [failure(get().send().await), failure(with(key(b'b')).send().await)] {
            ensure!(matches!(outcome.status(), Some(400 | 403)), "{outcome:?}");
        }
        Ok(())
    }

    async fn errors(self) -> Result<()> {
        let Smoke { s3, bucket, prefix, .. } = &self;
        let none = s3.get_object().bucket(bucket).key("none").send().await.err().context("it is not there")?;
        ensure!(none.as_service_error().is_some_and(|error| error.is_no_such_key()), "{none:?}");
        let none = s3.head_object().bucket(bucket).key("none").send().await.err().context("it is not there")?;
        ensure!(none.as_service_error().is_some_and(|error| error.is_not_found()), "{none:?}");
        let none =
            s3.list_objects_v2().bucket(format!("{prefix}-none")).send().await.err().context("it is not there")?;
        ensure!(none.as_service_error().is_some_and(|error| error.is_no_such_bucket()), "{none:?}");
        let liar = client_for(&self.endpoint, &variable("AWS_ACCESS_KEY_ID")?, "wrong");
        equal(failure(liar.list_buckets().send().await), refused(403, "SignatureDoesNotMatch"))
    }

    async fn forget(&self) -> Result<()> {
        let Smoke { s3, bucket, .. } = self;
        let listed = s3.list_object_versions().bucket(bucket).send().await?;
        let versions = listed.versions().iter().map(|version| (version.key(), version.version_id()));
        let markers = listed.delete_markers().iter().map(|marker| (marker.key(), marker.version_id()));
        for (key, version) in versions.chain(markers) {
            let delete = s3.delete_object().bucket(bucket).set_key(key.map(str::to_owned));
            delete.set_version_id(version.map(str::to_owned)).send().await?;
        }
        s3.delete_bucket().bucket(bucket).send().await?;
        Ok(())
    }

    async fn run<F>(&self, name: &str, case: impl FnOnce(Smoke) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let smoke = Smoke { bucket: format!("{}-{}", self.prefix, name.replace('_', "-")), ..self.clone() };
        smoke.s3.create_bucket().bucket(&smoke.bucket).send().await?;
        // What panics fails alone.
        match tokio::spawn(case(smoke.clone())).await {
            Ok(outcome) => outcome?,
            Err(error) => bail!("{error}"),
        }
        smoke.forget().await
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let endpoint = variable("S3_ENDPOINT")?;
    let s3 = client_for(&endpoint, &variable("AWS_ACCESS_KEY_ID")?, &variable("AWS_SECRET_ACCESS_KEY")?);
    let smoke = Smoke { s3, endpoint, prefix: variable("S3_BUCKETS")?, bucket: String::new() };
    let told = |name: &str, outcome: Result<()>| match outcome {
        Ok(()) => writeln!(std::io::stdout(), "ok {name}"),
        Err(error) => writeln!(std::io::stdout(), "failed {name}: {}", format!("{error:?}").replace('\n', " | ")),
    };
    macro_rules! cases {
        ($($case:ident)*) => { $(told(stringify!($case), smoke.run(stringify!($case), Smoke::$case).await)?;)* };
    }
    cases!(buckets objects transfers ranges listings copies tags versions presigned conditions checksums deletions customer_keys errors);
    Ok(())
}
