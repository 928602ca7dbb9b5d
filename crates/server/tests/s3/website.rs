//! Buckets as websites.

use crate::harness::{Answer, Call, S3, Sign};

const HOST: &str = "bkt.web.test:8080";

async fn site(configuration: &str) -> S3 {
    let s3 = S3::with(|options| options.website_domains = vec!["web.test".into()]).await;
    s3.put("/bkt").send(&s3).await.expect(200);
    let document = format!("<WebsiteConfiguration>{configuration}</WebsiteConfiguration>");
    s3.put("/bkt?website").body(document).send(&s3).await.expect(200);
    s3
}

/// Lets everybody read what begins so.
async fn publish(s3: &S3, prefix: &str) {
    s3.delete("/bkt?publicAccessBlock").send(s3).await.expect(204);
    let policy = format!(
        "{{\"Version\":\"2012-10-17\",\"Statement\":[{{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:GetObject\",\
         \"Resource\":\"arn:aws:s3:::bkt/{prefix}*\"}}]}}"
    );
    s3.put("/bkt?policy").body(policy).send(s3).await.expect(204);
}

async fn put(s3: &S3, key: &str, body: &str) {
    s3.put(&format!("/bkt/{key}")).body(body).header("content-type", "text/html").send(s3).await.expect(200);
}

fn visit(s3: &S3, method: &str, path: &str) -> Call {
    s3.call(method, path).sign(Sign::Not).change(|call| call.host = HOST)
}

async fn get(s3: &S3, path: &str) -> Answer {
    visit(s3, "GET", path).send(s3).await
}

const INDEX: &str = "<IndexDocument><Suffix>index.html</Suffix></IndexDocument>";

#[tokio::test]
async fn configurations_are_kept_shown_and_deleted() {
    let s3 = S3::with_bucket().await;
    s3.get("/bkt?website").send(&s3).await.refused(404, "NoSuchWebsiteConfiguration");
    let document = format!("<WebsiteConfiguration>{INDEX}</WebsiteConfiguration>");
    s3.put("/bkt?website").body(document).send(&s3).await.expect(200);
    assert_eq!(s3.get("/bkt?website").send(&s3).await.expect(200).elements("Suffix"), ["index.html"]);
    s3.put("/bkt?website").body("<WebsiteConfiguration/>").send(&s3).await.refused(400, "InvalidArgument");
    let rule = |text: &str| {
        format!(
            "<RoutingRule><Condition><KeyPrefixEquals>{text}</KeyPrefixEquals></Condition><Redirect><HostName>h</HostName></Redirect></RoutingRule>"
        )
    };
    let large = rule(&"k".repeat(3000)).repeat(50);
    let large = format!("<WebsiteConfiguration>{INDEX}<RoutingRules>{large}</RoutingRules></WebsiteConfiguration>");
    s3.put("/bkt?website").body(large).send(&s3).await.refused(400, "MaxMessageLengthExceeded");
    s3.delete("/bkt?website").send(&s3).await.expect(204);
    s3.get("/bkt?website").send(&s3).await.refused(404, "NoSuchWebsiteConfiguration");
}

#[tokio::test]
async fn browsers_may_ask_a_website_beforehand() {
    let s3 = site(INDEX).await;
    let rules = "<CORSConfiguration><CORSRule><AllowedOrigin>https://page.test</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>";
    s3.put("/bkt?cors").body(rules).send(&s3).await.expect(200);
    let ask = |origin: &str, method: &str| {
        let call = visit(&s3, "OPTIONS", "/a.html").header("origin", origin);
        call.header("access-control-request-method", method)
    };
    let allowed = ask("https://page.test", "GET").send(&s3).await.expect(200);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://page.test"));
    let refused = ask("https://other.test", "GET").send(&s3).await.expect(403);
    assert!(refused.text().contains("<li>Code: AccessForbidden</li>"), "{}", refused.text());
    ask("https://page.test", "PUT").send(&s3).await.expect(403);
}

#[tokio::test]
async fn pages_are_shown_to_everybody_who_may_read_them() {
    let s3 = site(&format!("{INDEX}<ErrorDocument><Key>error.html</Key></ErrorDocument>")).await;
    for (key, body) in [("index.html", "top"), ("dir/index.html", "dir"), ("a.html", "a"), ("private/a.html", "secret")]
    {
        put(&s3, key, body).await;
    }
    // Nobody may read anything yet, not even the document for errors.
    let refused = get(&s3, "/").await.expect(403);
    assert!(refused.text().contains("<li>Code: AccessDenied</li>"), "{}", refused.text());
    assert_eq!(refused.header("content-type"), Some("text/html; charset=utf-8"));
    publish(&s3, "").await;
    for (path, body) in [("/", "top"), ("/dir/", "dir"), ("/a.html", "a"), ("/a.html?x=1", "a")] {
        let page = get(&s3, path).await.expect(200);
        assert_eq!((page.text().as_str(), page.header("content-type")), (body, Some("text/html")), "{path}");
    }
    let range = visit(&s3, "GET", "/index.html").header("range", "bytes=1-").send(&s3).await.expect(206);
    assert_eq!(range.text(), "op");
    let etag = get(&s3, "/a.html").await.header("etag").unwrap().to_owned();
    visit(&s3, "GET", "/a.html").header("if-none-match", etag).send(&s3).await.expect(304);
    let head = visit(&s3, "HEAD", "/a.html").send(&s3).await.expect(200);
    assert_eq!((head.header("content-length"), head.text().as_str()), (Some("1"), ""));
    let directory = get(&s3, "/dir").await.expect(302);
    assert_eq!(directory.header("location"), Some("/dir/"));
    // Who may read a page is told that it is not there, on a website; elsewhere only who may list.
    s3.get("/bkt/none.html").sign(Sign::Not).send(&s3).await.refused(403, "AccessDenied");
    let missing = get(&s3, "/none.html").await.expect(404);
    assert!(missing.text().contains("<li>Key: none.html</li>"), "{}", missing.text());
    put(&s3, "error.html", "sorry").await;
    let missing = get(&s3, "/none.html").await.expect(404);
    assert_eq!((missing.text().as_str(), missing.header("x-amz-error-code")), ("sorry", Some("NoSuchKey")));
    publish(&s3, "a").await;
    get(&s3, "/private/a.html").await.expect(403);
    for method in ["PUT", "POST", "DELETE"] {
        visit(&s3, method, "/a.html").body("x").send(&s3).await.expect(405);
    }
    let other = s3.get("/").sign(Sign::Not).change(|call| call.host = "none.web.test").send(&s3).await.expect(404);
    assert!(other.text().contains("NoSuchBucket"));
    s3.delete("/bkt?website").send(&s3).await.expect(204);
    assert!(get(&s3, "/a.html").await.expect(404).text().contains("NoSuchWebsiteConfiguration"));
}

#[tokio::test]
async fn rules_and_objects_send_elsewhere() {
    let rule = |condition: &str, redirect: &str| {
        format!("<RoutingRule><Condition>{condition}</Condition><Redirect>{redirect}</Redirect></RoutingRule>")
    };
    let rules = [
        rule("<KeyPrefixEquals>docs/</KeyPrefixEquals>", "<ReplaceKeyPrefixWith>documents/</ReplaceKeyPrefixWith>"),
        rule(
            "<HttpErrorCodeReturnedEquals>403</HttpErrorCodeReturnedEquals>",
            "<HostName>other.test</HostName><Protocol>https</Protocol><ReplaceKeyWith>lost me</ReplaceKeyWith><HttpRedirectCode>307</HttpRedirectCode>",
        ),
    ];
    let s3 = site(&format!("{INDEX}<RoutingRules>{}</RoutingRules>", rules.concat())).await;
    let moved = get(&s3, "/docs/a%20b").await.expect(301);
    assert_eq!(moved.header("location"), Some("http://bkt.web.test:8080/documents/a%20b"));
    let lost = get(&s3, "/none").await.expect(307);
    assert_eq!(lost.header("location"), Some("https://other.test/lost%20me"));
    publish(&s3, "").await;
    let put = s3.put("/bkt/old").body("x").header("x-amz-website-redirect-location", "/new");
    put.send(&s3).await.expect(200);
    assert_eq!(get(&s3, "/old").await.expect(301).header("location"), Some("/new"));
    // Outside of the website it is an object like others.
    assert_eq!(s3.get("/bkt/old").send(&s3).await.expect(200).text(), "x");
}

#[tokio::test]
async fn all_of_a_website_can_be_elsewhere() {
    let s3 = site(
        "<RedirectAllRequestsTo><HostName>other.test</HostName><Protocol>https</Protocol></RedirectAllRequestsTo>",
    )
    .await;
    assert_eq!(get(&s3, "/a/b?c=d%20e").await.expect(301).header("location"), Some("https://other.test/a/b?c=d%20e"));
}
