//! Versions of objects.

use crate::harness::S3;

async fn keep(s3: &S3, status: &str) {
    let document = format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
    s3.put("/bkt?versioning").body(document).send(s3).await.expect(200);
}

/// Stores an object; returns its version.
async fn put(s3: &S3, key: &str, body: &str) -> Option<String> {
    let answer = s3.put(&format!("/bkt/{key}")).body(body).send(s3).await.expect(200);
    answer.header("x-amz-version-id").map(str::to_owned)
}

/// Key, version, whether it is the latest, of versions and markers in the order of their kind.
async fn listed(s3: &S3, query: &str) -> Vec<(String, String, String)> {
    let answer = s3.get(&format!("/bkt?versions{query}")).send(s3).await.expect(200);
    let (keys, ids, latest) = (answer.elements("Key"), answer.elements("VersionId"), answer.elements("IsLatest"));
    assert_eq!(keys.len(), latest.len(), "{}", answer.text());
    keys.into_iter().zip(ids).zip(latest).map(|((key, id), latest)| (key, id, latest)).collect()
}

#[tokio::test]
async fn they_are_kept_read_and_deleted() {
    let s3 = S3::with_bucket().await;
    assert!(!s3.get("/bkt?versioning").send(&s3).await.expect(200).text().contains("Status"));
    assert_eq!(put(&s3, "k", "before").await, None);
    assert_eq!(s3.get("/bkt/k").send(&s3).await.header("x-amz-version-id"), None);
    keep(&s3, "Enabled").await;
    assert_eq!(s3.get("/bkt?versioning").send(&s3).await.element("Status").as_deref(), Some("Enabled"));
    assert_eq!(s3.get("/bkt/k").send(&s3).await.header("x-amz-version-id"), Some("null"));
    let first = put(&s3, "k", "first").await.unwrap();
    let second = put(&s3, "k", "second").await.unwrap();
    for (version, body) in [("null", "before"), (&first, "first"), (&second, "second")] {
        let read = s3.get(&format!("/bkt/k?versionId={version}")).send(&s3).await.expect(200);
        assert_eq!((read.text().as_str(), read.header("x-amz-version-id")), (body, Some(version)));
    }
    let deleted = s3.delete("/bkt/k").send(&s3).await.expect(204);
    let marker = deleted.header("x-amz-version-id").unwrap().to_owned();
    assert_eq!(deleted.header("x-amz-delete-marker"), Some("true"));
    let gone = s3.get("/bkt/k").send(&s3).await.refused(404, "NoSuchKey");
    assert_eq!((gone.header("x-amz-delete-marker"), gone.header("x-amz-version-id")), (Some("true"), Some(&*marker)));
    let refused = s3.get(&format!("/bkt/k?versionId={marker}")).send(&s3).await.refused(405, "MethodNotAllowed");
    assert_eq!(refused.header("x-amz-delete-marker"), Some("true"));
    assert!(refused.header("last-modified").is_some());
    let row = |id: &str, latest: &str| ("k".to_owned(), id.to_owned(), latest.to_owned());
    assert_eq!(
        listed(&s3, "").await,
        [row(&marker, "true"), row(&second, "false"), row(&first, "false"), row("null", "false")]
    );
    s3.delete("/bkt").send(&s3).await.refused(409, "BucketNotEmpty");
    let undone = s3.delete(&format!("/bkt/k?versionId={marker}")).send(&s3).await.expect(204);
    assert_eq!(undone.header("x-amz-delete-marker"), Some("true"));
    assert_eq!(s3.get("/bkt/k").send(&s3).await.text(), "second");
    s3.delete(&format!("/bkt/k?versionId={second}")).send(&s3).await.expect(204);
    assert_eq!(s3.get("/bkt/k").send(&s3).await.text(), "first");
    for version in [&first, "null", &first] {
        let deleted = s3.delete(&format!("/bkt/k?versionId={version}")).send(&s3).await.expect(204);
        assert_eq!(deleted.header("x-amz-version-id"), Some(version));
    }
    assert_eq!(listed(&s3, "").await, []);
    s3.delete("/bkt").send(&s3).await.expect(204);
}

#[tokio::test]
async fn a_suspended_bucket_has_one_null_version() {
    let s3 = S3::with_bucket().await;
    keep(&s3, "Enabled").await;
    let kept = put(&s3, "k", "kept").await.unwrap();
    keep(&s3, "Suspended").await;
    assert_eq!(put(&s3, "k", "one").await, None);
    assert_eq!(put(&s3, "k", "two").await, None);
    assert_eq!(s3.get("/bkt/k").send(&s3).await.header("x-amz-version-id"), Some("null"));
    assert_eq!(listed(&s3, "").await.len(), 2);
    // As on AWS, a copy tells of the null version that it makes, but not of the one that it reads.
    let copied = s3.put("/bkt/k").header("x-amz-copy-source", "/bkt/k").header("x-amz-metadata-directive", "REPLACE");
    let copied = copied.send(&s3).await.expect(200);
    assert_eq!(
        (copied.header("x-amz-version-id"), copied.header("x-amz-copy-source-version-id")),
        (Some("null"), None)
    );
    let deleted = s3.delete("/bkt/k").send(&s3).await.expect(204);
    assert_eq!(deleted.header("x-amz-version-id"), Some("null"));
    let rows: Vec<_> = listed(&s3, "").await.into_iter().map(|(_, id, latest)| (id, latest)).collect();
    assert_eq!(rows, [("null".to_owned(), "true".to_owned()), (kept, "false".to_owned())]);
}

#[tokio::test]
async fn lists_go_on_where_they_ended() {
    let s3 = S3::with_bucket().await;
    keep(&s3, "Enabled").await;
    for key in ["a", "b/1", "b/2", "c"] {
        for _ in 0..3 {
            put(&s3, key, "x").await;
        }
    }
    let all = listed(&s3, "").await;
    assert_eq!(all.len(), 12);
    let (mut got, mut marker) = (Vec::new(), String::new());
    loop {
        let page = s3.get(&format!("/bkt?versions&max-keys=5{marker}")).send(&s3).await.expect(200);
        got.extend(page.elements("VersionId"));
        let Some(key) = page.element("NextKeyMarker") else { break };
        marker = format!("&key-marker={key}&version-id-marker={}", page.element("NextVersionIdMarker").unwrap());
    }
    assert_eq!(got, all.iter().map(|(_, id, _)| id.clone()).collect::<Vec<_>>());
    let folded = s3.get("/bkt?versions&delimiter=/").send(&s3).await.expect(200);
    assert_eq!((folded.elements("VersionId").len(), folded.elements("CommonPrefixes").len()), (6, 1));
    s3.get("/bkt?versions&version-id-marker=null").send(&s3).await.refused(400, "InvalidArgument");
    s3.get("/bkt?versions&key-marker=a&version-id-marker=x").send(&s3).await.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn copies_tags_and_attributes_name_them() {
    let s3 = S3::with_bucket().await;
    keep(&s3, "Enabled").await;
    let old = put(&s3, "k", "old").await.unwrap();
    put(&s3, "k", "new").await;
    let source = format!("/bkt/k?versionId={old}");
    let copied = s3.put("/bkt/k").header("x-amz-copy-source", &source).send(&s3).await.expect(200);
    assert_eq!(copied.header("x-amz-copy-source-version-id"), Some(&*old));
    let current = s3.head("/bkt/k").send(&s3).await.expect(200).header("x-amz-version-id").map(str::to_owned);
    let unnamed = s3.put("/bkt/other").header("x-amz-copy-source", "/bkt/k").send(&s3).await.expect(200);
    assert_eq!(unnamed.header("x-amz-copy-source-version-id").map(str::to_owned), current);
    assert!(copied.header("x-amz-version-id").is_some_and(|version| version != old));
    assert_eq!(s3.get("/bkt/k").send(&s3).await.text(), "old");
    let tagging = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    let tagged = s3.put(&format!("/bkt/k?tagging&versionId={old}")).body(tagging).send(&s3).await.expect(200);
    assert_eq!(tagged.header("x-amz-version-id"), Some(&*old));
    assert_eq!(s3.get("/bkt/k?tagging").send(&s3).await.elements("Tag").len(), 0);
    let attributes =
        s3.get(&format!("/bkt/k?attributes&versionId={old}")).header("x-amz-object-attributes", "ObjectSize");
    assert_eq!(attributes.send(&s3).await.expect(200).header("x-amz-version-id"), Some(&*old));
    let delete = format!(
        "<Delete><Object><Key>k</Key><VersionId>{old}</VersionId></Object><Object><Key>k</Key></Object>\
         <Object><Key>k</Key><VersionId>zz</VersionId></Object></Delete>"
    );
    let deleted = s3.post("/bkt?delete").body(delete).md5().send(&s3).await.expect(200);
    assert_eq!(deleted.elements("DeleteMarker"), ["true"]);
    assert_eq!(deleted.elements("Code"), ["NoSuchVersion"]);
    s3.get(&format!("/bkt/k?versionId={old}")).send(&s3).await.refused(404, "NoSuchVersion");
    s3.put("/bkt/x").header("x-amz-copy-source", &source).send(&s3).await.refused(404, "NoSuchVersion");
    s3.get("/bkt/k?versionId=nonsense").send(&s3).await.refused(400, "InvalidArgument");
    // Ids of the forms that other servers give are of versions that are not here.
    for elsewhere in ["01BX5ZZKBKACTAV9WEVGEMMVRZ", "f5b1a4a2-0f0a-4a53-9d1e-3b0e7a1c2d4e"] {
        let target = format!("/bkt/k?versionId={elsewhere}");
        let missing = s3.get(&target).send(&s3).await.refused(404, "NoSuchVersion");
        assert!(!missing.text().contains("ffffffff"), "{}", missing.text());
        let deleted = s3.delete(&target).send(&s3).await.expect(204);
        assert_eq!(deleted.header("x-amz-version-id"), Some(elsewhere));
    }
    s3.get("/bkt/k?versionId=").send(&s3).await.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn what_versioning_can_not_be() {
    let s3 = S3::with_bucket().await;
    let mfa =
        "<VersioningConfiguration><Status>Enabled</Status><MfaDelete>Enabled</MfaDelete></VersioningConfiguration>";
    s3.put("/bkt?versioning").body(mfa).send(&s3).await.refused(501, "NotImplemented");
    for document in
        ["<VersioningConfiguration/>", "<VersioningConfiguration><Status>On</Status></VersioningConfiguration>"]
    {
        let code = if document.contains("On") { "MalformedXML" } else { "IllegalVersioningConfigurationException" };
        s3.put("/bkt?versioning").body(document).send(&s3).await.refused(400, code);
    }
    s3.get("/none?versioning").send(&s3).await.refused(404, "NoSuchBucket");
    s3.get("/none?versions").send(&s3).await.refused(404, "NoSuchBucket");
}
