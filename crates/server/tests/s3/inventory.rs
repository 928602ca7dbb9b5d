//! Inventories: configured, made, and delivered.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use flate2::read::GzDecoder;
use gabion_server::inventory::{InventoryFigures, InventoryOptions};
use gabion_store::ConfigScope;
use gabion_types::BucketName;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

use crate::access::{ALT, USER, Users, account, by};
use crate::harness::{Answer, S3};

/// A daily inventory of current objects to `reports`, below `in`, in which some texts are replaced by others.
fn inventory(id: &str, changes: &[(&str, &str)]) -> String {
    let mut document = format!(
        "<InventoryConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Id>{id}</Id><IsEnabled>true</IsEnabled>\
         <Filter><Prefix></Prefix></Filter><Destination><S3BucketDestination><Format>CSV</Format>\
         <Bucket>arn:aws:s3:::reports</Bucket><Prefix>in</Prefix></S3BucketDestination></Destination>\
         <Schedule><Frequency>Daily</Frequency></Schedule><IncludedObjectVersions>Current</IncludedObjectVersions>\
         <OptionalFields><Field>Size</Field><Field>ETag</Field></OptionalFields></InventoryConfiguration>"
    );
    for (from, to) in changes {
        assert!(document.contains(from), "{from}");
        document = document.replace(from, to);
    }
    document
}

async fn put(s3: &S3, id: &str, changes: &[(&str, &str)]) -> Answer {
    s3.put(&format!("/bkt?inventory&id={id}")).body(inventory(id, changes)).send(s3).await
}

async fn server() -> S3 {
    let s3 = S3::with_bucket().await;
    s3.put("/reports").send(&s3).await.expect(200);
    s3
}

/// Makes what is due, with days as they are.
async fn make(s3: &S3) {
    make_with(s3, None).await;
}

async fn make_with(s3: &S3, debug_day_ms: Option<u64>) {
    let figures = Arc::new(InventoryFigures::default());
    s3.service.make_inventories(InventoryOptions { debug_day_ms }, figures).await.unwrap();
}

async fn keys(s3: &S3, bucket: &str) -> Vec<String> {
    s3.get(&format!("/{bucket}?list-type=2")).send(s3).await.expect(200).elements("Key")
}

/// The manifests of reports.
async fn manifests(s3: &S3) -> Vec<serde_json::Value> {
    let mut found = Vec::new();
    for key in keys(s3, "reports").await.iter().filter(|key| key.ends_with("manifest.json")) {
        let text = s3.get(&format!("/reports/{key}")).send(s3).await.expect(200).text();
        found.push(serde_json::from_str(&text).unwrap());
    }
    found
}

/// The bytes of the data files of a report.
async fn data(s3: &S3, manifest: &serde_json::Value) -> Vec<Bytes> {
    let mut found = Vec::new();
    for file in manifest["files"].as_array().unwrap() {
        let got = s3.get(&format!("/reports/{}", file["key"].as_str().unwrap())).send(s3).await.expect(200);
        assert_eq!(file["size"], got.body.len());
        assert_eq!(got.header("etag").unwrap().trim_matches('"'), file["MD5checksum"].as_str().unwrap());
        found.push(got.body);
    }
    found
}

/// The lines of a report in CSV, without quotes.
async fn lines(s3: &S3, manifest: &serde_json::Value) -> Vec<Vec<String>> {
    let mut text = String::new();
    for bytes in data(s3, manifest).await {
        GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    }
    let fields = |line: &str| {
        let inner = line.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
        inner.split("\",\"").map(str::to_owned).collect()
    };
    text.lines().map(fields).collect()
}

#[tokio::test]
async fn inventories_are_kept_listed_and_deleted() {
    let s3 = server().await;
    s3.get("/bkt?inventory&id=a").send(&s3).await.refused(404, "NoSuchConfiguration");
    s3.delete("/bkt?inventory&id=a").send(&s3).await.refused(404, "NoSuchConfiguration");
    for number in 0..101 {
        put(&s3, &format!("id-{number:03}"), &[]).await.expect(200);
    }
    let shown = s3.get("/bkt?inventory&id=id-007").send(&s3).await.expect(200);
    assert_eq!(shown.element("Bucket").as_deref(), Some("arn:aws:s3:::reports"));
    assert_eq!(shown.elements("Field"), ["Size", "ETag"]);
    let first = s3.get("/bkt?inventory").send(&s3).await.expect(200);
    assert_eq!((first.elements("Id").len(), first.element("IsTruncated").as_deref()), (100, Some("true")));
    let token = first.element("NextContinuationToken").unwrap();
    let second = s3.get(&format!("/bkt?inventory&continuation-token={token}")).send(&s3).await.expect(200);
    assert_eq!(
        (second.elements("Id"), second.element("IsTruncated").as_deref()),
        (vec!["id-100".into()], Some("false"))
    );
    s3.get("/bkt?inventory&continuation-token=x").send(&s3).await.refused(400, "InvalidArgument");
    s3.delete("/bkt?inventory&id=id-007").send(&s3).await.expect(204);
    s3.get("/bkt?inventory&id=id-007").send(&s3).await.refused(404, "NoSuchConfiguration");
    s3.get("/none?inventory").send(&s3).await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn inventories_are_checked() {
    let s3 = server().await;
    for (changes, status, code) in [
        (&[("reports", "missing")][..], 400, "InvalidS3DestinationBucket"),
        (&[("arn:aws:s3:::", "")], 400, "InvalidS3DestinationBucket"),
        (&[("<Format>", "<AccountId>123456789012</AccountId><Format>")], 400, "InvalidS3DestinationBucket"),
        (&[("CSV", "ORC")], 501, "NotImplemented"),
        (&[("Daily", "Hourly")], 400, "MalformedXML"),
        (&[("<Id>a</Id>", "<Id>b</Id>")], 400, "InvalidArgument"),
    ] {
        put(&s3, "a", changes).await.refused(status, code);
    }
    s3.put("/bkt?inventory").body(inventory("a", &[])).send(&s3).await.refused(400, "InvalidArgument");
    s3.put("/none?inventory&id=a").body(inventory("a", &[])).send(&s3).await.refused(404, "NoSuchBucket");
    let own = format!("<AccountId>{}</AccountId><Format>", gabion_server::credentials::Account::first("").id);
    put(&s3, "a", &[("<Format>", &own)]).await.expect(200);
    assert_eq!(s3.get("/bkt?inventory").send(&s3).await.elements("Id"), ["a"]);
}

#[tokio::test]
async fn a_bucket_has_two_hundred_inventories_at_most() {
    let s3 = server().await;
    let scope = ConfigScope::Bucket(BucketName::new("bkt").unwrap());
    for number in 0..199 {
        s3.store.put_config(scope.clone(), &format!("inventory/{number}"), Bytes::from("x")).await.unwrap();
    }
    put(&s3, "last", &[]).await.expect(200);
    put(&s3, "more", &[]).await.refused(400, "TooManyConfigurations");
    put(&s3, "last", &[("Daily", "Weekly")]).await.expect(200);
    let fields = "<Field>Size</Field>".repeat(100);
    put(&s3, "last", &[("<Field>Size</Field>", &*fields)]).await.refused(400, "InvalidRequest");
}

#[tokio::test]
async fn a_report_lists_what_is_there() {
    let s3 = server().await;
    let odd = "a%20b%2B%22%C3%BC%2C/c";
    for (key, body) in [("k1", "1"), (odd, "22"), ("other/k", "333")] {
        s3.put(&format!("/bkt/{key}")).body(body).send(&s3).await.expect(200);
    }
    put(&s3, "all", &[]).await.expect(200);
    put(&s3, "some", &[("<Prefix></Prefix>", "<Prefix>other/</Prefix>"), ("<Prefix>in</Prefix>", "")])
        .await
        .expect(200);
    put(&s3, "off", &[("<IsEnabled>true", "<IsEnabled>false")]).await.expect(200);
    make(&s3).await;
    let found = manifests(&s3).await;
    // Those below `bkt/` come before those below `in/`.
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(lines(&s3, &found[0]).await.len(), 1);
    let all = &found[1];
    assert_eq!((&all["sourceBucket"], &all["version"]), (&"bkt".into(), &"2016-11-30".into()));
    assert_eq!((&all["fileFormat"], &all["fileSchema"]), (&"CSV".into(), &"Bucket, Key, Size, ETag".into()));
    let etag = |key: &str| {
        let target = format!("/bkt/{key}");
        let head = s3.head(&target).send(&s3);
        async move { head.await.header("etag").unwrap().trim_matches('"').to_owned() }
    };
    let row = |key: &str, size: &str, etag: String| vec!["bkt".to_owned(), key.to_owned(), size.to_owned(), etag];
    let expected =
        [row(odd, "2", etag(odd).await), row("k1", "1", etag("k1").await), row("other/k", "3", etag("other/k").await)];
    assert_eq!(lines(&s3, all).await, expected);
    let names = keys(&s3, "reports").await;
    let data: Vec<_> = names.iter().filter(|name| name.starts_with("in/bkt/all/data/")).collect();
    let name = names.iter().find(|name| name.starts_with("in/bkt/all/") && name.ends_with("/manifest.json")).unwrap();
    let checksum = s3.get(&format!("/reports/{}.checksum", name.trim_end_matches(".json"))).send(&s3).await.expect(200);
    let manifest = s3.head(&format!("/reports/{name}")).send(&s3).await.expect(200);
    assert_eq!(manifest.header("etag").unwrap().trim_matches('"'), checksum.text());
    let symlink = names.iter().find(|name| name.starts_with("in/bkt/all/hive/dt=")).unwrap();
    let symlink = s3.get(&format!("/reports/{symlink}")).send(&s3).await.expect(200).text();
    assert_eq!(symlink, format!("s3://reports/{}\n", data[0]));
    // What was made of a day is not made again, also by a server that was started again.
    make(&s3).await;
    assert_eq!(keys(&s3, "reports").await, names);
    make_with(&s3, Some(1)).await;
    assert!(keys(&s3, "reports").await.len() > names.len(), "the next day has its own");
}

#[tokio::test]
async fn versions_are_listed_where_they_are_asked_for() {
    let s3 = server().await;
    s3.put("/bkt/k").body("null").send(&s3).await.expect(200);
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    s3.put("/bkt?versioning").body(versioning).send(&s3).await.expect(200);
    let version = s3.put("/bkt/k").body("x").send(&s3).await.expect(200).header("x-amz-version-id").unwrap().to_owned();
    let marker = s3.delete("/bkt/k").send(&s3).await.expect(204).header("x-amz-version-id").unwrap().to_owned();
    s3.put("/bkt/l").body("y").send(&s3).await.expect(200);
    put(&s3, "all", &[("Current", "All"), ("<Field>ETag</Field>", "<Field>EncryptionStatus</Field>")])
        .await
        .expect(200);
    make(&s3).await;
    let found = manifests(&s3).await;
    let schema = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, EncryptionStatus";
    assert_eq!(found[0]["fileSchema"], schema);
    let mut lines = lines(&s3, &found[0]).await;
    let last = lines.pop().unwrap();
    let expected = [
        ["bkt", "k", &*marker, "true", "true", "", ""],
        ["bkt", "k", &*version, "false", "false", "1", "NOT-SSE"],
        ["bkt", "k", "", "false", "false", "4", "NOT-SSE"],
    ];
    assert_eq!(lines, expected);
    assert_eq!(last[1], "l");
}

#[tokio::test]
async fn pages_follow_one_another_in_either_format() {
    let s3 = server().await;
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    s3.put("/bkt?versioning").body(versioning).send(&s3).await.expect(200);
    for number in 0..1002 {
        s3.put(&format!("/bkt/{:03}", number / 2)).body("x").send(&s3).await.expect(200);
    }
    put(&s3, "csv", &[("Current", "All")]).await.expect(200);
    put(&s3, "parquet", &[("Current", "All"), ("CSV", "Parquet")]).await.expect(200);
    put(&s3, "parquet-current", &[("CSV", "Parquet")]).await.expect(200);
    make(&s3).await;
    let found = manifests(&s3).await;
    let lines = lines(&s3, &found[0]).await;
    assert_eq!(lines.len(), 1002);
    // `parquet-current/` comes before `parquet/`.
    for (manifest, count) in [(&found[1], 501), (&found[2], 1002)] {
        let files = data(&s3, manifest).await;
        assert_eq!(files.len(), 1);
        let reader = SerializedFileReader::new(files[0].clone()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), count);
        let keys: Vec<&str> = rows.iter().map(|row| row.get_string(1).unwrap().as_str()).collect();
        assert!(keys.is_sorted());
        if count == lines.len() {
            let versions = rows.iter().map(|row| (row.get_string(2).unwrap(), row.get_bool(3).unwrap().to_string()));
            assert!(versions.eq(lines.iter().map(|line| (&line[2], line[3].clone()))), "as in CSV");
        }
    }
}

#[tokio::test]
async fn a_report_that_is_cut_off_is_made_again_under_its_names() {
    let s3 = server().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    put(&s3, "a", &[]).await.expect(200);
    make(&s3).await;
    let names = keys(&s3, "reports").await;
    // As it is when a server ends before its manifest is written.
    let scope = ConfigScope::Bucket(BucketName::new("bkt").unwrap());
    let configs = s3.store.bucket_configs(&BucketName::new("bkt").unwrap()).unwrap();
    let run = String::from_utf8(configs.get("inventory-run/a").unwrap().to_vec()).unwrap();
    assert!(run.contains("\"is_done\":true"), "{run}");
    let undone = run.replace("\"is_done\":true", "\"is_done\":false");
    s3.store.put_config(scope.clone(), "inventory-run/a", Bytes::from(undone)).await.unwrap();
    for name in names.iter().filter(|name| name.contains("/manifest.")) {
        s3.delete(&format!("/reports/{name}")).send(&s3).await.expect(204);
    }
    make(&s3).await;
    assert_eq!(keys(&s3, "reports").await, names);
    // Who asks for it anew gets another one.
    s3.delete("/bkt?inventory&id=a").send(&s3).await.expect(204);
    let configs = s3.store.bucket_configs(&BucketName::new("bkt").unwrap()).unwrap();
    assert!(configs.get("inventory-run/a").is_none());
    // Also if the deletion of the one before did not come to its end.
    s3.store.put_config(scope, "inventory-run/a", Bytes::from(run)).await.unwrap();
    put(&s3, "a", &[]).await.expect(200);
    make(&s3).await;
    assert!(keys(&s3, "reports").await.len() > names.len());
}

#[tokio::test]
async fn another_schedule_goes_on_from_the_last_report() {
    const WEEK_MS: u64 = 7 * 24 * 60 * 60 * 1000;
    let s3 = server().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    put(&s3, "a", &[]).await.expect(200);
    make(&s3).await;
    let names = keys(&s3, "reports").await;
    put(&s3, "a", &[("Daily", "Weekly")]).await.expect(200);
    make(&s3).await;
    assert_eq!(keys(&s3, "reports").await, names, "this week has one");
    // As it is a week later.
    let bucket = BucketName::new("bkt").unwrap();
    let configs = s3.store.bucket_configs(&bucket).unwrap();
    let mut run: serde_json::Value = serde_json::from_slice(configs.get("inventory-run/a").unwrap()).unwrap();
    run["begun_ms"] = (run["begun_ms"].as_u64().unwrap() - WEEK_MS).into();
    let scope = ConfigScope::Bucket(bucket);
    s3.store.put_config(scope, "inventory-run/a", Bytes::from(run.to_string())).await.unwrap();
    make(&s3).await;
    assert!(keys(&s3, "reports").await.len() > names.len());
}

#[tokio::test]
async fn a_report_comes_when_there_is_a_bucket_for_it() {
    let s3 = server().await;
    put(&s3, "a", &[]).await.expect(200);
    s3.delete("/reports").send(&s3).await.expect(204);
    make(&s3).await;
    s3.put("/reports").send(&s3).await.expect(200);
    make(&s3).await;
    let found = manifests(&s3).await;
    assert_eq!(
        (found.len(), found[0]["files"].as_array().unwrap().len()),
        (1, 0),
        "an empty bucket has an empty report"
    );
}

#[tokio::test]
async fn nobody_has_reports_put_in_the_buckets_of_others() {
    let s3 = S3::for_users(Arc::new(Users::new())).await;
    s3.put("/bkt").send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    by(ALT, s3.put("/reports")).send(&s3).await.expect(200);
    let count = async || by(ALT, s3.get("/reports?list-type=2")).send(&s3).await.expect(200).elements("Key").len();
    put(&s3, "a", &[]).await.expect(200);
    make(&s3).await;
    assert_eq!(count().await, 0, "its owner has not said so");
    let policy = |effect: &str, bucket: &str, place: &str| {
        format!(
            "{{\"Version\":\"2012-10-17\",\"Statement\":{{\"Effect\":\"{effect}\",\"Principal\":{{\"Service\":\"s3.amazonaws.com\"}},\
             \"Action\":\"s3:PutObject\",\"Resource\":\"arn:aws:s3:::reports/{place}*\",\"Condition\":{{\"ArnLike\":\
             {{\"aws:SourceArn\":\"arn:aws:s3:::{bucket}\"}},\"StringEquals\":{{\"aws:SourceAccount\":\"{}\"}}}}}}}}",
            account("own").id
        )
    };
    for (policy, expected) in [
        (policy("Allow", "other", ""), false),
        (policy("Allow", "bkt", "elsewhere/"), false),
        (policy("Deny", "bkt", ""), false),
        (policy("Allow", "bkt", "in/bkt/"), true),
    ] {
        by(ALT, s3.put("/reports?policy")).body(policy.clone()).send(&s3).await.expect(204);
        make(&s3).await;
        assert_eq!(count().await > 0, expected, "{policy}");
    }
    // The account's own bucket may be closed, too.
    s3.put("/mine").send(&s3).await.expect(200);
    let deny = policy("Deny", "bkt", "").replace(":reports/", ":mine/");
    s3.put("/mine?policy").body(deny).send(&s3).await.expect(204);
    put(&s3, "b", &[("reports", "mine")]).await.expect(200);
    make(&s3).await;
    assert_eq!(keys(&s3, "mine").await, [""; 0]);
    s3.delete("/mine?policy").send(&s3).await.expect(204);
    make(&s3).await;
    assert_eq!(keys(&s3, "mine").await.len(), 4);
}

#[tokio::test]
async fn nobody_has_reports_put_where_he_may_not_write() {
    let s3 = S3::for_users(Arc::new(Users::new())).await;
    s3.put("/bkt").send(&s3).await.expect(200);
    s3.put("/reports").send(&s3).await.expect(200);
    let allow = |who: &str, action: &str, resource: &str| {
        format!(
            "{{\"Version\":\"2012-10-17\",\"Statement\":{{\"Effect\":\"Allow\",\"Principal\":{{{who}}},\
             \"Action\":\"s3:{action}\",\"Resource\":\"arn:aws:s3:::{resource}\"}}}}"
        )
    };
    let user = format!("\"AWS\":\"arn:aws:iam::{}:user/user\"", account("own").id);
    let policy = allow(&user, "PutInventoryConfiguration", "bkt");
    s3.put("/bkt?policy").body(policy).send(&s3).await.expect(204);
    let by_user = async || by(USER, s3.put("/bkt?inventory&id=a")).body(inventory("a", &[])).send(&s3).await;
    by_user().await.refused(403, "AccessDenied");
    for (policy, expected) in [
        (allow(&user, "PutObject", "reports/elsewhere/*"), 403),
        (allow(&user, "PutObject", "reports/in/bkt/*"), 200),
        (allow("\"Service\":\"s3.amazonaws.com\"", "PutObject", "reports/*"), 200),
    ] {
        s3.put("/reports?policy").body(policy.clone()).send(&s3).await.expect(204);
        assert_eq!(by_user().await.status, expected, "{policy}");
    }
}

#[tokio::test]
async fn a_worker_makes_reports_until_it_is_stopped() {
    let s3 = server().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let stop = tokio_util::sync::CancellationToken::new();
    let worker = tokio::spawn({
        let (service, stop) = (s3.service.clone(), stop.clone());
        let options = InventoryOptions { debug_day_ms: None };
        async move { service.run_inventory(options, Arc::new(InventoryFigures::default()), stop).await }
    });
    tokio::task::yield_now().await;
    // It is told of it, and need not look at all buckets again.
    put(&s3, "a", &[]).await.expect(200);
    while manifests(&s3).await.is_empty() {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    worker.await.unwrap();
}
