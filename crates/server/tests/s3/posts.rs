//! Uploads from browsers.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::harness::{ACCESS_KEY, Answer, Call, REGION, S3, Sign, signed_form_v2, signed_form_v4};

const BOUNDARY: &str = "----WebKitFormBoundary7MA4YWxkTrZu0gW";

/// A form: the last of its fields is the file.
fn form(fields: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in fields {
        let filename = if *name == "file" { "; filename=\"photo 1.txt\"\r\nContent-Type: text/plain" } else { "" };
        text.push_str(&format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"{filename}\r\n\r\n{value}\r\n"
        ));
    }
    text.push_str(&format!("--{BOUNDARY}--\r\n"));
    text
}

fn posting(s3: &S3, fields: &[(&str, &str)]) -> Call {
    let call = s3.post("/bkt").sign(Sign::Not).body(form(fields));
    call.header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"))
}

async fn post(s3: &S3, fields: &[(&str, &str)]) -> Answer {
    posting(s3, fields).send(s3).await
}

fn policy(conditions: &str) -> String {
    BASE64_STANDARD.encode(format!("{{\"expiration\":\"2099-01-01T00:00:00Z\",\"conditions\":[{conditions}]}}"))
}

const SIGNED: &str = "[\"starts-with\",\"$x-amz-algorithm\",\"\"],[\"starts-with\",\"$x-amz-credential\",\"\"],\
    [\"starts-with\",\"$x-amz-date\",\"\"]";

/// Posts a form with a policy that says `conditions` and is signed in Version 4.
pub(crate) async fn signed(s3: &S3, conditions: &str, fields: &[(&str, &str)]) -> Answer {
    signed_posting(s3, conditions, fields).send(s3).await
}

fn signed_posting(s3: &S3, conditions: &str, fields: &[(&str, &str)]) -> Call {
    let policy = policy(&format!("{SIGNED},{{\"bucket\":\"bkt\"}},{conditions}"));
    let (credential, date, signature) = signed_form_v4(&policy);
    let mut all = vec![
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
        ("X-Amz-Credential", &*credential),
        ("X-Amz-Date", &*date),
        ("X-Amz-Signature", &*signature),
        ("Policy", &*policy),
    ];
    all.extend(fields);
    posting(s3, &all)
}

pub(crate) const KEY: &str = "[\"starts-with\",\"$key\",\"\"]";

#[tokio::test]
async fn a_form_is_a_put() {
    let s3 = S3::with_bucket().await;
    let conditions = format!(
        "{KEY},[\"starts-with\",\"$Content-Type\",\"text/\"],{{\"acl\":\"private\"}},[\"starts-with\",\"$x-amz-meta-a\",\"\"],\
         [\"starts-with\",\"$tagging\",\"\"],[\"content-length-range\",1,10]"
    );
    let crc = crate::harness::crc32(b"hello");
    let fields = [
        ("key", "user/${filename}"),
        ("Content-Type", "text/x-test"),
        ("acl", "private"),
        ("x-amz-meta-a", "1"),
        ("x-amz-checksum-crc32", &*crc),
        ("tagging", "<Tagging><TagSet><Tag><Key>t</Key><Value>a b</Value></Tag></TagSet></Tagging>"),
        ("x-ignore-this", "whatever"),
        ("file", "hello"),
        ("submit", "after the file nothing counts"),
    ];
    let answer = signed(&s3, &conditions, &fields).await.expect(204);
    assert_eq!(answer.header("etag"), Some("\"5d41402abc4b2a76b9719d911017c592\""));
    assert_eq!(answer.header("location"), Some("http://s3.test:9000/bkt/user/photo%201.txt"));
    assert_eq!(answer.text(), "");
    let read = s3.get("/bkt/user/photo%201.txt").header("x-amz-checksum-mode", "ENABLED").send(&s3).await.expect(200);
    assert_eq!((read.text().as_str(), read.header("content-type")), ("hello", Some("text/x-test")));
    assert_eq!((read.header("x-amz-meta-a"), read.header("x-amz-tagging-count")), (Some("1"), Some("1")));
    assert_eq!(read.header("x-amz-checksum-crc32"), Some(&*crc));
}

#[tokio::test]
async fn policies_see_the_tags_of_a_form() {
    let s3 = S3::with_bucket().await;
    let policy = r#"{"Version":"2012-10-17","Statement":{"Effect":"Deny","Principal":"*","Action":"s3:PutObject",
        "Resource":"arn:aws:s3:::bkt/*","Condition":{"StringEquals":{"s3:RequestObjectTag/t":"secret"}}}}"#;
    s3.put("/bkt?policy").body(policy).send(&s3).await.expect(204);
    for (value, status) in [("secret", 403), ("other", 204)] {
        let tagging = format!("<Tagging><TagSet><Tag><Key>t</Key><Value>{value}</Value></Tag></TagSet></Tagging>");
        let conditions = format!("{KEY},[\"starts-with\",\"$tagging\",\"\"]");
        signed(&s3, &conditions, &[("key", "k"), ("tagging", &tagging), ("file", "x")]).await.expect(status);
    }
}

#[tokio::test]
async fn large_files_stream() {
    let s3 = S3::with_bucket().await;
    let file = "0123456789abcdef\r\n--".repeat(200_000);
    signed(&s3, KEY, &[("key", "k"), ("file", &file)]).await.expect(204);
    assert_eq!(s3.get("/bkt/k").send(&s3).await.expect(200).text(), file);
}

#[tokio::test]
async fn answers_are_as_the_form_wants_them() {
    let s3 = S3::with_bucket().await;
    let status = |status: &'static str| {
        let conditions = format!("{KEY},[\"starts-with\",\"$success_action_status\",\"\"]");
        let s3 = &s3;
        async move { signed(s3, &conditions, &[("key", "k"), ("success_action_status", status), ("file", "x")]).await }
    };
    assert_eq!(status("200").await.expect(200).text(), "");
    status("204").await.expect(204);
    status("404").await.expect(204);
    let created = status("201").await.expect(201);
    assert_eq!(created.element("Location").as_deref(), Some("http://s3.test:9000/bkt/k"));
    assert_eq!((created.element("Bucket").as_deref(), created.element("Key").as_deref()), (Some("bkt"), Some("k")));
    let conditions = format!("{KEY},[\"starts-with\",\"$success_action_redirect\",\"\"]");
    let fields = [("key", "k"), ("success_action_redirect", "http://page.test/done?a=1"), ("file", "x")];
    let redirect = signed(&s3, &conditions, &fields).await.expect(303);
    let expected = "http://page.test/done?a=1&bucket=bkt&key=k&etag=%229dd4e461268c8034f5c8564e155c67a6%22";
    assert_eq!(redirect.header("location"), Some(expected));
}

#[tokio::test]
async fn forms_are_refused_as_on_aws() {
    let s3 = S3::with_bucket().await;
    let file = ("file", "hello");
    let key = ("key", "k");
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], u16, &'a str);
    let table: &[Row<'_>] = &[
        (KEY, &[file], 400, "InvalidArgument"),
        (KEY, &[key], 400, "InvalidArgument"),
        (KEY, &[key, ("x-amz-meta-a", "1"), file], 403, "AccessDenied"),
        ("[\"eq\",\"$key\",\"other\"]", &[key, file], 403, "AccessDenied"),
        (&format!("{KEY},[\"content-length-range\",6,10]"), &[key, file], 400, "EntityTooSmall"),
        (&format!("{KEY},[\"content-length-range\",0,4]"), &[key, file], 400, "EntityTooLarge"),
        (&format!("{KEY},[\"content-length-range\",0]"), &[key, file], 400, "InvalidPolicyDocument"),
        (&format!("{KEY},{{\"acl\":\"nonsense\"}}"), &[key, ("acl", "nonsense"), file], 400, "InvalidArgument"),
        (&format!("{KEY},{{\"content-md5\":\"x\"}}"), &[key, ("Content-MD5", "x"), file], 400, "InvalidDigest"),
        (&format!("{KEY},{{\"tagging\":\"x\"}}"), &[key, ("tagging", "x"), file], 400, "MalformedXML"),
    ];
    for (conditions, fields, status, code) in table {
        signed(&s3, conditions, fields).await.refused(*status, code);
        s3.get("/bkt/k").send(&s3).await.refused(404, "NoSuchKey");
    }
    let send = |body: &str, content_type: &str| {
        s3.post("/bkt").sign(Sign::Not).body(body).header("content-type", content_type).send(&s3)
    };
    send("x", "multipart/form-data").await.refused(400, "MalformedPOSTRequest");
    send("x", "multipart/form-data; boundary=b").await.refused(400, "MalformedPOSTRequest");
    let long = format!("--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\n{}", "k".repeat(30_000));
    send(&long, "multipart/form-data; boundary=b").await.refused(400, "MaxPostPreDataLengthExceededError");
    s3.post("/bkt").body("x").send(&s3).await.refused(412, "PreconditionFailed");
    // The form is looked at before the bucket.
    let elsewhere = s3.post("/none").sign(Sign::Not).body("x").header("content-type", "multipart/form-data");
    elsewhere.send(&s3).await.refused(400, "MalformedPOSTRequest");
    let elsewhere = s3.post("/none").sign(Sign::Not).body(form(&[key, file]));
    let elsewhere = elsewhere.header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"));
    elsewhere.send(&s3).await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn who_sends_a_form_is_verified() {
    let s3 = S3::with_bucket().await;
    let rest = [("key", "k"), ("file", "x")];
    let policy = policy(&format!("{SIGNED},{{\"bucket\":\"bkt\"}},{KEY}"));
    let (credential, date, signature) = signed_form_v4(&policy);
    let good = [
        ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
        ("x-amz-credential", &*credential),
        ("x-amz-date", &*date),
        ("x-amz-signature", &*signature),
        ("policy", &*policy),
    ];
    let with = |name: &str, value: Option<&'static str>| {
        let fields = good.iter().filter(|(other, _)| *other != name).copied();
        let fields: Vec<_> = fields
            .chain(value.map(|value| (good.iter().find(|(other, _)| *other == name).unwrap().0, value)))
            .chain(rest)
            .collect();
        let s3 = &s3;
        async move { post(s3, &fields).await }
    };
    let wrong_day = format!("{ACCESS_KEY}/20200101/{REGION}/s3/aws4_request").leak();
    for (name, value, status, code) in [
        ("x-amz-algorithm", None, 400, "InvalidArgument"),
        ("x-amz-algorithm", Some("AWS4-ECDSA-P256-SHA256"), 400, "InvalidArgument"),
        ("x-amz-credential", None, 400, "InvalidArgument"),
        ("x-amz-credential", Some("AKTEST/us-east-1/s3/aws4_request"), 400, "InvalidArgument"),
        ("x-amz-credential", Some(wrong_day), 400, "InvalidArgument"),
        ("x-amz-date", Some("yesterday"), 400, "InvalidArgument"),
        ("x-amz-signature", None, 400, "InvalidArgument"),
        ("x-amz-signature", Some("00"), 403, "SignatureDoesNotMatch"),
        ("policy", None, 400, "InvalidArgument"),
        ("policy", Some("e30="), 403, "SignatureDoesNotMatch"),
    ] {
        with(name, value).await.refused(status, code);
    }
    post(&s3, &rest).await.refused(403, "AccessDenied");
    let mut fields = [&good[..], &rest].concat();
    let stranger = credential.replace(ACCESS_KEY, "NOBODY");
    fields[1].1 = &stranger;
    post(&s3, &fields).await.refused(403, "InvalidAccessKeyId");
    s3.get("/bkt/k").send(&s3).await.refused(404, "NoSuchKey");
    post(&s3, &[&good[..], &rest].concat()).await.expect(204);
}

#[tokio::test]
async fn signature_version_2_is_an_option() {
    for sigv2 in [false, true] {
        let s3 = S3::with(|options| options.sigv2 = sigv2).await;
        s3.put("/bkt").send(&s3).await.expect(200);
        let policy = policy(&format!("{{\"bucket\":\"bkt\"}},{KEY}"));
        let signature = signed_form_v2(&policy);
        let send = |signature: String| {
            let (s3, policy) = (&s3, &policy);
            async move {
                let fields = [
                    ("key", "k"),
                    ("AWSAccessKeyId", ACCESS_KEY),
                    ("signature", &signature),
                    ("policy", policy),
                    ("file", "x"),
                ];
                post(s3, &fields).await
            }
        };
        match sigv2 {
            true => drop(send(signature).await.expect(204)),
            false => drop(send(signature).await.refused(400, "InvalidRequest")),
        }
        if sigv2 {
            send("AAAA".into()).await.refused(403, "SignatureDoesNotMatch");
        }
    }
}

/// A form says no size: what counts is what came. Who is not let in learns nothing of it.
#[tokio::test]
async fn forms_keep_within_quotas() {
    let s3 = S3::with_iam().await;
    s3.put("/bkt").send(&s3).await.expect(200);
    let quota = serde_json::json!({ "bucket": "bkt", "bytes": 10 });
    let iam = s3.iam.as_ref().unwrap();
    iam.administer("quota/set", serde_json::from_value(quota).unwrap()).await.unwrap();
    let fields = |file| [("key", "k"), ("file", file)];
    signed(&s3, KEY, &fields("12345678901")).await.refused(403, "QuotaExceeded");
    signed(&s3, KEY, &fields("1234567890")).await.expect(204);
    let more = [("key", "l"), ("file", "1")];
    signed(&s3, KEY, &more).await.refused(403, "QuotaExceeded");
    signed(&s3, &format!("{KEY},[\"content-length-range\",1,5]"), &more).await.refused(403, "QuotaExceeded");
    post(&s3, &more).await.refused(403, "AccessDenied");
    let policy = policy(&format!("{SIGNED},{{\"bucket\":\"bkt\"}},{KEY}"));
    let (credential, date, _) = signed_form_v4(&policy);
    let wrong = [
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
        ("X-Amz-Credential", &*credential),
        ("X-Amz-Date", &*date),
        ("X-Amz-Signature", "00"),
        ("Policy", &*policy),
        ("key", "l"),
        ("file", "1"),
    ];
    post(&s3, &wrong).await.refused(403, "SignatureDoesNotMatch");
}

/// What stands in no field is still the request's: where it came from, and how it was signed.
#[tokio::test]
async fn policies_see_what_forms_come_with() {
    let s3 = S3::with(|options| options.sigv2 = true).await;
    s3.put("/bkt").send(&s3).await.expect(200);
    let send = |referer: &'static str, agent: &'static str, version_2: bool| {
        let policy = policy(&format!("{SIGNED},{{\"bucket\":\"bkt\"}},{KEY}"));
        let (credential, date, signature) = signed_form_v4(&policy);
        let plain = self::policy(&format!("{{\"bucket\":\"bkt\"}},{KEY}"));
        let signature_2 = signed_form_v2(&plain);
        let fields = match version_2 {
            true => vec![("AWSAccessKeyId", ACCESS_KEY), ("Signature", &*signature_2), ("Policy", &*plain)],
            false => vec![
                ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
                ("X-Amz-Credential", &*credential),
                ("X-Amz-Date", &*date),
                ("X-Amz-Signature", &*signature),
                ("Policy", &*policy),
                // Of a version that did not verify it.
                ("Signature", "x"),
            ],
        };
        let fields = [&fields[..], &[("key", "k"), ("file", "x")]].concat();
        let call = s3.post("/bkt").sign(Sign::Not).body(form(&fields)).header("referer", referer);
        let call = call.header("user-agent", agent);
        let call = call.header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"));
        let s3 = &s3;
        async move { call.send(s3).await.status }
    };
    let deny = |condition: &str| {
        format!(
            r#"{{"Version":"2012-10-17","Statement":{{"Effect":"Deny","Principal":"*","Action":"s3:PutObject",
            "Resource":"arn:aws:s3:::bkt/*","Condition":{{{condition}}}}}}}"#
        )
    };
    // The condition, and whether a form from a good page, from a bad one, by another program, and in Version 2 is refused.
    let table = [
        (r#""StringNotLike":{"aws:Referer":"https://good/*"}"#, [204, 403, 204, 204]),
        (r#""StringEquals":{"aws:UserAgent":"other"}"#, [204, 204, 403, 204]),
        (r#""StringEquals":{"s3:signatureversion":"AWS"}"#, [204, 204, 204, 403]),
        (r#""StringEquals":{"s3:authType":"POST"}"#, [403, 403, 403, 403]),
        (r#""NumericLessThan":{"s3:signatureAge":"600000"}"#, [403, 403, 403, 204]),
    ];
    for (condition, expected) in table {
        s3.put("/bkt?policy").body(deny(condition)).send(&s3).await.expect(204);
        let got = [
            send("https://good/page", "browser", false).await,
            send("https://bad/page", "browser", false).await,
            send("https://good/page", "other", false).await,
            send("https://good/page", "browser", true).await,
        ];
        assert_eq!(got, expected, "{condition}");
    }
}

/// What is configured while a form comes counts for it: it is a put when its fields are there.
#[tokio::test]
async fn a_form_is_judged_by_what_is_configured_when_it_has_come() {
    let s3 = S3::with_bucket().await;
    let writer = "<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></OwnershipControls>";
    s3.put("/bkt?ownershipControls").body(writer).send(&s3).await.expect(200);
    let block = |blocks: bool| {
        let document = format!(
            "<PublicAccessBlockConfiguration><BlockPublicAcls>{blocks}</BlockPublicAcls></PublicAccessBlockConfiguration>"
        );
        s3.put("/bkt?publicAccessBlock").body(document)
    };
    block(false).send(&s3).await.expect(200);
    let conditions = format!("{KEY},{{\"acl\":\"public-read\"}}");
    let form = || signed_posting(&s3, &conditions, &[("key", "k"), ("acl", "public-read"), ("file", "x")]);
    form().send(&s3).await.expect(204);
    let blocking = async {
        block(true).send(&s3).await.expect(200);
    };
    form().send_slowly(&s3, blocking).await.refused(403, "AccessDenied");
}

/// A form says only in its body who sends it, and for what key.
#[tokio::test]
async fn logs_know_who_sent_a_form() {
    let s3 = S3::with_bucket().await;
    s3.put("/logs").send(&s3).await.expect(200);
    let logging = "<BucketLoggingStatus xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LoggingEnabled>\
        <TargetBucket>logs</TargetBucket><TargetPrefix/></LoggingEnabled></BucketLoggingStatus>";
    s3.put("/bkt?logging").body(logging).send(&s3).await.expect(200);
    signed(&s3, KEY, &[("key", "k"), ("file", "x")]).await.expect(204);
    let owner = s3.get("/bkt?acl").send(&s3).await.expect(200).element("ID").unwrap();
    let (_, lines) = crate::logging::delivered(&s3).await;
    let line = lines.lines().find(|line| line.contains("REST.POST.OBJECT")).unwrap();
    let fields: Vec<&str> = line.split(' ').collect();
    // The time has a space in it.
    assert_eq!((fields[0], fields[5], fields[8]), (&*owner, &*owner, "k"), "{line}");
    assert!(line.contains(" SigV4 - - "), "{line}");
}
