//! Multipart uploads.

use gabion_store::ChecksumAlgorithm;

use crate::harness::{Answer, Call, S3, Sign, checksum};

async fn begin(s3: &S3, call: Call) -> String {
    call.send(s3).await.expect(200).element("UploadId").unwrap()
}

async fn part(s3: &S3, upload: &str, number: u16, body: &str) -> Answer {
    s3.put(&format!("/bkt/k?partNumber={number}&uploadId={upload}")).body(body).send(s3).await
}

fn complete(s3: &S3, upload: &str, parts: &[(u16, &str)]) -> Call {
    let parts: String = parts
        .iter()
        .map(|(number, etag)| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", etag.replace('"', "&quot;"))
        })
        .collect();
    let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    s3.post(&format!("/bkt/k?uploadId={upload}")).body(document)
}

#[tokio::test]
async fn parts_become_an_object() {
    let s3 = S3::with_bucket().await;
    let upload = begin(&s3, s3.post("/bkt/k?uploads").header("content-type", "a/b").header("x-amz-meta-m", "1")).await;
    let one = part(&s3, &upload, 1, "0123456789").await.expect(200);
    let two = part(&s3, &upload, 7, "abc").await.expect(200);
    let listed = s3.get(&format!("/bkt/k?uploadId={upload}")).send(&s3).await.expect(200);
    assert_eq!(listed.elements("PartNumber"), ["1", "7"]);
    assert_eq!(listed.elements("Size"), ["10", "3"]);
    let page = s3.get(&format!("/bkt/k?uploadId={upload}&max-parts=1")).send(&s3).await.expect(200);
    assert_eq!(
        (page.element("IsTruncated").as_deref(), page.element("NextPartNumberMarker").as_deref()),
        (Some("true"), Some("1"))
    );
    let page = s3.get(&format!("/bkt/k?uploadId={upload}&part-number-marker=1")).send(&s3).await.expect(200);
    assert_eq!(page.elements("PartNumber"), ["7"]);
    let etags = [(1, one.header("etag").unwrap()), (7, two.header("etag").unwrap().trim_matches('"'))];
    let done = complete(&s3, &upload, &etags).send(&s3).await.expect(200);
    assert_eq!(done.element("Location").as_deref(), Some("http://s3.test:9000/bkt/k"));
    assert!(done.element("ETag").unwrap().ends_with("-2&quot;"));
    let read = s3.get("/bkt/k").send(&s3).await.expect(200);
    assert_eq!(
        (read.text().as_str(), read.header("content-type"), read.header("x-amz-meta-m")),
        ("0123456789abc", Some("a/b"), Some("1"))
    );
    let second = s3.get("/bkt/k?partNumber=7").send(&s3).await.expect(206);
    assert_eq!(second.text(), "abc");
    assert_eq!(second.header("content-range"), Some("bytes 10-12/13"));
    assert_eq!(second.header("x-amz-mp-parts-count"), Some("2"));
    s3.get("/bkt/k?partNumber=2").send(&s3).await.refused(416, "InvalidPartNumber");
    part(&s3, &upload, 1, "x").await.refused(404, "NoSuchUpload");
}

#[tokio::test]
async fn uploads_are_listed_and_aborted() {
    let s3 = S3::with_bucket().await;
    let upload = begin(&s3, s3.post("/bkt/a/b?uploads")).await;
    begin(&s3, s3.post("/bkt/c?uploads")).await;
    let all = s3.get("/bkt?uploads").send(&s3).await.expect(200);
    assert_eq!(all.elements("Key"), ["a/b", "c"]);
    assert_eq!(all.elements("UploadId")[0], upload);
    let rolled = s3.get("/bkt?uploads&delimiter=%2F").send(&s3).await.expect(200);
    assert_eq!(
        (rolled.elements("Key"), rolled.elements("CommonPrefixes")),
        (vec!["c".to_owned()], vec!["<Prefix>a/</Prefix>".to_owned()])
    );
    let page = s3.get("/bkt?uploads&max-uploads=1").send(&s3).await.expect(200);
    assert_eq!(
        (page.element("IsTruncated").as_deref(), page.element("NextKeyMarker").as_deref()),
        (Some("true"), Some("a/b"))
    );
    let rest = s3.get(&format!("/bkt?uploads&key-marker=a%2Fb&upload-id-marker={upload}")).send(&s3).await.expect(200);
    assert_eq!(rest.elements("Key"), ["c"]);
    // The last of a page is told also where none follows, as on AWS; without a key the id of an upload says nothing.
    let last = |page: &Answer| (page.element("NextKeyMarker").unwrap(), page.element("NextUploadIdMarker").unwrap());
    assert_eq!(last(&rest), ("c".to_owned(), rest.element("UploadId").unwrap()));
    let none = s3.get("/bkt?uploads&prefix=none").send(&s3).await.expect(200);
    assert_eq!(last(&none), (String::new(), String::new()));
    let all = s3.get(&format!("/bkt?uploads&upload-id-marker={upload}")).send(&s3).await.expect(200);
    assert_eq!((all.elements("Key").len(), all.element("UploadIdMarker").as_deref()), (2, Some("")));
    s3.get("/bkt?uploads&key-marker=a&upload-id-marker=x").send(&s3).await.refused(400, "InvalidArgument");
    let abort = || s3.delete(&format!("/bkt/a/b?uploadId={upload}"));
    let initiated = |when: &str| abort().header("x-amz-if-match-initiated-time", when);
    initiated("Thu, 01 Dec 1994 16:00:00 GMT").send(&s3).await.refused(412, "PreconditionFailed");
    initiated("yesterday").send(&s3).await.refused(400, "InvalidArgument");
    abort().send(&s3).await.expect(204);
    abort().send(&s3).await.refused(404, "NoSuchUpload");
    initiated("Thu, 01 Dec 1994 16:00:00 GMT").send(&s3).await.expect(204);
    s3.delete("/bkt/a?uploadId=rubbish").send(&s3).await.refused(404, "NoSuchUpload");
    assert_eq!(s3.get("/bkt?uploads").send(&s3).await.expect(200).elements("Key"), ["c"]);
}

#[tokio::test]
async fn completions_are_refused_as_on_aws() {
    let s3 = S3::with_bucket().await;
    let upload = begin(&s3, s3.post("/bkt/k?uploads")).await;
    let one = part(&s3, &upload, 1, "0123456789").await.header("etag").unwrap().to_owned();
    let two = part(&s3, &upload, 2, "abc").await.header("etag").unwrap().to_owned();
    let three = part(&s3, &upload, 3, "abc").await.header("etag").unwrap().to_owned();
    complete(&s3, &upload, &[(2, &two), (1, &one)]).send(&s3).await.refused(400, "InvalidPartOrder");
    complete(&s3, &upload, &[(1, &two)]).send(&s3).await.refused(400, "InvalidPart");
    complete(&s3, &upload, &[(9, &one)]).send(&s3).await.refused(400, "InvalidPart");
    let small = complete(&s3, &upload, &[(2, &two), (3, &three)]).send(&s3).await.refused(400, "EntityTooSmall");
    assert_eq!(small.element("ProposedSize").as_deref(), Some("3"));
    complete(&s3, &upload, &[]).send(&s3).await.refused(400, "MalformedXML");
    complete(&s3, &upload, &[(0, &one)]).send(&s3).await.refused(400, "InvalidArgument");
    complete(&s3, &upload, &[(10_001, &one)]).send(&s3).await.refused(400, "InvalidArgument");
    complete(&s3, &upload, &[(1, &one)]).body("rubbish").send(&s3).await.refused(400, "MalformedXML");
    for size in ["9", "-1", "x"] {
        let call = complete(&s3, &upload, &[(1, &one)]).header("x-amz-mp-object-size", size);
        call.send(&s3).await.refused(400, "InvalidRequest");
    }
    // It was begun without a checksum.
    for kind in ["FULL_OBJECT", "COMPOSITE"] {
        let call = complete(&s3, &upload, &[(1, &one)]).header("x-amz-checksum-type", kind);
        call.send(&s3).await.refused(400, "InvalidRequest");
    }
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    complete(&s3, &upload, &[(1, &one)])
        .header("if-none-match", "*")
        .send(&s3)
        .await
        .refused(412, "PreconditionFailed");
    complete(&s3, &"0".repeat(32), &[(1, &one)]).send(&s3).await.refused(404, "NoSuchUpload");
    complete(&s3, &upload, &[(1, &one), (3, &three)]).header("x-amz-mp-object-size", "13").send(&s3).await.expect(200);
    // The answer may have been lost.
    let again =
        complete(&s3, &upload, &[(1, &one), (3, &three)]).header("if-none-match", "*").send(&s3).await.expect(200);
    let etag = s3.head("/bkt/k").send(&s3).await.expect(200).header("etag").map(|etag| etag.replace('"', "&quot;"));
    assert_eq!(again.element("ETag"), etag);
    complete(&s3, &upload, &[(1, &one)]).send(&s3).await.refused(404, "NoSuchUpload");
    complete(&s3, &upload, &[(1, &one), (3, &three)])
        .header("x-amz-mp-object-size", "9")
        .send(&s3)
        .await
        .refused(404, "NoSuchUpload");
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    complete(&s3, &upload, &[(1, &one), (3, &three)]).send(&s3).await.refused(404, "NoSuchUpload");
    for number in ["0", "10001", "x", ""] {
        let call = || s3.put(&format!("/bkt/k?partNumber={number}&uploadId={}", "0".repeat(32)));
        call().send(&s3).await.refused(400, "InvalidArgument");
        call().header("x-amz-copy-source", "none/k").send(&s3).await.refused(400, "InvalidArgument");
    }
}

#[tokio::test]
async fn ten_thousand_parts_fit_a_completion() {
    let s3 = S3::with_bucket().await;
    let upload = begin(&s3, s3.post("/bkt/k?uploads")).await;
    part(&s3, &upload, 1, "0123456789").await.expect(200);
    let sha = checksum(ChecksumAlgorithm::Sha256, b"x");
    let parts: String = (1..=10_000)
        .map(|number| {
            format!(
                "  <Part>\n    <ChecksumSHA256>{sha}</ChecksumSHA256>\n    <ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag>\n    \
                 <PartNumber>{number}</PartNumber>\n  </Part>\n"
            )
        })
        .collect();
    let document = format!("<CompleteMultipartUpload>\n{parts}</CompleteMultipartUpload>");
    let call = s3.post(&format!("/bkt/k?uploadId={upload}"));
    call.body(document).send(&s3).await.refused(400, "InvalidPart");
}

#[tokio::test]
async fn checksums_of_uploads_are_composite_or_full() {
    let s3 = S3::with_bucket().await;
    for (algorithm, kind, expected) in [
        ("CRC32", None, Some("COMPOSITE")),
        ("CRC32", Some("FULL_OBJECT"), Some("FULL_OBJECT")),
        ("CRC64NVME", None, Some("FULL_OBJECT")),
        ("SHA256", None, Some("COMPOSITE")),
        ("SHA256", Some("FULL_OBJECT"), None),
        ("CRC64NVME", Some("COMPOSITE"), None),
        ("SHA512", None, Some("COMPOSITE")),
        ("MD5", None, Some("COMPOSITE")),
        ("XXHASH3", Some("COMPOSITE"), Some("COMPOSITE")),
        ("XXHASH128", Some("FULL_OBJECT"), None),
    ] {
        let mut call = s3.post("/bkt/k?uploads").header("x-amz-checksum-algorithm", algorithm);
        if let Some(kind) = kind {
            call = call.header("x-amz-checksum-type", kind);
        }
        let answer = call.send(&s3).await;
        match expected {
            None => drop(answer.refused(400, "InvalidRequest")),
            Some(expected) => {
                let answer = answer.expect(200);
                assert_eq!(answer.header("x-amz-checksum-algorithm"), Some(algorithm));
                assert_eq!(answer.header("x-amz-checksum-type"), Some(expected));
            }
        }
    }
    s3.post("/bkt/k?uploads").header("x-amz-checksum-type", "COMPOSITE").send(&s3).await.refused(400, "InvalidRequest");
}

#[tokio::test]
async fn a_composite_checksum_is_made_of_the_parts() {
    use ChecksumAlgorithm::{Crc32, Md5, Sha512, XxHash3, XxHash64, XxHash128};
    let s3 = S3::with_bucket().await;
    for algorithm in [Crc32, Sha512, Md5, XxHash64, XxHash3, XxHash128] {
        let name = algorithm.as_str();
        let header: &'static str = format!("x-amz-checksum-{}", name.to_lowercase()).leak();
        let upload = begin(&s3, s3.post("/bkt/k?uploads").header("x-amz-checksum-algorithm", name)).await;
        let bodies = ["0123456789", "abc"];
        let mut listed = String::new();
        let mut raw = Vec::new();
        for (number, body) in (1..).zip(bodies) {
            let sum = checksum(algorithm, body.as_bytes());
            raw.extend(gabion_store::Checksum::from_base64(algorithm, &sum).unwrap().as_bytes());
            let call = s3.put(&format!("/bkt/k?partNumber={number}&uploadId={upload}")).body(body);
            let stored = call.header(header, &*sum).send(&s3).await.expect(200);
            assert_eq!(stored.header(header), Some(sum.as_str()));
            let etag = stored.header("etag").unwrap().replace('"', "&quot;");
            listed.push_str(&format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag><Checksum{name}>{sum}</Checksum{name}></Part>"
            ));
        }
        let document = format!("<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>");
        let whole = format!("{}-2", checksum(algorithm, &raw));
        let wrong = format!("{}-2", checksum(algorithm, b"other"));
        let call = s3.post(&format!("/bkt/k?uploadId={upload}")).body(document);
        call.clone().header(header, &*wrong).send(&s3).await.refused(400, "BadDigest");
        let done = call.header(header, &*whole).header("x-amz-checksum-type", "COMPOSITE").send(&s3).await;
        let element = format!("Checksum{name}");
        assert_eq!(done.expect(200).element(&element).as_deref(), Some(whole.as_str()));
        let head = s3.head("/bkt/k").header("x-amz-checksum-mode", "ENABLED").send(&s3).await.expect(200);
        assert_eq!(head.header(header), Some(whole.as_str()));
        assert_eq!(head.header("x-amz-checksum-type"), Some("COMPOSITE"));
        let part = s3.head("/bkt/k?partNumber=2").header("x-amz-checksum-mode", "ENABLED").send(&s3).await.expect(206);
        assert_eq!(part.header(header), Some(checksum(algorithm, b"abc").as_str()));
        let attributes =
            s3.get("/bkt/k?attributes").header("x-amz-object-attributes", "Checksum,ObjectParts").send(&s3).await;
        assert_eq!(attributes.element("PartsCount").as_deref(), Some("2"));
        assert_eq!(attributes.elements("PartNumber"), ["1", "2"]);
        assert_eq!(attributes.elements(&element).len(), 3);
        let copy = s3.put("/bkt/copy").header("x-amz-copy-source", "/bkt/k").header("x-amz-checksum-algorithm", name);
        let copied = copy.send(&s3).await.expect(200);
        assert_eq!(copied.element(&element), Some(checksum(algorithm, b"0123456789abc")));
    }
}

#[tokio::test]
async fn parts_are_copied() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/source").body("0123456789abcdef").send(&s3).await.expect(200);
    let upload = begin(&s3, s3.post("/bkt/k?uploads")).await;
    let copy = |number: u16| {
        s3.put(&format!("/bkt/k?partNumber={number}&uploadId={upload}")).header("x-amz-copy-source", "/bkt/source")
    };
    let one = copy(1).send(&s3).await.expect(200).element("ETag").unwrap();
    let two =
        copy(2).header("x-amz-copy-source-range", "bytes=2-4").send(&s3).await.expect(200).element("ETag").unwrap();
    for bad in ["bytes=2-", "2-4", "bytes=4-2"] {
        copy(3).header("x-amz-copy-source-range", bad).send(&s3).await.refused(400, "InvalidArgument");
    }
    for (beyond, code) in
        [("bytes=2-99", "InvalidArgument"), ("bytes=0-16", "InvalidArgument"), ("bytes=16-20", "InvalidRequest")]
    {
        copy(3).header("x-amz-copy-source-range", beyond).send(&s3).await.refused(400, code);
    }
    copy(3).header("x-amz-copy-source-if-match", "\"x\"").send(&s3).await.refused(412, "PreconditionFailed");
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{one}</ETag></Part><Part><PartNumber>2</PartNumber>\
         <ETag>{two}</ETag></Part></CompleteMultipartUpload>"
    );
    s3.post(&format!("/bkt/k?uploadId={upload}")).body(document).send(&s3).await.expect(200);
    assert_eq!(s3.get("/bkt/k").send(&s3).await.expect(200).text(), "0123456789abcdef234");
}

/// What is posted is no form, whatever its type says.
#[tokio::test]
async fn objects_of_the_type_of_forms_are_uploaded_in_parts() {
    let s3 = S3::with_bucket().await;
    let form = ("content-type", "multipart/form-data; boundary=x");
    let begin = s3.post("/bkt/k?uploads").header(form.0, form.1).send(&s3).await.expect(200);
    let upload = begin.element("UploadId").unwrap();
    let part = s3.put(&format!("/bkt/k?partNumber=1&uploadId={upload}")).body("part").send(&s3).await.expect(200);
    let part = part.header("etag").unwrap().to_owned();
    complete(&s3, &upload, &[(1, &part)]).header(form.0, form.1).send(&s3).await.expect(200);
    assert_eq!(s3.get("/bkt/k").send(&s3).await.expect(200).header("content-type"), Some(form.1));
    let document = "<Delete><Object><Key>k</Key></Object></Delete>";
    s3.post("/bkt?delete").body(document).md5().header(form.0, form.1).send(&s3).await.expect(200);
    s3.head("/bkt/k").send(&s3).await.expect(404);
    // Nobody does it unsigned, or with a wrong signature.
    let begin = || s3.post("/bkt/k?uploads").header(form.0, form.1);
    begin().sign(Sign::Not).send(&s3).await.refused(403, "AccessDenied");
    begin().change(|call| call.secret_key = "wrong").send(&s3).await.refused(403, "SignatureDoesNotMatch");
    begin().sign(Sign::Query(60)).send(&s3).await.expect(200);
}
