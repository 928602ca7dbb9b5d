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
