//! Parts, aborts and completions of which nobody knows whether they took effect: the targets went away while their records were written, and may have the last of them whole. They take
//! effect at the next start then, before all that was acknowledged since. So nothing may be acknowledged that stands on an upload of which that is not known.

use bytes::Bytes;
use gabion_store::*;

use crate::harness::*;

/// What is put under the upload's key by others.
const OTHER: Bytes = Bytes::from_static(b"other");

/// A request for the upload that the targets go away under.
#[derive(Clone, Copy)]
enum Request {
    Part,
    Abort,
    Completion,
}

/// An upload with a part that is acknowledged.
struct Begun {
    world: World,
    store: Store,
    target: UploadRef,
    /// The tag of the part.
    etag: String,
}

fn first() -> Bytes {
    bytes(1, 100)
}

fn second() -> Bytes {
    bytes(2, 100)
}

impl Begun {
    async fn new() -> Self {
        let mut config = config(1, 0);
        (config.log.small_lanes, config.log.large_lanes) = (1, 1);
        let mut world = World::new(701, config);
        let store = world.open().await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        let store = world.restart(store).await;
        let (bucket, key) = (bucket("bucket"), key("key"));
        let request =
            CreateUpload { bucket: bucket.clone(), key: key.clone(), attributes: Default::default(), checksum: None };
        let target = UploadRef { bucket, key, upload: store.create_upload(request).await.unwrap() };
        let mut begun = Self { world, store, target, etag: String::new() };
        begun.etag = begun.part(first()).await.unwrap();
        begun
    }

    /// Those that the targets went away under, and came back to, before each step of a request in which it fails then.
    async fn away_in(request: Request) -> Vec<Self> {
        let (mut step, mut failed) = (0, Vec::new());
        loop {
            let begun = Self::new().await;
            begun.world.power.cut_after(step);
            let outcome = match request {
                Request::Part => begun.part(second()).await.map(drop),
                Request::Abort => begun.abort().await,
                Request::Completion => begun.complete(&begun.etag).await,
            };
            let went_away = begun.world.power.is_out();
            begun.world.restore_power();
            match outcome {
                Err(_) => failed.push(begun),
                // They went away behind it.
                Ok(()) if went_away => {}
                Ok(()) => return failed,
            }
            step += 1;
        }
    }

    async fn part(&self, body: Bytes) -> Result<String, StoreError> {
        let request = UploadPart { target: self.target.clone(), part_number: 1 };
        Ok(self.store.upload_part(request, ObjectBody::from_bytes(body)).await?.etag.to_string())
    }

    async fn abort(&self) -> Result<(), StoreError> {
        self.store.abort_upload(self.target.clone()).await
    }

    async fn complete(&self, etag: &str) -> Result<(), StoreError> {
        let request = complete_request(
            self.target.clone(),
            vec![CompletedPart { part_number: 1, etag: etag.to_owned(), checksums: Vec::new() }],
        );
        self.store.complete_upload(request).await.map(drop)
    }

    async fn object(&self) -> Result<Bytes, StoreError> {
        get(&self.store, "bucket", "key").await
    }

    async fn begin_again(mut self, start: Start) -> Self {
        self.store = self.world.begin_again(self.store, start).await;
        self
    }

    /// Whether what was acknowledged is there, with an index that is made anew.
    async fn finds_again(self, body: &Bytes) -> bool {
        self.begin_again(Start::Rebuilt).await.object().await.unwrap() == *body
    }
}

#[tokio::test]
async fn a_part_that_comes_late_replaces_none_that_was_completed() {
    let mut late = 0;
    for start in Start::ALL {
        for begun in Begun::away_in(Request::Part).await {
            if !was_refused_as_unknown(&begun.complete(&begun.etag).await) {
                assert!(begun.finds_again(&first()).await);
                continue;
            }
            assert!(was_refused_as_unknown(&begun.part(first()).await.map(drop)), "it would be completed in vain");
            // A start finds out, once and for all.
            let begun = begun.begin_again(start).await;
            let body = match begun.complete(&begun.etag).await {
                Err(StoreError::InvalidPart) => {
                    late += 1;
                    let etag = begun.part(second()).await.unwrap();
                    begun.complete(&etag).await.unwrap();
                    second()
                }
                outcome => outcome.map(|()| first()).unwrap(),
            };
            assert!(begun.finds_again(&body).await, "{start:?}");
        }
    }
    assert!(late > 0);
}

#[tokio::test]
async fn an_abort_that_comes_late_takes_nothing_that_was_completed() {
    let mut late = 0;
    for start in Start::ALL {
        for begun in Begun::away_in(Request::Abort).await {
            if !was_refused_as_unknown(&begun.complete(&begun.etag).await) {
                assert!(begun.finds_again(&first()).await);
                continue;
            }
            let begun = begun.begin_again(start).await;
            match begun.complete(&begun.etag).await {
                Err(StoreError::NoSuchUpload) => late += 1,
                outcome => {
                    outcome.unwrap();
                    assert!(begun.finds_again(&first()).await, "{start:?}");
                }
            }
        }
    }
    assert!(late > 0);
}

#[tokio::test]
async fn what_may_have_been_aborted_or_put_may_be_aborted() {
    for request in [Request::Part, Request::Abort] {
        for start in Start::ALL {
            let all = Begun::away_in(request).await;
            assert!(!all.is_empty());
            for begun in all {
                begun.abort().await.unwrap();
                assert!(matches!(begun.complete(&begun.etag).await, Err(StoreError::NoSuchUpload)));
                let begun = begun.begin_again(start).await;
                assert!(matches!(begun.part(first()).await, Err(StoreError::NoSuchUpload)));
                assert!(matches!(begun.object().await, Err(StoreError::NoSuchKey)));
            }
        }
    }
}

#[tokio::test]
async fn a_completion_that_comes_late_comes_before_what_was_put_since() {
    let mut late = 0;
    for start in Start::ALL {
        for begun in Begun::away_in(Request::Completion).await {
            put(&begun.store, "bucket", "key", &OTHER).await;
            if !was_refused_as_unknown(&begun.complete(&begun.etag).await) {
                assert!(begun.finds_again(&first()).await);
                continue;
            }
            assert!(was_refused_as_unknown(&begun.abort().await), "its object would be there although it was aborted");
            let begun = begun.begin_again(start).await;
            assert_eq!(begun.object().await.unwrap(), OTHER, "{start:?}");
            let body = match begun.complete(&begun.etag).await {
                Err(StoreError::NoSuchUpload) => {
                    late += 1;
                    OTHER
                }
                outcome => outcome.map(|()| first()).unwrap(),
            };
            assert!(begun.finds_again(&body).await, "{start:?}");
        }
    }
    assert!(late > 0);
}

#[tokio::test]
async fn an_upload_of_the_same_key_is_not_kept_from_its_end() {
    let all = Begun::away_in(Request::Completion).await;
    assert!(!all.is_empty());
    for mut begun in all {
        let (bucket, key) = (bucket("bucket"), key("key"));
        let request = CreateUpload { bucket, key, attributes: Default::default(), checksum: None };
        begun.target.upload = begun.store.create_upload(request).await.unwrap();
        let etag = begun.part(second()).await.unwrap();
        begun.complete(&etag).await.unwrap();
        assert!(begun.finds_again(&second()).await);
    }
}
