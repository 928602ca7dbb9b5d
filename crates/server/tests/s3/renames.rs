//! RenameObject.

use crate::harness::{Call, S3};

fn rename(s3: &S3, from: &str, to: &str) -> Call {
    s3.put(&format!("/bkt/{to}?renameObject")).header("x-amz-rename-source", from.to_owned())
}

#[tokio::test]
async fn an_object_gets_another_key_and_keeps_all_else() {
    let s3 = S3::with_bucket().await;
    let put = s3.put("/bkt/a%20b").body("hello").header("content-type", "a/b").header("x-amz-meta-m", "1");
    put.header("x-amz-tagging", "t=1").send(&s3).await.expect(200);
    s3.put("/bkt/there").body("gone").send(&s3).await.expect(200);
    let before = s3.head("/bkt/a%20b").send(&s3).await.expect(200);
    let renamed = rename(&s3, "a%20b", "there").send(&s3).await.expect(200);
    assert_eq!(renamed.text(), "");
    s3.get("/bkt/a%20b").send(&s3).await.refused(404, "NoSuchKey");
    let after = s3.get("/bkt/there").send(&s3).await.expect(200);
    assert_eq!(after.text(), "hello");
    for header in ["etag", "last-modified", "content-type", "x-amz-meta-m", "x-amz-tagging-count"] {
        assert_eq!(after.header(header), before.header(header), "{header}");
    }
    let listed = s3.get("/bkt?list-type=2").send(&s3).await.expect(200);
    assert_eq!(listed.elements("Key"), ["there"]);
}

#[tokio::test]
async fn it_is_refused_as_on_aws() {
    let s3 = S3::with_bucket().await;
    let stored = s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let etag = stored.header("etag").unwrap();
    s3.put("/bkt/other").body("y").send(&s3).await.expect(200);
    rename(&s3, "none", "to").send(&s3).await.refused(404, "NoSuchKey");
    s3.put("/bkt/to?renameObject").send(&s3).await.refused(400, "InvalidArgument");
    rename(&s3, &"k".repeat(1025), "to").send(&s3).await.refused(400, "KeyTooLongError");
    rename(&s3, "k", "k").send(&s3).await.refused(400, "InvalidRequest");
    rename(&s3, "k", "to/").send(&s3).await.refused(400, "InvalidRequest");
    let elsewhere = s3.put("/none/to?renameObject").header("x-amz-rename-source", "k");
    elsewhere.send(&s3).await.refused(404, "NoSuchBucket");
    rename(&s3, "k", "to").header("x-amz-client-token", "t".repeat(65)).send(&s3).await.refused(400, "InvalidArgument");
    let other = s3.head("/bkt/other").send(&s3).await.expect(200);
    let other_modified = other.header("last-modified").unwrap();
    let source = s3.head("/bkt/k").send(&s3).await.expect(200);
    let modified = source.header("last-modified").unwrap();
    for (header, value) in [
        ("if-none-match", "*"),
        ("if-match", "\"x\""),
        ("if-modified-since", other_modified),
        ("if-unmodified-since", "Fri, 01 Jan 2010 00:00:00 GMT"),
        ("x-amz-rename-source-if-none-match", etag),
        ("x-amz-rename-source-if-match", "\"x\""),
        ("x-amz-rename-source-if-modified-since", modified),
        ("x-amz-rename-source-if-unmodified-since", "Fri, 01 Jan 2010 00:00:00 GMT"),
    ] {
        let refused = rename(&s3, "k", "other").header(header, value).send(&s3).await;
        let condition = refused.refused(412, "PreconditionFailed").element("Condition").unwrap();
        assert_eq!(condition.to_ascii_lowercase(), header);
    }
    for argument in ["If-Match", "If-None-Match", "x-amz-rename-source-If-Match", "x-amz-rename-source-If-None-Match"] {
        let refused = rename(&s3, "k", "other").header(&argument.to_ascii_lowercase(), "").send(&s3).await;
        let refused = refused.refused(400, "InvalidArgument");
        assert_eq!(refused.element("ArgumentName").as_deref(), Some(argument));
    }
    // What is no renaming says nothing of a source.
    s3.put("/bkt/k2").header("x-amz-rename-source", "k").send(&s3).await.refused(501, "NotImplemented");
    for (method, target) in [("GET", "/bkt/k?renameObject"), ("PUT", "/bkt?renameObject")] {
        s3.call(method, target).send(&s3).await.refused(405, "MethodNotAllowed");
    }
    assert_eq!(s3.get("/bkt/k").send(&s3).await.text(), "x");
    let held = rename(&s3, "k", "to").header("x-amz-rename-source-if-match", etag).header("if-none-match", "*");
    held.send(&s3).await.expect(200);
}

#[tokio::test]
async fn a_token_makes_it_safe_to_ask_again() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/a").body("1").send(&s3).await.expect(200);
    s3.put("/bkt/c").body("2").send(&s3).await.expect(200);
    let with_token = |from: &str| rename(&s3, from, "b").header("x-amz-client-token", "token");
    with_token("a").send(&s3).await.expect(200);
    with_token("a").send(&s3).await.expect(200);
    with_token("c").send(&s3).await.refused(400, "IdempotencyParameterMismatch");
    rename(&s3, "a", "b").send(&s3).await.refused(404, "NoSuchKey");
    assert_eq!(s3.get("/bkt/b").send(&s3).await.text(), "1");
}

#[tokio::test]
async fn a_bucket_with_versions_renames_nothing() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    for status in ["Enabled", "Suspended"] {
        let document = format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
        s3.put("/bkt?versioning").body(document).send(&s3).await.expect(200);
        rename(&s3, "k", "to").send(&s3).await.refused(400, "InvalidRequest");
    }
}
