//! What every answer carries, and what is not served.

use gabion_server::credentials::Account;

use crate::harness::{S3, Sign};

#[tokio::test]
async fn every_answer_has_its_request_id() {
    let s3 = S3::with_bucket().await;
    let calls = [
        s3.get("/bkt"),
        s3.get("/bkt/none"),
        s3.head("/bkt/none"),
        s3.get("/bkt").sign(Sign::Not),
        s3.get("/bkt").change(|call| call.secret_key = "wrong"),
        s3.get("/B"),
        s3.put("/bkt?policy").body("{}"),
        s3.get("/bkt/%ff"),
        s3.call("OPTIONS", "/bkt/k"),
    ];
    let mut ids = std::collections::BTreeSet::new();
    for call in calls {
        let answer = call.send(&s3).await;
        let id = answer.header("x-amz-request-id").unwrap().to_owned();
        assert!(
            id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte)),
            "{id}"
        );
        assert_eq!(answer.header("server"), Some("Gabion"));
        if answer.status >= 400 && !answer.body.is_empty() {
            assert_eq!(answer.element("RequestId"), Some(id.clone()), "{}", answer.text());
            assert!(answer.element("Resource").unwrap().starts_with('/'));
            assert_eq!(answer.header("content-type"), Some("application/xml"));
        }
        assert!(ids.insert(id));
    }
}

#[tokio::test]
async fn what_is_not_served_is_not_implemented() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    for (method, target) in [
        ("PUT", "/bkt/k?encryption"),
        ("PUT", "/bkt?replication"),
        ("PUT", "/bkt?accelerate"),
        ("PUT", "/bkt?metrics&id=x"),
        ("DELETE", "/bkt?replication"),
        ("POST", "/bkt/k?select&select-type=2"),
        ("GET", "/bkt/k?torrent"),
        ("GET", "/bkt?session"),
    ] {
        let answer = s3.call(method, target).send(&s3).await;
        assert_eq!(answer.status, 501, "{method} {target}: {}", answer.text());
    }
    for (method, target) in [("POST", "/"), ("POST", "/bkt/k"), ("PATCH", "/bkt/k"), ("DELETE", "/")] {
        s3.call(method, target).send(&s3).await.refused(405, "MethodNotAllowed");
    }
    assert_eq!(s3.get("/bkt/k").send(&s3).await.expect(200).text(), "x");
}

#[tokio::test]
async fn what_is_no_request_is_told_to_everybody() {
    let s3 = S3::with_bucket().await;
    let table: [(&str, &str, &str, u16, &str); 14] = [
        ("POST", "/", "", 405, "MethodNotAllowed"),
        ("POST", "/bkt/k", "", 405, "MethodNotAllowed"),
        ("DELETE", "/bkt?location", "", 405, "MethodNotAllowed"),
        ("PUT", "/bkt?delete", "", 405, "MethodNotAllowed"),
        ("PUT", "/bkt/k?uploadId=x", "", 405, "MethodNotAllowed"),
        ("PUT", "/bkt/k?partNumber=1", "", 400, "InvalidArgument"),
        ("DELETE", "/bkt/k?uploads", "", 405, "MethodNotAllowed"),
        ("PUT", "/bkt/k?uploads", "", 405, "MethodNotAllowed"),
        ("DELETE", "/bkt/k?attributes", "", 405, "MethodNotAllowed"),
        ("GET", "/bkt/k?uploads", "", 400, "InvalidRequest"),
        ("GET", "/bkt/k?versions", "", 400, "InvalidRequest"),
        ("GET", "/bkt/k", "bkt/other", 400, "InvalidArgument"),
        ("POST", "/bkt", "", 412, "PreconditionFailed"),
        // But not what there is.
        ("PUT", "/bkt?replication", "", 403, "AccessDenied"),
    ];
    for sign in [Sign::Not, Sign::Header] {
        for (method, target, source, status, code) in table {
            let call = s3.call(method, target).sign(sign);
            let call = if source.is_empty() { call } else { call.header("x-amz-copy-source", source) };
            let answer = call.send(&s3).await;
            match (sign, code) {
                (Sign::Header, "AccessDenied") => answer.refused(501, "NotImplemented"),
                _ => answer.refused(status, code),
            };
        }
    }
    let answer = s3.call("PATCH", "/bkt?acl").send(&s3).await.refused(405, "MethodNotAllowed");
    assert_eq!(
        (answer.element("Method").as_deref(), answer.element("ResourceType").as_deref()),
        (Some("PATCH"), Some("ACL"))
    );
    s3.head("/bkt").send(&s3).await.expect(200);
}

#[tokio::test]
async fn headers_that_are_not_served_are_not_ignored() {
    let s3 = S3::with_bucket().await;
    let put = |name: &str, value: &str| s3.put("/bkt/k").body("x").header(name, value).send(&s3);
    put("x-amz-acl", "private").await.expect(200);
    put("x-amz-acl", "bucket-owner-full-control").await.expect(200);
    put("x-amz-storage-class", "STANDARD").await.expect(200);
    put("x-amz-server-side-encryption", "AES256").await.refused(501, "NotImplemented");
    put("x-amz-mfa", "1 2").await.refused(501, "NotImplemented");
    put("x-amz-website-redirect-location", "x").await.refused(400, "InvalidRedirectLocation");
    put("x-amz-storage-class", "GLACIER").await.refused(400, "InvalidStorageClass");
    put("x-amz-expected-bucket-owner", &Account::first("").id).await.expect(200);
    put("x-amz-expected-bucket-owner", "123456789012").await.refused(403, "AccessDenied");
    s3.put("/other").header("x-amz-bucket-object-lock-enabled", "x").send(&s3).await.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn a_full_disk_takes_no_writes_but_reads_and_deletes() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    s3.disk.full_at(s3.disk.used_bytes());
    let mut refused = None;
    // What was preallocated can still be filled.
    for number in 0..40 {
        let answer = s3.put(&format!("/bkt/n{number}")).body(vec![1; 900_000]).send(&s3).await;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    refused.unwrap().refused(507, "InsufficientStorage");
    assert_eq!(s3.get("/bkt/k").send(&s3).await.expect(200).text(), "x");
    s3.delete("/bkt/k").send(&s3).await.expect(204);
    s3.get("/bkt/k").send(&s3).await.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn long_keys_are_refused() {
    let s3 = S3::with_bucket().await;
    s3.put(&format!("/bkt/{}", "k".repeat(1024))).body("x").send(&s3).await.expect(200);
    s3.put(&format!("/bkt/{}", "k".repeat(1025))).body("x").send(&s3).await.refused(400, "KeyTooLongError");
}

/// What SDKs show of an error beside its code and message.
#[tokio::test]
async fn error_documents_say_what_they_are_about() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("hello").send(&s3).await.expect(200);
    s3.put("/versions").send(&s3).await.expect(200);
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    s3.put("/versions?versioning").body(enabled).send(&s3).await.expect(200);
    s3.put("/versions/k").body("x").send(&s3).await.expect(200);
    let marker = s3.delete("/versions/k").send(&s3).await.expect(204).header("x-amz-version-id").unwrap().to_owned();
    let upload = "00000000000000000000000000000000";
    let copy = |source: &str| s3.put("/bkt/copy").header("x-amz-copy-source", source);
    let table = [
        (s3.get("/bkt/none"), "NoSuchKey", "<Key>none</Key>"),
        (s3.get("/none/k"), "NoSuchBucket", "<BucketName>none</BucketName>"),
        (copy("/bkt/missing"), "NoSuchKey", "<Key>missing</Key>"),
        (copy("/missing/k"), "NoSuchBucket", "<BucketName>missing</BucketName>"),
        (s3.delete("/bkt"), "BucketNotEmpty", "is not empty</Message><BucketName>bkt</BucketName>"),
        (
            s3.delete("/versions"),
            "BucketNotEmpty",
            "<Message>The bucket you tried to delete is not empty. You must delete all versions in the bucket.</Message>",
        ),
        (
            s3.get(&format!("/versions/k?versionId={marker}")),
            "MethodNotAllowed",
            "<ResourceType>DeleteMarker</ResourceType><Method>GET</Method>",
        ),
        (s3.post("/bkt/k"), "MethodNotAllowed", "<Method>POST</Method><ResourceType>OBJECT</ResourceType>"),
        (
            s3.get("/bkt/k").header("range", "bytes=9-"),
            "InvalidRange",
            "<ActualObjectSize>5</ActualObjectSize><RangeRequested>bytes=9-</RangeRequested>",
        ),
        (s3.get("/bkt/k").header("if-match", "\"x\""), "PreconditionFailed", "<Condition>If-Match</Condition>"),
        (s3.delete(&format!("/bkt/k?uploadId={upload}")), "NoSuchUpload", "<UploadId>0000"),
        (s3.get("/bkt?policy"), "NoSuchBucketPolicy", "<BucketName>bkt</BucketName>"),
        (s3.get("/bkt?lifecycle"), "NoSuchLifecycleConfiguration", "<BucketName>bkt</BucketName>"),
        (s3.get("/bkt?max-keys=x"), "InvalidArgument", "<ArgumentName>max-keys</ArgumentName><ArgumentValue>x"),
        (s3.get("/B/k"), "InvalidBucketName", "<BucketName>B</BucketName>"),
    ];
    for (call, code, expected) in table {
        let answer = call.send(&s3).await;
        assert_eq!(answer.element("Code").as_deref(), Some(code), "{}", answer.text());
        assert!(answer.text().contains(expected), "{expected}: {}", answer.text());
    }
}

/// Word for word, as scripts compare them.
#[tokio::test]
async fn messages_are_those_of_aws() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let part = "One or more of the specified parts could not be found.  The part may not have been uploaded, or the \
        specified entity tag may not match the part's entity tag.";
    let upload = s3.post("/bkt/u?uploads").send(&s3).await.expect(200).element("UploadId").unwrap();
    let complete =
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>";
    let table = [
        (s3.get("/none"), "The specified bucket does not exist"),
        (s3.get("/bkt/none"), "The specified key does not exist."),
        (
            s3.put("/bkt?versioning").body("<x"),
            "The XML you provided was not well-formed or did not validate against our published schema",
        ),
        (s3.delete("/bkt"), "The bucket you tried to delete is not empty"),
        (s3.get("/bkt").sign(Sign::Not), "Access Denied"),
        (s3.get("/bkt/k").header("if-match", "\"x\""), "At least one of the pre-conditions you specified did not hold"),
        (s3.get("/bkt/k").header("range", "bytes=9-"), "The requested range is not satisfiable"),
        (
            s3.put("/bkt/k").header("x-amz-meta-a", "v".repeat(3000)),
            "Your metadata headers exceed the maximum allowed metadata size",
        ),
        (s3.put(&format!("/bkt/{}", "k".repeat(1025))), "Your key is too long"),
        (
            s3.delete("/bkt/k?uploadId=x"),
            "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.",
        ),
        (s3.post(&format!("/bkt/u?uploadId={upload}")).body(complete), part),
    ];
    for (call, expected) in table {
        let answer = call.send(&s3).await;
        let message = answer.element("Message").unwrap_or_default().replace("&apos;", "'").replace("&#39;", "'");
        assert_eq!(message, expected, "{}", answer.text());
    }
    // To nobody what is not the same for all buckets.
    s3.post("/bkt/k").sign(Sign::Not).send(&s3).await.refused(405, "MethodNotAllowed");
    s3.post("/none").sign(Sign::Not).body("x").send(&s3).await.refused(412, "PreconditionFailed");
    s3.get("/bkt/k?torrent").sign(Sign::Not).send(&s3).await.refused(403, "AccessDenied");
}
