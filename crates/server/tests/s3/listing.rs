//! Listings of objects.

use crate::harness::S3;

async fn filled() -> S3 {
    let s3 = S3::with_bucket().await;
    for key in ["a", "b/1", "b/2", "c%20d%2B", "e/f/g", "z"] {
        s3.put(&format!("/bkt/{key}")).body("xy").send(&s3).await.expect(200);
    }
    s3
}

#[tokio::test]
async fn version_2_lists_in_pages() {
    let s3 = filled().await;
    let all = s3.get("/bkt?list-type=2").send(&s3).await.expect(200);
    assert_eq!(all.elements("Key"), ["a", "b/1", "b/2", "c d+", "e/f/g", "z"]);
    assert_eq!(all.element("KeyCount").as_deref(), Some("6"));
    assert_eq!(all.element("MaxKeys").as_deref(), Some("1000"));
    assert_eq!(all.element("IsTruncated").as_deref(), Some("false"));
    assert_eq!(all.element("Size").as_deref(), Some("2"));
    assert_eq!(all.element("StorageClass").as_deref(), Some("STANDARD"));
    assert_eq!(all.element("ChecksumAlgorithm").as_deref(), Some("CRC64NVME"));
    assert_eq!(all.element("Owner"), None);
    let owner = s3.get("/bkt?list-type=2&fetch-owner=true").send(&s3).await.expect(200);
    assert_eq!(owner.elements("DisplayName").len(), 6);
    let mut keys = Vec::new();
    let mut target = "/bkt?list-type=2&max-keys=4".to_owned();
    for truncated in ["true", "false"] {
        let page = s3.get(&target).send(&s3).await.expect(200);
        assert_eq!(page.element("IsTruncated").as_deref(), Some(truncated));
        keys.extend(page.elements("Key"));
        if let Some(token) = page.element("NextContinuationToken") {
            target = format!("/bkt?list-type=2&max-keys=4&continuation-token={token}");
        }
    }
    assert_eq!(keys, all.elements("Key"));
}

#[tokio::test]
async fn common_prefixes_are_rolled_up() {
    let s3 = filled().await;
    let page = s3.get("/bkt?list-type=2&delimiter=%2F").send(&s3).await.expect(200);
    assert_eq!(page.elements("Key"), ["a", "c d+", "z"]);
    assert_eq!(page.elements("CommonPrefixes"), ["<Prefix>b/</Prefix>", "<Prefix>e/</Prefix>"]);
    assert_eq!(page.element("KeyCount").as_deref(), Some("5"));
    let page = s3.get("/bkt?list-type=2&delimiter=%2F&prefix=b%2F&start-after=b%2F1").send(&s3).await.expect(200);
    assert_eq!(page.elements("Key"), ["b/2"]);
    assert_eq!(page.element("StartAfter").as_deref(), Some("b/1"));
    let page = s3.get("/bkt?list-type=2&delimiter=%2F&max-keys=2").send(&s3).await.expect(200);
    let token = page.element("NextContinuationToken").unwrap();
    let page = s3.get(&format!("/bkt?list-type=2&delimiter=%2F&continuation-token={token}")).send(&s3).await;
    assert_eq!(page.elements("Key"), ["c d+", "z"]);
}

#[tokio::test]
async fn version_1_lists_by_marker() {
    let s3 = filled().await;
    let page = s3.get("/bkt?max-keys=2").send(&s3).await.expect(200);
    assert_eq!(page.elements("Key"), ["a", "b/1"]);
    assert_eq!((page.element("IsTruncated").as_deref(), page.element("NextMarker")), (Some("true"), None));
    assert_eq!(page.elements("DisplayName").len(), 2);
    let page = s3.get("/bkt?marker=b%2F1").send(&s3).await.expect(200);
    assert_eq!(page.elements("Key"), ["b/2", "c d+", "e/f/g", "z"]);
    assert_eq!(page.element("Marker").as_deref(), Some("b/1"));
    let page = s3.get("/bkt?delimiter=%2F&max-keys=2").send(&s3).await.expect(200);
    assert_eq!(page.element("NextMarker").as_deref(), Some("b/"));
    let page = s3.get("/bkt?delimiter=%2F&marker=b%2F").send(&s3).await.expect(200);
    assert_eq!(page.elements("Key"), ["c d+", "z"]);
}

#[tokio::test]
async fn names_are_encoded_on_demand() {
    let s3 = filled().await;
    let page = s3.get("/bkt?list-type=2&encoding-type=url&prefix=c%20").send(&s3).await.expect(200);
    assert_eq!(page.elements("Key"), ["c%20d%2B"]);
    assert_eq!(page.element("Prefix").as_deref(), Some("c%20"));
    assert_eq!(page.element("EncodingType").as_deref(), Some("url"));
    for other in [
        "/bkt?encoding-type=rot13",
        "/bkt?encoding-type=",
        "/bkt?uploads&encoding-type=",
        "/bkt?versions&encoding-type",
    ] {
        s3.get(other).send(&s3).await.refused(400, "InvalidArgument");
    }
}

/// s3s's own writer would answer 500 here, for every page that holds such a key.
#[tokio::test]
async fn keys_with_control_characters_are_listed() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/a%01b%0D").body("x").send(&s3).await.expect(200);
    assert_eq!(s3.get("/bkt").send(&s3).await.expect(200).elements("Key"), ["a&#x1;b&#xd;"]);
    assert_eq!(s3.get("/bkt?encoding-type=url").send(&s3).await.expect(200).elements("Key"), ["a%01b%0D"]);
}

#[tokio::test]
async fn limits_are_clamped_and_checked() {
    let s3 = filled().await;
    let page = s3.get("/bkt?list-type=2&max-keys=5000").send(&s3).await.expect(200);
    assert_eq!(page.element("MaxKeys").as_deref(), Some("1000"));
    let page = s3.get("/bkt?list-type=2&max-keys=0").send(&s3).await.expect(200);
    assert_eq!(
        (page.element("KeyCount").as_deref(), page.element("IsTruncated").as_deref()),
        (Some("0"), Some("false"))
    );
    for bad in ["max-keys=-1", "max-keys=x", "max-keys=2147483648", "continuation-token=x"] {
        s3.get(&format!("/bkt?list-type=2&{bad}")).send(&s3).await.refused(400, "InvalidArgument");
    }
    let first = s3.get("/bkt?list-type=2&continuation-token=").send(&s3).await.expect(200);
    assert_eq!(first.element("ContinuationToken").as_deref(), Some(""));
    s3.get("/none?list-type=2").send(&s3).await.refused(404, "NoSuchBucket");
    s3.get("/none?list-type=2&max-keys=0").send(&s3).await.refused(404, "NoSuchBucket");
}
