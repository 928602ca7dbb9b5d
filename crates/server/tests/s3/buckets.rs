//! Buckets.

use gabion_server::credentials::Account;

use crate::harness::S3;

#[tokio::test]
async fn buckets_live_and_die() {
    let s3 = S3::new().await;
    let created = s3.put("/bkt").send(&s3).await.expect(200);
    assert_eq!(created.header("location"), Some("/bkt"));
    assert_eq!(created.header("x-amz-bucket-arn"), Some("arn:aws:s3:::bkt"));
    let head = s3.head("/bkt").send(&s3).await.expect(200);
    assert_eq!(head.header("x-amz-bucket-region"), Some("us-east-1"));
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    s3.delete("/bkt").send(&s3).await.refused(409, "BucketNotEmpty");
    s3.delete("/bkt/k").send(&s3).await.expect(204);
    let versions = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    s3.put("/other").send(&s3).await.expect(200);
    s3.put("/other?versioning").body(versions).send(&s3).await.expect(200);
    s3.delete("/other/k").send(&s3).await.expect(204);
    let refused = s3.delete("/other").send(&s3).await.refused(409, "BucketNotEmpty");
    assert!(refused.element("Message").unwrap().ends_with("You must delete all versions in the bucket."));
    s3.delete("/bkt").send(&s3).await.expect(204);
    s3.delete("/bkt").send(&s3).await.refused(404, "NoSuchBucket");
    assert!(s3.head("/bkt").send(&s3).await.expect(404).body.is_empty());
    s3.put("/Bkt").send(&s3).await.refused(400, "InvalidBucketName");
}

#[tokio::test]
async fn creating_again_is_no_error_in_us_east_1_only() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt").send(&s3).await.expect(200);
    let s3 = S3::with(|options| options.region = "eu-lab-1".into()).await;
    let create = s3.put("/bkt").change(|call| call.region = "eu-lab-1");
    create.clone().send(&s3).await.expect(200);
    create.send(&s3).await.refused(409, "BucketAlreadyOwnedByYou");
}

#[tokio::test]
async fn a_location_is_shown_unless_it_is_us_east_1() {
    let s3 = S3::with_bucket().await;
    let text = s3.get("/bkt?location").send(&s3).await.expect(200).text();
    assert!(
        text.ends_with("<LocationConstraint xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"></LocationConstraint>")
    );
    let s3 = S3::with(|options| options.region = "eu-lab-1".into()).await;
    s3.put("/bkt").change(|call| call.region = "eu-lab-1").send(&s3).await.expect(200);
    let text = s3.get("/bkt?location").change(|call| call.region = "eu-lab-1").send(&s3).await.expect(200).text();
    assert!(text.ends_with(">eu-lab-1</LocationConstraint>"), "{text}");
    s3.get("/none?location").change(|call| call.region = "eu-lab-1").send(&s3).await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn a_location_constraint_is_the_servers() {
    let s3 = S3::new().await;
    let create = |location: &str| {
        let document = format!(
            "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>{location}\
             </LocationConstraint></CreateBucketConfiguration>"
        );
        s3.put("/bkt").body(document)
    };
    create("eu-west-1").send(&s3).await.refused(400, "IllegalLocationConstraintException");
    create("nowhere").send(&s3).await.refused(400, "InvalidLocationConstraint");
    create("us-east-1").send(&s3).await.expect(200);
    s3.put("/bkt").body("<Nonsense/>").send(&s3).await.refused(400, "MalformedXML");
    s3.put("/bkt").body("x").send(&s3).await.refused(400, "MalformedXML");
}

#[tokio::test]
async fn buckets_are_listed_in_pages() {
    let s3 = S3::new().await;
    for name in ["aab", "aac", "abc", "bbb"] {
        s3.put(&format!("/{name}")).send(&s3).await.expect(200);
    }
    let all = s3.get("/").send(&s3).await.expect(200);
    assert_eq!(all.elements("Name"), ["aab", "aac", "abc", "bbb"]);
    assert_eq!(all.element("ID").as_deref(), Some(&*Account::first("").canonical_id));
    assert_eq!(all.element("ContinuationToken"), None);
    assert!(all.element("CreationDate").unwrap().ends_with(".000Z"));
    let page = s3.get("/?prefix=a&max-buckets=2").send(&s3).await.expect(200);
    assert_eq!(page.elements("Name"), ["aab", "aac"]);
    assert_eq!(page.element("BucketRegion").as_deref(), Some("us-east-1"));
    let token = page.element("ContinuationToken").unwrap();
    let page = s3.get(&format!("/?prefix=a&max-buckets=2&continuation-token={token}")).send(&s3).await.expect(200);
    assert_eq!((page.elements("Name"), page.element("ContinuationToken")), (vec!["abc".to_owned()], None));
    assert!(s3.get("/?bucket-region=eu-west-1").send(&s3).await.expect(200).elements("Name").is_empty());
    for max in ["0", "-3", "10001", "many"] {
        let refused = s3.get(&format!("/?max-buckets={max}")).send(&s3).await.refused(400, "InvalidArgument");
        let message = "Argument max-buckets must be an integer between 1 and 10000.";
        assert_eq!(refused.element("Message").as_deref(), Some(message));
        assert_eq!(refused.element("ArgumentValue").as_deref(), Some(max));
    }
    s3.get("/?continuation-token=rubbish").send(&s3).await.refused(400, "InvalidArgument");
}
