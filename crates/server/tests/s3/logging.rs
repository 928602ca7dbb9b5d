//! Server access logs.

use std::sync::Arc;

use gabion_server::s3::LogDeliveryOptions;

use crate::access::{USER, Users, account, by};
use crate::harness::{ACCESS_KEY, S3, Sign};

fn status(target: &str, prefix: &str, format: &str) -> String {
    format!(
        "<BucketLoggingStatus xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LoggingEnabled><TargetBucket>{target}</TargetBucket>\
         <TargetPrefix>{prefix}</TargetPrefix>{format}</LoggingEnabled></BucketLoggingStatus>"
    )
}

async fn with_log() -> S3 {
    let s3 = S3::with_bucket().await;
    s3.put("/logs").send(&s3).await.expect(200);
    s3.put("/bkt?logging").body(status("logs", "log/", "")).send(&s3).await.expect(200);
    s3
}

/// Delivers what waits; gives keys and lines of all log objects.
pub(crate) async fn delivered(s3: &S3) -> (Vec<String>, String) {
    let stop = tokio_util::sync::CancellationToken::new();
    stop.cancel();
    s3.service.run_log_delivery(LogDeliveryOptions { interval_ms: 60_000 }, stop).await;
    let keys = s3.get("/logs?list-type=2").send(s3).await.expect(200).elements("Key");
    let mut lines = String::new();
    for key in &keys {
        lines.push_str(&s3.get(&format!("/logs/{key}")).send(s3).await.expect(200).text());
    }
    (keys, lines)
}

/// The fields of a line: quotes and brackets keep what is in them together.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut rest) = (Vec::new(), line);
    while !rest.is_empty() {
        let (field, after) = match rest.as_bytes()[0] {
            b'"' => rest[1..].split_once('"').unwrap(),
            b'[' => rest[1..].split_once(']').unwrap(),
            _ => rest.split_at(rest.find(' ').unwrap_or(rest.len())),
        };
        fields.push(field.to_owned());
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    fields
}

#[tokio::test]
async fn where_logs_go_is_kept_and_checked() {
    let s3 = S3::with_bucket().await;
    s3.put("/logs").send(&s3).await.expect(200);
    let shown = s3.get("/bkt?logging").send(&s3).await.expect(200);
    assert!(!shown.text().contains("LoggingEnabled"));
    s3.put("/bkt?logging").body(status("none", "", "")).send(&s3).await.refused(400, "InvalidTargetBucketForLogging");
    let partitioned = |by: &str| {
        format!(
            "<TargetObjectKeyFormat><PartitionedPrefix><PartitionDateSource>{by}</PartitionDateSource></PartitionedPrefix></TargetObjectKeyFormat>"
        )
    };
    s3.put("/bkt?logging")
        .body(status("logs", "", &partitioned("kaboom")))
        .send(&s3)
        .await
        .refused(400, "MalformedXML");
    s3.put("/bkt?logging").body(status("logs", "a/", &partitioned("EventTime"))).send(&s3).await.expect(200);
    let shown = s3.get("/bkt?logging").send(&s3).await.expect(200);
    assert_eq!(
        (shown.elements("TargetBucket"), shown.elements("PartitionDateSource")),
        (vec!["logs".to_owned()], vec!["EventTime".to_owned()])
    );
    s3.put("/bkt?logging").body("<BucketLoggingStatus/>").send(&s3).await.expect(200);
    assert!(!s3.get("/bkt?logging").send(&s3).await.text().contains("LoggingEnabled"));
    s3.put("/none?logging").body(status("logs", "", "")).send(&s3).await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn logs_go_only_where_their_sender_may_write_and_the_target_lets_them() {
    let s3 = S3::for_users(Arc::new(Users::new())).await;
    for bucket in ["/bkt", "/logs"] {
        s3.put(bucket).send(&s3).await.expect(200);
    }
    let policy = |bucket: &'static str, effect: &str, principal: &str, action: &str| {
        let resources = format!(r#"["arn:aws:s3:::{bucket}","arn:aws:s3:::{bucket}/*"]"#);
        let policy = format!(
            r#"{{"Version":"2012-10-17","Statement":{{"Effect":"{effect}","Principal":{principal},"Action":"{action}","Resource":{resources}}}}}"#
        );
        s3.put(&format!("/{bucket}?policy")).body(policy).send(&s3)
    };
    let user = format!(r#"{{"AWS":"arn:aws:iam::{}:user/user"}}"#, account("own").id);
    policy("bkt", "Allow", &user, "s3:PutBucketLogging").await.expect(204);
    let begin = |who: &'static str| by(who, s3.put("/bkt?logging").body(status("logs", "x/", ""))).send(&s3);
    begin(USER).await.refused(403, "AccessDenied");
    policy("logs", "Allow", &user, "s3:PutObject").await.expect(204);
    begin(USER).await.expect(200);
    policy("logs", "Allow", r#"{"Service":"logging.s3.amazonaws.com"}"#, "s3:PutObject").await.expect(204);
    begin(USER).await.expect(200);
    policy("logs", "Deny", r#"{"Service":"logging.s3.amazonaws.com"}"#, "s3:PutObject").await.expect(204);
    begin(ACCESS_KEY).await.refused(400, "InvalidTargetBucketForLogging");
    // What was begun before it was denied ends.
    s3.get("/bkt/none").send(&s3).await.refused(404, "NoSuchKey");
    assert_eq!(delivered(&s3).await.0, [""; 0]);
    s3.delete("/logs?policy").send(&s3).await.expect(204);
    s3.get("/bkt/none").send(&s3).await.refused(404, "NoSuchKey");
    let (keys, lines) = delivered(&s3).await;
    assert_eq!((keys.len(), lines.lines().count()), (1, 1), "{lines}");
}

#[tokio::test]
async fn requests_are_delivered_as_lines_of_26_fields() {
    let s3 = with_log().await;
    let agent = "agent \"1\" [x]";
    let put = s3.put("/bkt/a%20b").body("hello").header("user-agent", agent).send(&s3).await.expect(200);
    s3.get("/bkt/a%20b")
        .header("range", "bytes=1-2")
        .header("referer", "http://page.test/")
        .send(&s3)
        .await
        .expect(206);
    s3.get("/bkt/none").sign(Sign::Query(60)).send(&s3).await.refused(404, "NoSuchKey");
    s3.get("/bkt?list-type=2&prefix=x").send(&s3).await.expect(200);
    let (keys, lines) = delivered(&s3).await;
    assert_eq!(keys.len(), 1);
    assert!(keys[0].starts_with("log/20"), "{keys:?}");
    let lines: Vec<Vec<String>> = lines.lines().map(fields).collect();
    // The one that switched it on began before there was a log.
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines.iter().all(|line| line.len() == 26), "{lines:?}");
    let line = &lines[0];
    assert_eq!((line[1].as_str(), line[3].as_str()), ("bkt", "127.0.0.1"));
    assert_eq!(line[0], line[4], "the owner asked");
    assert_ne!(line[0], ACCESS_KEY);
    assert_eq!(Some(line[5].as_str()), put.header("x-amz-request-id"));
    assert_eq!(line[6..13], ["REST.PUT.OBJECT", "a%20b", "PUT /bkt/a%20b HTTP/1.1", "200", "-", "-", "5"]);
    assert_eq!((line[15].as_str(), line[16].as_str()), ("-", "agent %221%22 %5Bx%5D"));
    assert_eq!(line[18..], ["-", "SigV4", "-", "AuthHeader", "s3.test:9000", "-", "-", "-"]);
    let line = &lines[1];
    assert_eq!(line[6..13], ["REST.GET.OBJECT", "a%20b", "GET /bkt/a%20b HTTP/1.1", "206", "-", "2", "5"]);
    assert_eq!(line[15], "http://page.test/");
    let line = &lines[2];
    assert_eq!((line[9].as_str(), line[10].as_str(), line[21].as_str()), ("404", "NoSuchKey", "QueryString"));
    assert!(!line[8].contains("Signature=") && line[8].contains("X-Amz-Date="), "{}", line[8]);
    assert_eq!((lines[3][6].as_str(), lines[3][7].as_str()), ("REST.GET.BUCKET", "-"));
    // What is delivered is delivered once.
    assert_eq!(delivered(&s3).await.0, keys);
}

#[tokio::test]
async fn logs_are_kept_by_the_rule_of_their_bucket() {
    let s3 = S3::with_bucket().await;
    s3.put("/logs").header("x-amz-bucket-object-lock-enabled", "true").send(&s3).await.expect(200);
    let rule = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
        <Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
    s3.put("/logs?object-lock").body(rule).send(&s3).await.expect(200);
    s3.put("/bkt?logging").body(status("logs", "log/", "")).send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let (keys, _) = delivered(&s3).await;
    assert_eq!(keys.len(), 1);
    let retention = s3.get(&format!("/logs/{}?retention", keys[0])).send(&s3).await.expect(200);
    assert_eq!(retention.element("Mode").as_deref(), Some("GOVERNANCE"));
}

/// Each object of a multi-delete has a line, and so has the source of a copy in its bucket's log.
#[tokio::test]
async fn what_a_request_does_besides_has_lines_of_its_own() {
    let s3 = with_log().await;
    s3.put("/other").send(&s3).await.expect(200);
    s3.put("/bkt/a%20b").body("x").send(&s3).await.expect(200);
    s3.put("/other/copy").header("x-amz-copy-source", "/bkt/a%20b").send(&s3).await.expect(200);
    s3.put("/other/copy").header("x-amz-copy-source", "/bkt/none").send(&s3).await.refused(404, "NoSuchKey");
    let keys = "<Object><Key>a b</Key></Object><Object><Key>c</Key><VersionId>rubbish</VersionId></Object><Object><Key></Key></Object>";
    s3.post("/bkt?delete").body(format!("<Delete>{keys}</Delete>")).md5().send(&s3).await.expect(200);
    let (_, lines) = delivered(&s3).await;
    let shown: Vec<_> = lines
        .lines()
        .map(fields)
        .filter(|fields| fields[6].starts_with("REST.COPY") || fields[6].contains("DELETE"))
        .map(|fields| fields[6..=10].join(" "))
        .collect();
    assert_eq!(
        shown,
        [
            "REST.COPY.OBJECT_GET a%20b - 200 -",
            "REST.POST.MULTI_OBJECT_DELETE - POST /bkt?delete HTTP/1.1 200 -",
            "BATCH.DELETE.OBJECT a%20b - 204 -",
            "BATCH.DELETE.OBJECT c - 404 NoSuchVersion",
            "BATCH.DELETE.OBJECT - - 400 InvalidArgument",
        ]
    );
    for line in lines.lines() {
        assert_eq!(fields(line).len(), 26, "{line}");
    }
}

#[tokio::test]
async fn a_log_that_nobody_takes_is_dropped() {
    let s3 = with_log().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    s3.delete("/logs").send(&s3).await.expect(204);
    let stop = tokio_util::sync::CancellationToken::new();
    stop.cancel();
    s3.service.run_log_delivery(LogDeliveryOptions { interval_ms: 60_000 }, stop).await;
    s3.put("/logs").send(&s3).await.expect(200);
    assert_eq!(delivered(&s3).await.0, [""; 0]);
    s3.get("/bkt/k").send(&s3).await.expect(200);
    assert_eq!(delivered(&s3).await.0.len(), 1, "it goes on when there is a bucket again");
}
