//! Tags of buckets, and who pays.

use crate::harness::S3;

fn tags(count: usize) -> String {
    let tags: String = (0..count).map(|i| format!("<Tag><Key>k{i}</Key><Value>v</Value></Tag>")).collect();
    format!("<Tagging><TagSet>{tags}</TagSet></Tagging>")
}

#[tokio::test]
async fn buckets_have_tags() {
    let s3 = S3::with_bucket().await;
    s3.get("/bkt?tagging").send(&s3).await.refused(404, "NoSuchTagSet");
    s3.put("/bkt?tagging").body(tags(50)).md5().send(&s3).await.expect(204);
    assert_eq!(s3.get("/bkt?tagging").send(&s3).await.expect(200).elements("Key").len(), 50);
    s3.put("/bkt?tagging").body(tags(51)).send(&s3).await.refused(400, "BadRequest");
    let twice = "<Tagging><TagSet><Tag><Key>a</Key><Value/></Tag><Tag><Key>a</Key><Value/></Tag></TagSet></Tagging>";
    s3.put("/bkt?tagging").body(twice).send(&s3).await.refused(400, "InvalidTag");
    s3.put("/bkt?tagging").body("<Tagging/>").send(&s3).await.refused(400, "MalformedXML");
    s3.put("/bkt?tagging").body(tags(1)).send(&s3).await.expect(204);
    assert_eq!(s3.get("/bkt?tagging").send(&s3).await.elements("Key"), ["k0"]);
    s3.delete("/bkt?tagging").send(&s3).await.expect(204);
    s3.get("/bkt?tagging").send(&s3).await.refused(404, "NoSuchTagSet");
    s3.get("/none?tagging").send(&s3).await.refused(404, "NoSuchBucket");
    // They end with the bucket.
    s3.put("/bkt?tagging").body(tags(1)).send(&s3).await.expect(204);
    s3.delete("/bkt").send(&s3).await.expect(204);
    s3.put("/bkt").send(&s3).await.expect(200);
    s3.get("/bkt?tagging").send(&s3).await.refused(404, "NoSuchTagSet");
}

#[tokio::test]
async fn buckets_are_created_with_tags() {
    let s3 = S3::new().await;
    let document = |tags: &str| format!("<CreateBucketConfiguration><Tags>{tags}</Tags></CreateBucketConfiguration>");
    let tag = "<Tag><Key>team</Key><Value>a</Value></Tag>";
    s3.put("/bad").body(document("<Tag><Key>aws:x</Key><Value/></Tag>")).send(&s3).await.refused(400, "InvalidTag");
    s3.head("/bad").send(&s3).await.expect(404);
    let created = s3.put("/bkt").body(document(tag)).send(&s3).await.expect(200);
    assert_eq!(created.header("location"), Some("/bkt"));
    assert_eq!(s3.get("/bkt?tagging").send(&s3).await.expect(200).elements("Key"), ["team"]);
}

#[tokio::test]
async fn who_pays_can_be_said() {
    let s3 = S3::with_bucket().await;
    let payer =
        |payer: &str| format!("<RequestPaymentConfiguration><Payer>{payer}</Payer></RequestPaymentConfiguration>");
    assert_eq!(s3.get("/bkt?requestPayment").send(&s3).await.expect(200).elements("Payer"), ["BucketOwner"]);
    s3.put("/bkt?requestPayment").body(payer("Requester")).send(&s3).await.expect(200);
    assert_eq!(s3.get("/bkt?requestPayment").send(&s3).await.elements("Payer"), ["Requester"]);
    s3.put("/bkt?requestPayment").body(payer("Nobody")).send(&s3).await.refused(400, "MalformedXML");
    s3.delete("/bkt?requestPayment").send(&s3).await.refused(405, "MethodNotAllowed");
    // The owner needs not say anything, and is not charged for what it says.
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let read = s3.get("/bkt/k").header("x-amz-request-payer", "requester").send(&s3).await.expect(200);
    assert_eq!(read.header("x-amz-request-charged"), None);
    s3.put("/bkt?requestPayment").body(payer("BucketOwner")).send(&s3).await.expect(200);
    assert_eq!(s3.get("/bkt?requestPayment").send(&s3).await.elements("Payer"), ["BucketOwner"]);
}

#[tokio::test]
async fn what_no_bucket_has_is_not_there() {
    let s3 = S3::with_bucket().await;
    s3.get("/bkt?replication").send(&s3).await.refused(404, "ReplicationConfigurationNotFoundError");
    for query in ["analytics", "intelligent-tiering", "metrics"] {
        let listed = s3.get(&format!("/bkt?{query}")).send(&s3).await.expect(200);
        assert_eq!(listed.elements("IsTruncated"), ["false"], "{query}");
        s3.get(&format!("/bkt?{query}&id=one")).send(&s3).await.refused(404, "NoSuchConfiguration");
    }
    assert_eq!(s3.get("/bkt?accelerate").send(&s3).await.expect(200).elements("Status"), [""; 0]);
    assert_eq!(s3.get("/bkt?abac").send(&s3).await.expect(200).elements("Status"), ["Disabled"]);
    for query in ["replication", "accelerate", "abac", "metrics"] {
        s3.get(&format!("/none?{query}")).send(&s3).await.refused(404, "NoSuchBucket");
    }
}

#[tokio::test]
async fn documents_must_be_there() {
    let s3 = S3::with_bucket().await;
    for query in [
        "cors",
        "encryption",
        "inventory&id=x",
        "lifecycle",
        "logging",
        "notification",
        "object-lock",
        "ownershipControls",
        "publicAccessBlock",
        "requestPayment",
        "tagging",
        "versioning",
        "website",
    ] {
        s3.put(&format!("/bkt?{query}")).send(&s3).await.refused(400, "MissingRequestBodyError");
    }
    s3.put("/bkt?acl").send(&s3).await.refused(400, "MissingSecurityHeader");
}

#[tokio::test]
async fn objects_send_elsewhere() {
    let s3 = S3::with_bucket().await;
    let put = |place: &str| s3.put("/bkt/k").body("x").header("x-amz-website-redirect-location", place);
    put("/other").send(&s3).await.expect(200);
    let shown = |target: &'static str| {
        let s3 = &s3;
        async move {
            s3.head(target).send(s3).await.expect(200).header("x-amz-website-redirect-location").map(str::to_owned)
        }
    };
    assert_eq!(shown("/bkt/k").await.as_deref(), Some("/other"));
    s3.put("/bkt/copy").header("x-amz-copy-source", "/bkt/k").send(&s3).await.expect(200);
    assert_eq!(shown("/bkt/copy").await, None);
    put("other").send(&s3).await.refused(400, "InvalidRedirectLocation");
    put(&format!("/{}", "x".repeat(2048))).send(&s3).await.refused(400, "InvalidRedirectLocation");
}
