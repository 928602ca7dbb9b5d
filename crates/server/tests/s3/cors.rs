//! Cross-origin requests.

use crate::harness::{Answer, S3, Sign};

const RULES: &str = "<CORSConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><CORSRule><ID>one</ID>\
    <AllowedOrigin>https://*.page.test</AllowedOrigin><AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod>\
    <AllowedHeader>x-amz-*</AllowedHeader><AllowedHeader>Content-Type</AllowedHeader><ExposeHeader>ETag</ExposeHeader>\
    <MaxAgeSeconds>600</MaxAgeSeconds></CORSRule><CORSRule><AllowedOrigin>*</AllowedOrigin>\
    <AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>";

async fn with_rules() -> S3 {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt?cors").body(RULES).md5().send(&s3).await.expect(200);
    s3
}

async fn preflight(s3: &S3, target: &str, origin: &str, method: &str, headers: &str) -> Answer {
    let mut call = s3.call("OPTIONS", target).sign(Sign::Not);
    for (name, value) in
        [("origin", origin), ("access-control-request-method", method), ("access-control-request-headers", headers)]
    {
        if !value.is_empty() {
            call = call.header(name, value);
        }
    }
    call.send(s3).await
}

#[tokio::test]
async fn rules_are_kept_shown_and_deleted() {
    let s3 = S3::with_bucket().await;
    s3.get("/bkt?cors").send(&s3).await.refused(404, "NoSuchCORSConfiguration");
    s3.put("/bkt?cors").body(RULES).send(&s3).await.expect(200);
    let shown = s3.get("/bkt?cors").send(&s3).await.expect(200);
    assert_eq!(shown.elements("AllowedOrigin"), ["https://*.page.test", "*"]);
    assert_eq!(shown.elements("AllowedMethod"), ["GET", "PUT", "GET"]);
    assert_eq!(shown.elements("ID"), ["one"]);
    s3.put("/bkt?cors").body("<CORSConfiguration/>").send(&s3).await.refused(400, "MalformedXML");
    assert_eq!(s3.get("/bkt?cors").send(&s3).await.text(), shown.text());
    s3.delete("/bkt?cors").send(&s3).await.expect(204);
    s3.delete("/bkt?cors").send(&s3).await.expect(204);
    s3.get("/bkt?cors").send(&s3).await.refused(404, "NoSuchCORSConfiguration");
    for target in ["/none?cors"] {
        s3.get(target).send(&s3).await.refused(404, "NoSuchBucket");
        s3.put(target).body(RULES).send(&s3).await.refused(404, "NoSuchBucket");
    }
}

#[tokio::test]
async fn browsers_ask_before_without_a_signature() {
    let s3 = with_rules().await;
    let asked =
        preflight(&s3, "/bkt/any/key", "https://a.page.test", "PUT", "Content-Type, X-Amz-Date").await.expect(200);
    for (name, value) in [
        ("access-control-allow-origin", "https://a.page.test"),
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-methods", "GET, PUT"),
        ("access-control-allow-headers", "content-type, x-amz-date"),
        ("access-control-expose-headers", "ETag"),
        ("access-control-max-age", "600"),
        ("vary", "Origin, Access-Control-Request-Headers, Access-Control-Request-Method"),
    ] {
        assert_eq!(asked.header(name), Some(value), "{name}");
    }
    let any = preflight(&s3, "/bkt", "https://elsewhere.test", "GET", "").await.expect(200);
    assert_eq!(any.header("access-control-allow-origin"), Some("*"));
    assert_eq!(any.header("access-control-allow-credentials"), None);
    for (origin, method, headers, status, code) in [
        ("", "GET", "", 400, "BadRequest"),
        ("https://a.page.test", "", "", 400, "BadRequest"),
        ("https://a.page.test", "PATCH", "", 400, "BadRequest"),
        ("https://a.page.test", "DELETE", "", 403, "AccessForbidden"),
        ("https://a.page.test", "PUT", "x-other", 403, "AccessForbidden"),
        ("https://elsewhere.test", "PUT", "", 403, "AccessForbidden"),
    ] {
        let answer = preflight(&s3, "/bkt/k", origin, method, headers).await;
        assert_eq!(answer.header("access-control-allow-origin"), None);
        answer.refused(status, code);
    }
    s3.put("/other").send(&s3).await.expect(200);
    preflight(&s3, "/other/k", "https://a.page.test", "GET", "").await.refused(403, "AccessForbidden");
    for (target, kind) in [("/none/k", "OBJECT"), ("/none", "BUCKET")] {
        let answer = preflight(&s3, target, "https://a.page.test", "GET", "").await.refused(403, "AccessForbidden");
        let told = ["Message", "Method", "ResourceType"].map(|name| answer.element(name).unwrap());
        assert_eq!(told, ["CORSResponse: Bucket not found", "GET", kind]);
    }
    let bad = preflight(&s3, "/bkt/k", "https://a.page.test", "PUT", "x-amz-date,a b").await.refused(400, "BadRequest");
    let message = "Access-Control-Request-Headers &quot;a b&quot; contains invalid character.";
    assert!(bad.text().contains(message), "{}", bad.text());
}

#[tokio::test]
async fn answers_say_who_may_see_them() {
    let s3 = with_rules().await;
    let from = |call: crate::harness::Call, origin: &str| call.header("origin", origin);
    let put = from(s3.put("/bkt/k").body("x"), "https://a.page.test").send(&s3).await.expect(200);
    assert_eq!(put.header("access-control-allow-origin"), Some("https://a.page.test"));
    assert_eq!(put.header("access-control-expose-headers"), Some("ETag"));
    let read = from(s3.get("/bkt/k"), "https://elsewhere.test").send(&s3).await.expect(200);
    assert_eq!(read.header("access-control-allow-origin"), Some("*"));
    assert_eq!(
        from(s3.delete("/bkt/k"), "https://a.page.test").send(&s3).await.header("access-control-allow-origin"),
        None
    );
    assert_eq!(s3.get("/bkt?list-type=2").send(&s3).await.header("vary"), None);
    // Refusals, too: those by the operation, by the signature, and before it.
    let missing = from(s3.get("/bkt/none"), "https://a.page.test").send(&s3).await;
    assert_eq!((missing.status, missing.header("access-control-allow-methods")), (404, Some("GET, PUT")));
    let unsigned = from(s3.get("/bkt/k"), "https://a.page.test").sign(Sign::Not).send(&s3).await;
    assert_eq!((unsigned.status, unsigned.header("access-control-allow-origin")), (403, Some("https://a.page.test")));
    let both = from(s3.get("/bkt/k?X-Amz-Signature=1"), "https://a.page.test").send(&s3).await;
    assert_eq!((both.status, both.header("access-control-allow-origin")), (400, Some("https://a.page.test")));
    // Rules that are gone say nothing any more.
    s3.delete("/bkt?cors").send(&s3).await.expect(204);
    assert_eq!(from(s3.get("/bkt/k"), "https://a.page.test").send(&s3).await.header("vary"), None);
}
