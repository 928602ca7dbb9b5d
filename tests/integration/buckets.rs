//! ListBuckets, CreateBucket, HeadBucket, DeleteBucket, GetBucketLocation.

use gabion_tests::{Server, Setup, failure};

use crate::{BUCKET, refused, served};

#[tokio::test]
async fn a_bucket_lives_from_create_to_delete() {
    let (_server, client) = served().await;
    let head = client.head_bucket().bucket(BUCKET).send().await.unwrap();
    assert_eq!(head.bucket_region(), Some("us-east-1"));
    let location = client.get_bucket_location().bucket(BUCKET).send().await.unwrap();
    let constraint = location.location_constraint().map(|constraint| constraint.as_str()).unwrap_or_default();
    assert_eq!(constraint, "", "us-east-1 has no constraint");

    let listed = client.list_buckets().send().await.unwrap();
    let names: Vec<_> = listed.buckets().iter().filter_map(|bucket| bucket.name()).collect();
    assert_eq!(names, [BUCKET]);
    assert!(listed.buckets()[0].creation_date().is_some());
    assert!(listed.owner().and_then(|owner| owner.id()).is_some());

    client.put_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(failure(client.delete_bucket().bucket(BUCKET).send().await), refused(409, "BucketNotEmpty"));
    client.delete_object().bucket(BUCKET).key("k").send().await.unwrap();
    client.delete_bucket().bucket(BUCKET).send().await.unwrap();

    assert_eq!(failure(client.delete_bucket().bucket(BUCKET).send().await), refused(404, "NoSuchBucket"));
    assert_eq!(failure(client.head_bucket().bucket(BUCKET).send().await).status(), Some(404));
    assert_eq!(failure(client.get_bucket_location().bucket(BUCKET).send().await), refused(404, "NoSuchBucket"));
    assert_eq!(failure(client.put_object().bucket(BUCKET).key("k").send().await), refused(404, "NoSuchBucket"));
    assert_eq!(failure(client.list_objects_v2().bucket(BUCKET).send().await), refused(404, "NoSuchBucket"));
}

#[tokio::test]
async fn creating_a_bucket_twice_keeps_its_objects() {
    let (_server, client) = served().await;
    client.put_object().bucket(BUCKET).key("k").send().await.unwrap();
    // AWS answers 200 in us-east-1 and 409 elsewhere.
    let again = client.create_bucket().bucket(BUCKET).send().await;
    if again.is_err() {
        assert_eq!(failure(again), refused(409, "BucketAlreadyOwnedByYou"));
    }
    client.head_object().bucket(BUCKET).key("k").send().await.unwrap();
}

#[tokio::test]
async fn bad_bucket_names_are_refused() {
    let server = Server::start(Setup::single()).await.unwrap();
    let client = server.client();
    for name in ["ab", "UPPER", "under_score", "-dash", "dot..dot", "192.168.0.1", &"x".repeat(64)] {
        let outcome = failure(client.create_bucket().bucket(name).send().await);
        assert_eq!(outcome, refused(400, "InvalidBucketName"), "{name}");
    }
}

#[tokio::test]
async fn buckets_are_listed_in_pages() {
    let server = Server::start(Setup::single()).await.unwrap();
    let client = server.client();
    let names: Vec<String> = (0..7).map(|index| format!("bucket-{index}")).collect();
    for name in names.iter().rev() {
        client.create_bucket().bucket(name).send().await.unwrap();
    }
    let (mut found, mut token, mut pages) = (Vec::new(), None::<String>, 0);
    loop {
        let page = client.list_buckets().max_buckets(3).set_continuation_token(token).send().await.unwrap();
        found.extend(page.buckets().iter().filter_map(|bucket| bucket.name()).map(str::to_owned));
        pages += 1;
        token = page.continuation_token().map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    assert_eq!((found, pages), (names, 3));
    let prefixed = client.list_buckets().prefix("bucket-5").send().await.unwrap();
    assert_eq!(prefixed.buckets().len(), 1);
}
