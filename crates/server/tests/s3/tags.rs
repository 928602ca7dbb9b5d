//! Tags of objects.

use crate::harness::S3;

fn document(tags: &[(&str, &str)]) -> String {
    let tags: String =
        tags.iter().map(|(key, value)| format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>")).collect();
    format!("<Tagging xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><TagSet>{tags}</TagSet></Tagging>")
}

async fn shown(s3: &S3, target: &str) -> Vec<(String, String)> {
    let answer = s3.get(target).send(s3).await.expect(200);
    assert!(answer.text().contains("<TagSet>"), "{}", answer.text());
    answer.elements("Key").into_iter().zip(answer.elements("Value")).collect()
}

fn pairs(tags: &[(&str, &str)]) -> Vec<(String, String)> {
    tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn they_are_put_shown_and_deleted() {
    let s3 = S3::with_bucket().await;
    let put = s3.put("/bkt/k").body("x").header("content-type", "a/b").header("x-amz-tagging", "d&b+c=%C3%BC&a=1");
    let stored = put.send(&s3).await.expect(200);
    assert_eq!(shown(&s3, "/bkt/k?tagging").await, pairs(&[("a", "1"), ("b c", "ü"), ("d", "")]));
    assert_eq!(s3.head("/bkt/k").send(&s3).await.header("x-amz-tagging-count"), Some("3"));
    let before = s3.head("/bkt/k").send(&s3).await;
    s3.put("/bkt/k?tagging").body(document(&[("project", "nhr/42"), ("e", "")])).send(&s3).await.expect(200);
    assert_eq!(shown(&s3, "/bkt/k?tagging").await, pairs(&[("project", "nhr/42"), ("e", "")]));
    let read = s3.get("/bkt/k").send(&s3).await.expect(200);
    assert_eq!((read.text().as_str(), read.header("x-amz-tagging-count")), ("x", Some("2")));
    assert_eq!((read.header("etag"), read.header("content-type")), (stored.header("etag"), Some("a/b")));
    assert_eq!(read.header("last-modified"), before.header("last-modified"));
    for _ in 0..2 {
        s3.call("DELETE", "/bkt/k?tagging").send(&s3).await.expect(204);
        assert_eq!(shown(&s3, "/bkt/k?tagging").await, []);
        assert_eq!(s3.head("/bkt/k").send(&s3).await.header("x-amz-tagging-count"), None);
    }
    s3.put("/bkt/k").body("y").send(&s3).await.expect(200);
    assert_eq!(shown(&s3, "/bkt/k?tagging").await, []);
}

#[tokio::test]
async fn copies_have_those_of_the_source_or_their_own() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("x").header("x-amz-tagging", "a=1").send(&s3).await.expect(200);
    let copy = |to: &str| s3.put(to).header("x-amz-copy-source", "/bkt/k");
    copy("/bkt/same").header("x-amz-metadata-directive", "REPLACE").send(&s3).await.expect(200);
    assert_eq!(shown(&s3, "/bkt/same?tagging").await, pairs(&[("a", "1")]));
    copy("/bkt/kept").header("x-amz-tagging", "b=2").send(&s3).await.expect(200);
    assert_eq!(shown(&s3, "/bkt/kept?tagging").await, pairs(&[("a", "1")]));
    let replacing = |to: &str| copy(to).header("x-amz-tagging-directive", "REPLACE");
    replacing("/bkt/other").header("x-amz-tagging", "b=2").send(&s3).await.expect(200);
    assert_eq!(shown(&s3, "/bkt/other?tagging").await, pairs(&[("b", "2")]));
    replacing("/bkt/none").send(&s3).await.expect(200);
    assert_eq!(shown(&s3, "/bkt/none?tagging").await, []);
    copy("/bkt/bad").header("x-amz-tagging-directive", "MERGE").send(&s3).await.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn uploads_in_parts_have_those_they_began_with() {
    let s3 = S3::with_bucket().await;
    let begun = s3.call("POST", "/bkt/k?uploads").header("x-amz-tagging", "a=1").send(&s3).await.expect(200);
    let upload = begun.element("UploadId").unwrap();
    let part = s3.put(&format!("/bkt/k?uploadId={upload}&partNumber=1")).body("x").send(&s3).await.expect(200);
    let etag = part.header("etag").unwrap();
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    s3.call("POST", &format!("/bkt/k?uploadId={upload}")).body(document).send(&s3).await.expect(200);
    assert_eq!(shown(&s3, "/bkt/k?tagging").await, pairs(&[("a", "1")]));
    s3.put("/bkt/k?tagging").body(self::document(&[("b", "2")])).send(&s3).await.expect(200);
    let read = s3.get("/bkt/k?partNumber=1").send(&s3).await.expect(206);
    assert_eq!((read.text().as_str(), read.header("x-amz-mp-parts-count")), ("x", Some("1")));
    assert_eq!(shown(&s3, "/bkt/k?tagging").await, pairs(&[("b", "2")]));
}

#[tokio::test]
async fn they_are_refused_as_on_aws() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let put = |document: String| s3.put("/bkt/k?tagging").body(document).send(&s3);
    let many: Vec<(String, &str)> = (0..11).map(|number| (number.to_string(), "")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    put(document(&many[..10])).await.expect(200);
    put(document(&many)).await.refused(400, "BadRequest");
    put(document(&[("k".repeat(129).as_str(), "")])).await.refused(400, "InvalidTag");
    put(document(&[("k", "v".repeat(257).as_str())])).await.refused(400, "InvalidTag");
    put(document(&[("aws:k", "")])).await.refused(400, "InvalidTag");
    put(document(&[("a", "1"), ("a", "2")])).await.refused(400, "InvalidTag");
    put("<Tagging>".into()).await.refused(400, "MalformedXML");
    put(String::new()).await.refused(400, "MissingRequestBodyError");
    assert_eq!(shown(&s3, "/bkt/k?tagging").await.len(), 10);
    let with = |header: &str| s3.put("/bkt/new").body("x").header("x-amz-tagging", header).send(&s3);
    for malformed in ["a=1&a=2", "a=%ff", "a=%", "a%2=1", "=", "a=1&=2", "a=1,b=2"] {
        with(malformed).await.refused(400, "InvalidArgument");
    }
    with("aws:a=1").await.refused(400, "InvalidTag");
    s3.head("/bkt/new").send(&s3).await.expect(404);
    s3.get("/bkt/none?tagging").send(&s3).await.refused(404, "NoSuchKey");
    s3.get("/none/k?tagging").send(&s3).await.refused(404, "NoSuchBucket");
    s3.put("/bkt/none?tagging").body(document(&[])).send(&s3).await.refused(404, "NoSuchKey");
    s3.call("DELETE", "/bkt/none?tagging").send(&s3).await.refused(404, "NoSuchKey");
    s3.call("POST", "/bkt/k?tagging").send(&s3).await.refused(405, "MethodNotAllowed");
}
