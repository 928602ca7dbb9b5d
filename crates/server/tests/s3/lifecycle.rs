//! Lifecycle rules: kept, announced, and done.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gabion_platform::{Clock, SystemClock};
use gabion_server::lifecycle::{LifecycleFigures, LifecycleOptions};
use gabion_store::ConfigScope;
use tokio_util::sync::CancellationToken;

use crate::harness::S3;

fn rule(id: &str, filter: &str, action: &str) -> String {
    format!("<Rule><ID>{id}</ID><Status>Enabled</Status><Filter>{filter}</Filter>{action}</Rule>")
}

async fn put_rules(s3: &S3, rules: &[String]) {
    let document = format!("<LifecycleConfiguration>{}</LifecycleConfiguration>", rules.concat());
    s3.put("/bkt?lifecycle").body(document).md5().send(s3).await.expect(200);
}

const DAY: &str = "<Expiration><Days>1</Days></Expiration>";
const LONG: &str = "<Expiration><Days>1000000</Days></Expiration>";

/// Lets a moment pass, and holds the rules against all that is there, with days of a millisecond.
async fn days_pass(s3: &S3) {
    tokio::time::sleep(Duration::from_millis(3)).await;
    let options = LifecycleOptions { debug_day_ms: Some(1), deletions_per_second: 1_000_000 };
    s3.service.apply_lifecycle(options, Arc::new(LifecycleFigures::default())).await.unwrap();
}

async fn keys(s3: &S3) -> Vec<String> {
    s3.get("/bkt?list-type=2").send(s3).await.expect(200).elements("Key")
}

#[tokio::test]
async fn rules_are_kept_shown_and_deleted() {
    let s3 = S3::with_bucket().await;
    s3.get("/bkt?lifecycle").send(&s3).await.refused(404, "NoSuchLifecycleConfiguration");
    let document = format!(
        "<LifecycleConfiguration><Rule><Status>Enabled</Status><Prefix>a</Prefix>{DAY}</Rule></LifecycleConfiguration>"
    );
    s3.put("/bkt?lifecycle").body(document).send(&s3).await.expect(200);
    let shown = s3.get("/bkt?lifecycle").send(&s3).await.expect(200);
    assert_eq!((shown.elements("Prefix"), shown.elements("Days")), (vec!["a".to_owned()], vec!["1".to_owned()]));
    assert_eq!(shown.elements("ID")[0].len(), 43, "a rule without an id gets one");
    s3.put("/bkt?lifecycle").body("<LifecycleConfiguration/>").send(&s3).await.refused(400, "MalformedXML");
    assert_eq!(s3.get("/bkt?lifecycle").send(&s3).await.text(), shown.text());
    s3.delete("/bkt?lifecycle").send(&s3).await.expect(204);
    s3.get("/bkt?lifecycle").send(&s3).await.refused(404, "NoSuchLifecycleConfiguration");
}

#[tokio::test]
async fn the_smallest_object_that_would_move_is_told() {
    let s3 = S3::with_bucket().await;
    let name = "x-amz-transition-default-minimum-object-size";
    let document = format!("<LifecycleConfiguration>{}</LifecycleConfiguration>", rule("a", "", DAY));
    let put = |size: &str| s3.put("/bkt?lifecycle").body(document.clone()).header(name, size).send(&s3);
    put("64K").await.refused(400, "InvalidArgument");
    s3.get("/bkt?lifecycle").send(&s3).await.refused(404, "NoSuchLifecycleConfiguration");
    for (size, expected) in [
        ("", "all_storage_classes_128K"),
        ("varies_by_storage_class", "varies_by_storage_class"),
        ("all_storage_classes_128K", "all_storage_classes_128K"),
        ("varies_by_storage_class", "varies_by_storage_class"),
        ("", "all_storage_classes_128K"),
    ] {
        assert_eq!(put(size).await.expect(200).header(name), Some(expected), "{size}");
        assert_eq!(s3.get("/bkt?lifecycle").send(&s3).await.expect(200).header(name), Some(expected));
    }
    put("varies_by_storage_class").await.expect(200);
    s3.delete("/bkt?lifecycle").send(&s3).await.expect(204);
    put_rules(&s3, &[rule("a", "", DAY)]).await;
    assert_eq!(s3.get("/bkt?lifecycle").send(&s3).await.header(name), Some("all_storage_classes_128K"));
}

#[tokio::test]
async fn nothing_has_to_be_restored() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let document = "<RestoreRequest><Days>1</Days></RestoreRequest>";
    let refused = s3.post("/bkt/k?restore").body(document).send(&s3).await.refused(403, "InvalidObjectState");
    assert_eq!(refused.element("StorageClass").as_deref(), Some("STANDARD"));
    s3.post("/bkt/none?restore").body(document).send(&s3).await.refused(404, "NoSuchKey");
    s3.get("/bkt/k?restore").send(&s3).await.refused(405, "MethodNotAllowed");
}

#[tokio::test]
async fn answers_say_when_an_object_ends() {
    let s3 = S3::with_bucket().await;
    let tag = "<Tag><Key>t</Key><Value>v</Value></Tag>";
    let abort =
        "<AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation></AbortIncompleteMultipartUpload>";
    put_rules(
        &s3,
        &[rule("by prefix", "<Prefix>a/</Prefix>", DAY), rule("by tag", tag, DAY), rule("uploads", "", abort)],
    )
    .await;
    let put = s3.put("/bkt/a/k").body("x").send(&s3).await.expect(200);
    let expiration = put.header("x-amz-expiration").unwrap().to_owned();
    assert!(
        expiration.starts_with("expiry-date=\"") && expiration.ends_with(" 00:00:00 GMT\", rule-id=\"by%20prefix\""),
        "{expiration}"
    );
    for call in [s3.get("/bkt/a/k"), s3.head("/bkt/a/k")] {
        assert_eq!(call.send(&s3).await.expect(200).header("x-amz-expiration"), Some(&*expiration));
    }
    let put = s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    assert_eq!(put.header("x-amz-expiration"), None);
    let tagged = s3.put("/bkt/k").body("x").header("x-amz-tagging", "t=v").send(&s3).await.expect(200);
    assert!(tagged.header("x-amz-expiration").unwrap().ends_with("rule-id=\"by%20tag\""));
    let copy = s3.put("/bkt/copy").header("x-amz-copy-source", "bkt/k").send(&s3).await.expect(200);
    assert!(copy.header("x-amz-expiration").unwrap().ends_with("rule-id=\"by%20tag\""), "tags go along");
    let bare = s3.put("/bkt/copy").header("x-amz-copy-source", "bkt/k").header("x-amz-tagging-directive", "REPLACE");
    assert_eq!(bare.send(&s3).await.expect(200).header("x-amz-expiration"), None);
    let begun = s3.post("/bkt/a/parts?uploads").send(&s3).await.expect(200);
    let upload = begun.element("UploadId").unwrap();
    let part = s3.put(&format!("/bkt/a/parts?uploadId={upload}&partNumber=1")).body("x").send(&s3).await.expect(200);
    let part = format!("<Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>", part.header("etag").unwrap());
    let document = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
    let done = s3.post(&format!("/bkt/a/parts?uploadId={upload}")).body(document).send(&s3).await.expect(200);
    assert!(done.header("x-amz-expiration").unwrap().ends_with("rule-id=\"by%20prefix\""));
    let begun = s3.post("/bkt/k?uploads").send(&s3).await.expect(200);
    assert_eq!(begun.header("x-amz-abort-rule-id"), Some("uploads"));
    let upload = begun.element("UploadId").unwrap();
    let parts = s3.get(&format!("/bkt/k?uploadId={upload}")).send(&s3).await.expect(200);
    assert_eq!(parts.header("x-amz-abort-date"), begun.header("x-amz-abort-date"));
}

/// A pass that was cut off goes on behind where it was, and counts for the day of its beginning.
#[tokio::test]
async fn a_pass_that_ends_on_another_day_is_followed_by_that_days() {
    const PROGRESS: &str = "lifecycle/progress";
    let s3 = S3::with_bucket().await;
    put_rules(&s3, &[rule("past", "", "<Expiration><Date>2020-01-01T00:00:00Z</Date></Expiration>")]).await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let today = SystemClock.now_ms() / (24 * 60 * 60 * 1000);
    let cut_off = serde_json::json!({ "day": today - 1, "bucket": "later", "key": null }).to_string();
    s3.store.put_config(ConfigScope::Site, PROGRESS, Bytes::from(cut_off)).await.unwrap();
    let stop = CancellationToken::new();
    let worker = tokio::spawn({
        let (service, stop) = (s3.service.clone(), stop.clone());
        let options = LifecycleOptions { debug_day_ms: None, deletions_per_second: 1_000_000 };
        async move { service.run_lifecycle(options, Arc::new(LifecycleFigures::default()), stop).await }
    });
    let is_done = || {
        let progress = s3.store.site_config(PROGRESS).unwrap().unwrap();
        let progress: serde_json::Value = serde_json::from_slice(&progress).unwrap();
        progress["bucket"].is_null() && progress["day"].as_u64().unwrap() >= today
    };
    while !is_done() {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    worker.await.unwrap();
    assert_eq!(keys(&s3).await, [""; 0]);
}

#[tokio::test]
async fn objects_end_when_a_rule_says_so() {
    let s3 = S3::with_bucket().await;
    let sizes = "<And><ObjectSizeGreaterThan>2</ObjectSizeGreaterThan><ObjectSizeLessThan>5</ObjectSizeLessThan></And>";
    let tags =
        "<And><Prefix>t/</Prefix><Tag><Key>a</Key><Value>1</Value></Tag><Tag><Key>b</Key><Value>2</Value></Tag></And>";
    let disabled = rule("off", "<Prefix>off/</Prefix>", DAY).replace("Enabled", "Disabled");
    put_rules(
        &s3,
        &[
            rule("prefix", "<Prefix>ends/</Prefix>", DAY),
            rule("later", "<Prefix>later/</Prefix>", LONG),
            rule("sizes", sizes, DAY),
            rule("tags", tags, DAY),
            rule("date", "<Prefix>date/</Prefix>", "<Expiration><Date>2020-01-01T00:00:00Z</Date></Expiration>"),
            rule(
                "to come",
                "<Prefix>date-to-come/</Prefix>",
                "<Expiration><Date>2099-01-01T00:00:00Z</Date></Expiration>",
            ),
            disabled,
        ],
    )
    .await;
    for (key, body, tags) in [
        ("ends/a", "x", ""),
        ("ends/b", "xyzzyx", "c=3"),
        ("later/a", "x", ""),
        ("size/2", "xx", ""),
        ("size/3", "xxx", ""),
        ("size/4", "xxxx", ""),
        ("size/5", "xxxxx", ""),
        ("t/one", "x", "a=1"),
        ("t/two", "x", "a=1&b=2&c=3"),
        ("t/wrong", "x", "a=1&b=3"),
        ("date/a", "x", ""),
        ("date-to-come/a", "x", ""),
        ("off/a", "x", ""),
        ("other", "x", ""),
    ] {
        s3.put(&format!("/bkt/{key}")).body(body).header("x-amz-tagging", tags).send(&s3).await.expect(200);
    }
    days_pass(&s3).await;
    let left = ["date-to-come/a", "later/a", "off/a", "other", "size/2", "size/5", "t/one", "t/wrong"];
    assert_eq!(keys(&s3).await, left);
    s3.delete("/bkt?lifecycle").send(&s3).await.expect(204);
    days_pass(&s3).await;
    assert_eq!(keys(&s3).await, left);
}

#[tokio::test]
async fn a_walk_goes_on_from_page_to_page() {
    let s3 = S3::with_bucket().await;
    put_rules(&s3, &[rule("all", "<Prefix>a</Prefix>", DAY), rule("within", "<Prefix>ab</Prefix>", DAY)]).await;
    for number in 0..1100 {
        s3.put(&format!("/bkt/a{number:04}")).body("x").send(&s3).await.expect(200);
    }
    s3.put("/bkt/b").body("x").send(&s3).await.expect(200);
    days_pass(&s3).await;
    assert_eq!(keys(&s3).await, ["b"]);
}

#[tokio::test]
async fn uploads_end_when_a_rule_says_so() {
    let s3 = S3::with_bucket().await;
    let abort = |days: u32| {
        format!(
            "<AbortIncompleteMultipartUpload><DaysAfterInitiation>{days}</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
        )
    };
    put_rules(&s3, &[rule("a", "<Prefix>a/</Prefix>", &abort(1)), rule("b", "<Prefix>b/</Prefix>", &abort(1_000_000))])
        .await;
    for key in ["a/1", "a/2", "b/1", "c/1"] {
        s3.post(&format!("/bkt/{key}?uploads")).send(&s3).await.expect(200);
    }
    s3.put("/bkt/a/object").body("x").send(&s3).await.expect(200);
    days_pass(&s3).await;
    assert_eq!(s3.get("/bkt?uploads").send(&s3).await.expect(200).elements("Key"), ["b/1", "c/1"]);
    assert_eq!(keys(&s3).await, ["a/object"]);
}

#[tokio::test]
async fn versions_end_when_a_rule_says_so() {
    let s3 = S3::with_bucket().await;
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    s3.put("/bkt?versioning").body(versioning).send(&s3).await.expect(200);
    let noncurrent = |days: u32, more: &str| {
        format!(
            "<NoncurrentVersionExpiration><NoncurrentDays>{days}</NoncurrentDays>{more}</NoncurrentVersionExpiration>"
        )
    };
    let tagged = "<And><Prefix>tagged/</Prefix><Tag><Key>a</Key><Value>1</Value></Tag></And>";
    let lone = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
    put_rules(
        &s3,
        &[
            rule("old", "<Prefix>old/</Prefix>", &noncurrent(1, "")),
            rule("later", "<Prefix>later/</Prefix>", &noncurrent(1_000_000, "")),
            rule(
                "newer",
                "<Prefix>newer/</Prefix>",
                &noncurrent(1, "<NewerNoncurrentVersions>2</NewerNoncurrentVersions>"),
            ),
            rule("tagged", tagged, &noncurrent(1, "")),
            rule("lone", "<Prefix>lone/</Prefix>", lone),
            rule("current", "<Prefix>current/</Prefix>", DAY),
        ],
    )
    .await;
    let put = |key: &'static str, tags: &'static str| {
        let s3 = &s3;
        async move {
            let put = s3.put(&format!("/bkt/{key}")).body("x").header("x-amz-tagging", tags).send(s3).await.expect(200);
            put.header("x-amz-version-id").unwrap().to_owned()
        }
    };
    for key in ["old/k", "later/k", "newer/k", "newer/k", "other/k"] {
        for _ in 0..2 {
            put(key, "").await;
        }
    }
    for tags in ["a=1", "a=2", "a=1"] {
        put("tagged/k", tags).await;
    }
    put("old/deleted", "").await;
    s3.delete("/bkt/old/deleted").send(&s3).await.expect(204);
    let version = put("lone/k", "").await;
    s3.delete("/bkt/lone/k").send(&s3).await.expect(204);
    s3.delete(&format!("/bkt/lone/k?versionId={version}")).send(&s3).await.expect(204);
    put("lone/held", "").await;
    s3.delete("/bkt/lone/held").send(&s3).await.expect(204);
    put("current/k", "").await;
    days_pass(&s3).await;
    let listed = s3.get("/bkt?versions").send(&s3).await.expect(200);
    let count = |key: &str| listed.elements("Key").iter().filter(|found| *found == key).count();
    for (key, expected) in [
        ("old/k", 1),
        ("later/k", 2),
        ("newer/k", 3),
        ("other/k", 2),
        // The one with the other tag, and the current one.
        ("tagged/k", 2),
        // Its delete marker is the only one left, and is not ended by a rule for others.
        ("old/deleted", 1),
        ("lone/k", 0),
        ("lone/held", 2),
        // It is deleted, not gone.
        ("current/k", 2),
    ] {
        assert_eq!(count(key), expected, "{key}");
    }
    s3.get("/bkt/current/k").send(&s3).await.refused(404, "NoSuchKey");
    s3.get("/bkt/old/k").send(&s3).await.expect(200);
}

#[tokio::test]
async fn locked_versions_do_not_end() {
    let s3 = S3::new().await;
    s3.put("/bkt").header("x-amz-bucket-object-lock-enabled", "true").send(&s3).await.expect(200);
    let noncurrent = "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>";
    put_rules(&s3, &[rule("all", "", noncurrent)]).await;
    let put = |hold: &'static str| s3.put("/bkt/k").body("x").header("x-amz-object-lock-legal-hold", hold);
    put("ON").send(&s3).await.expect(200);
    put("OFF").send(&s3).await.expect(200);
    put("OFF").send(&s3).await.expect(200);
    days_pass(&s3).await;
    let versions = s3.get("/bkt?versions").send(&s3).await.expect(200).elements("Key");
    assert_eq!(versions.len(), 2, "the current one, and the one that is held");
}
