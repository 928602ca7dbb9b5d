//! Object lock.

use crate::harness::S3;

const FAR: &str = "2099-01-01T00:00:00.000Z";
const FARTHER: &str = "2099-06-01T00:00:00.000Z";

async fn with_lock() -> S3 {
    let s3 = S3::new().await;
    s3.put("/bkt").header("x-amz-bucket-object-lock-enabled", "true").send(&s3).await.expect(200);
    s3
}

fn retention(mode: &str, until: &str) -> String {
    format!("<Retention><Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>")
}

async fn put(s3: &S3, headers: &[(&str, &str)]) -> String {
    let mut put = s3.put("/bkt/k").body("x");
    for (name, value) in headers {
        put = put.header(name, *value);
    }
    put.send(s3).await.expect(200).header("x-amz-version-id").unwrap().to_owned()
}

#[tokio::test]
async fn governance_yields_to_those_who_may_and_compliance_to_nobody() {
    let s3 = with_lock().await;
    assert_eq!(s3.get("/bkt?versioning").send(&s3).await.element("Status").as_deref(), Some("Enabled"));
    for (mode, yields) in [("GOVERNANCE", true), ("COMPLIANCE", false)] {
        let headers = [("x-amz-object-lock-mode", mode), ("x-amz-object-lock-retain-until-date", FAR)];
        let version = put(&s3, &headers).await;
        let named = format!("/bkt/k?versionId={version}");
        let shown = s3.head(&named).send(&s3).await.expect(200);
        assert_eq!(shown.header("x-amz-object-lock-mode"), Some(mode));
        assert_eq!(shown.header("x-amz-object-lock-retain-until-date"), Some(FAR));
        s3.delete(&named).send(&s3).await.refused(403, "AccessDenied");
        // A marker comes over it, and neither copies nor overwrites hurt it.
        s3.delete("/bkt/k").send(&s3).await.expect(204);
        let target = format!("/bkt/k?retention&versionId={version}");
        s3.put(&target).body(retention(mode, FARTHER)).send(&s3).await.expect(200);
        s3.put(&target).body(retention(mode, FAR)).send(&s3).await.refused(403, "AccessDenied");
        s3.put(&target).body("<Retention/>").send(&s3).await.refused(403, "AccessDenied");
        let delete = format!("<Delete><Object><Key>k</Key><VersionId>{version}</VersionId></Object></Delete>");
        let many = s3.post("/bkt?delete").body(delete).md5().send(&s3).await.expect(200);
        assert_eq!(many.elements("Code"), ["AccessDenied"]);
        let bypassing = s3.delete(&named).header("x-amz-bypass-governance-retention", "true").send(&s3).await;
        if yields {
            bypassing.expect(204)
        } else {
            bypassing.refused(403, "AccessDenied")
        };
    }
}

#[tokio::test]
async fn a_held_version_stays_until_the_hold_is_taken_back() {
    let s3 = with_lock().await;
    let version = put(&s3, &[("x-amz-object-lock-legal-hold", "ON")]).await;
    let hold = |status: &str| format!("<LegalHold><Status>{status}</Status></LegalHold>");
    assert_eq!(s3.get("/bkt/k?legal-hold").send(&s3).await.expect(200).element("Status").as_deref(), Some("ON"));
    s3.delete(&format!("/bkt/k?versionId={version}")).send(&s3).await.refused(403, "AccessDenied");
    s3.put("/bkt/k?legal-hold").body(hold("MAYBE")).send(&s3).await.refused(400, "MalformedXML");
    for empty in ["/bkt/k?legal-hold", "/bkt/k?retention"] {
        s3.put(empty).send(&s3).await.refused(400, "MalformedXML");
    }
    s3.put("/bkt/k?legal-hold").body(hold("OFF")).send(&s3).await.expect(200);
    s3.delete(&format!("/bkt/k?versionId={version}")).send(&s3).await.expect(204);
}

#[tokio::test]
async fn a_bucket_gives_its_objects_a_time() {
    let s3 = with_lock().await;
    let bare = s3.get("/bkt?object-lock").send(&s3).await.expect(200);
    assert_eq!((bare.element("ObjectLockEnabled").as_deref(), bare.element("Rule")), (Some("Enabled"), None));
    let rule = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
        <Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
    s3.put("/bkt?object-lock").body(rule).send(&s3).await.expect(200);
    assert_eq!(s3.get("/bkt?object-lock").send(&s3).await.expect(200).element("Days").as_deref(), Some("1"));
    let version = put(&s3, &[]).await;
    assert_eq!(s3.get("/bkt/k?retention").send(&s3).await.expect(200).element("Mode").as_deref(), Some("GOVERNANCE"));
    s3.delete(&format!("/bkt/k?versionId={version}")).send(&s3).await.refused(403, "AccessDenied");
    let suspend = "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";
    s3.put("/bkt?versioning").body(suspend).send(&s3).await.refused(409, "InvalidBucketState");
    let copied = s3.put("/bkt/copy").header("x-amz-copy-source", "/bkt/k").send(&s3).await.expect(200);
    let copy = copied.header("x-amz-version-id").unwrap().to_owned();
    s3.delete(&format!("/bkt/copy?versionId={copy}")).send(&s3).await.refused(403, "AccessDenied");
}

/// What an object of one part is kept by whose upload is begun with these headers, and completed under `rule`.
async fn uploaded_under(s3: &S3, headers: &[(&str, &str)], rule: &str) -> Option<(String, String)> {
    let mut create = s3.post("/bkt/k?uploads");
    for (name, value) in headers {
        create = create.header(name, *value);
    }
    let upload = create.send(s3).await.expect(200).element("UploadId").unwrap();
    let part = s3.put(&format!("/bkt/k?uploadId={upload}&partNumber=1")).body("x").send(s3).await.expect(200);
    let etag = part.header("etag").unwrap();
    s3.put("/bkt?object-lock").body(rule.to_owned()).send(s3).await.expect(200);
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    let complete = || s3.post(&format!("/bkt/k?uploadId={upload}")).body(document.clone()).send(s3);
    let version = complete().await.expect(200).header("x-amz-version-id").unwrap().to_owned();
    assert_eq!(complete().await.expect(200).header("x-amz-version-id"), Some(&*version), "it is answered again");
    let shown = s3.head(&format!("/bkt/k?versionId={version}")).send(s3).await.expect(200);
    let header = |name: &str| shown.header(name).map(str::to_owned);
    header("x-amz-object-lock-mode").zip(header("x-amz-object-lock-retain-until-date"))
}

/// An upload that was begun before there was a rule ended unprotected.
#[tokio::test]
async fn uploads_in_parts_are_kept_by_the_rule_that_they_are_completed_under() {
    let s3 = with_lock().await;
    let none = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>";
    let rule = |days: u32| {
        let retention =
            format!("<Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>{days}</Days></DefaultRetention></Rule>");
        none.replace("</ObjectLockConfiguration>", &format!("{retention}</ObjectLockConfiguration>"))
    };
    let day = |shown: Option<(String, String)>| shown.map(|(_, until)| until[..10].to_owned());
    let (mode, until) = uploaded_under(&s3, &[], &rule(1)).await.unwrap();
    let long = day(uploaded_under(&s3, &[], &rule(300)).await).unwrap();
    assert!(mode == "GOVERNANCE" && until[..10] < *long, "{mode} {until} {long}");
    assert_eq!(uploaded_under(&s3, &[], none).await, None);
    let own = [("x-amz-object-lock-mode", "COMPLIANCE"), ("x-amz-object-lock-retain-until-date", FAR)];
    assert_eq!(uploaded_under(&s3, &own, &rule(1)).await, Some(("COMPLIANCE".into(), FAR.into())));
    let held = [("x-amz-object-lock-legal-hold", "ON")];
    assert!(day(uploaded_under(&s3, &held, &rule(300)).await) >= Some(long));
}

/// What is taken for an empty document protects nothing.
#[tokio::test]
async fn documents_that_are_not_understood_change_nothing() {
    let s3 = with_lock().await;
    let rule = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
        <Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
    s3.put("/bkt?object-lock").body(rule).send(&s3).await.expect(200);
    put(&s3, &[]).await;
    let documents = ["/bkt?object-lock", "/bkt/k?retention"];
    let mut before = Vec::new();
    for target in documents {
        before.push(s3.get(target).send(&s3).await.expect(200).text());
    }
    let bare = rule.replace("<Rule>", "").replace("</Rule>", "");
    s3.put("/bkt?object-lock").body(bare).send(&s3).await.refused(400, "MalformedXML");
    let lower = format!("<Retention><mode>COMPLIANCE</mode><retainUntilDate>{FAR}</retainUntilDate></Retention>");
    let put = s3.put("/bkt/k?retention").body(lower).header("x-amz-bypass-governance-retention", "true");
    put.send(&s3).await.refused(400, "MalformedXML");
    for (target, before) in documents.iter().zip(before) {
        assert_eq!(s3.get(target).send(&s3).await.expect(200).text(), before);
    }
    // An empty one says that there is none.
    let none = s3.put("/bkt/k?retention").body("<Retention/>").header("x-amz-bypass-governance-retention", "true");
    none.send(&s3).await.expect(200);
    s3.get("/bkt/k?retention").send(&s3).await.refused(404, "NoSuchObjectLockConfiguration");
}

#[tokio::test]
async fn without_lock_there_is_none() {
    let s3 = S3::with_bucket().await;
    s3.get("/bkt?object-lock").send(&s3).await.refused(404, "ObjectLockConfigurationNotFoundError");
    let document = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>";
    s3.put("/bkt?object-lock").body(document).send(&s3).await.refused(409, "InvalidBucketState");
    s3.get("/bkt/k?retention").send(&s3).await.refused(404, "NoSuchKey");
    s3.get("/bkt/k?legal-hold").send(&s3).await.refused(404, "NoSuchKey");
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    s3.get("/bkt/k?retention").send(&s3).await.refused(400, "InvalidRequest");
    s3.put("/bkt/k?legal-hold")
        .body("<LegalHold><Status>MAYBE</Status></LegalHold>")
        .send(&s3)
        .await
        .refused(400, "MalformedXML");
    // It would be refused on AWS; here it says nothing.
    s3.delete("/bkt/none").header("x-amz-bypass-governance-retention", "true").send(&s3).await.expect(204);
    s3.put("/bkt/k?legal-hold")
        .body("<LegalHold><Status>ON</Status></LegalHold>")
        .send(&s3)
        .await
        .refused(400, "InvalidRequest");
    for headers in [
        &[("x-amz-object-lock-legal-hold", "ON")][..],
        &[("x-amz-object-lock-mode", "GOVERNANCE"), ("x-amz-object-lock-retain-until-date", FAR)],
    ] {
        let mut put = s3.put("/bkt/k").body("x");
        for (name, value) in headers {
            put = put.header(name, *value);
        }
        put.send(&s3).await.refused(400, "InvalidRequest");
    }
    // What makes no sense is refused whatever the bucket is.
    for s3 in [s3, with_lock().await] {
        for headers in [
            &[("x-amz-object-lock-mode", "GOVERNANCE")][..],
            &[("x-amz-object-lock-retain-until-date", FAR)],
            &[("x-amz-object-lock-mode", "governance"), ("x-amz-object-lock-retain-until-date", FAR)],
            &[("x-amz-object-lock-mode", "GOVERNANCE"), ("x-amz-object-lock-retain-until-date", "tomorrow")],
            &[
                ("x-amz-object-lock-mode", "GOVERNANCE"),
                ("x-amz-object-lock-retain-until-date", "2001-01-01T00:00:00Z"),
            ],
            &[("x-amz-object-lock-legal-hold", "on")],
        ] {
            for mut call in [s3.put("/bkt/k").body("x"), s3.post("/bkt/k?uploads")] {
                for (name, value) in headers {
                    call = call.header(name, *value);
                }
                call.send(&s3).await.refused(400, "InvalidArgument");
            }
        }
    }
}

#[tokio::test]
async fn delete_markers_are_told_as_such() {
    let s3 = with_lock().await;
    put(&s3, &[]).await;
    let marker = s3.delete("/bkt/k").send(&s3).await.expect(204).header("x-amz-version-id").unwrap().to_owned();
    let tags = "<Tagging><TagSet/></Tagging>";
    for target in ["/bkt/k?".to_owned(), format!("/bkt/k?versionId={marker}&")] {
        for (call, body) in [
            (s3.get(&format!("{target}retention")), ""),
            (s3.get(&format!("{target}legal-hold")), ""),
            (s3.get(&format!("{target}tagging")), ""),
            (s3.delete(&format!("{target}tagging")), ""),
            (s3.put(&format!("{target}tagging")), tags),
            (s3.put(&format!("{target}retention")), "<Retention/>"),
        ] {
            call.body(body).send(&s3).await.refused(405, "MethodNotAllowed");
        }
    }
    s3.get("/bkt/k?attributes").header("x-amz-object-attributes", "ETag").send(&s3).await.refused(404, "NoSuchKey");
}
