//! Notifications of what happens to objects: from a request to a webhook, or to NATS.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gabion_server::credentials::{CredentialStore, Credentials};
use gabion_server::lifecycle::{LifecycleFigures, LifecycleOptions};
use gabion_server::notifications::{NotificationOptions, NotificationTarget, WhenFull};
use gabion_server::s3::S3Service;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::harness::{ACCESS_KEY, S3, SECRET_KEY};
use crate::posts;

/// Nothing here takes as long, but for what never comes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was received: head and body of each post.
type Received = Arc<Mutex<Vec<(String, Value)>>>;

/// A webhook, which takes what it is posted as long as it is willing.
struct Hook {
    url: String,
    received: Received,
    is_willing: Arc<AtomicBool>,
    refused: Arc<Notify>,
    changed: Arc<Notify>,
    _stop: DropGuard,
}

impl Hook {
    async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stop = CancellationToken::new();
        let hook = Self {
            url: format!("http://{}/hook", listener.local_addr().unwrap()),
            received: Received::default(),
            is_willing: Arc::new(AtomicBool::new(true)),
            refused: Arc::default(),
            changed: Arc::default(),
            _stop: stop.clone().drop_guard(),
        };
        let (received, is_willing) = (Arc::clone(&hook.received), Arc::clone(&hook.is_willing));
        let (refused, changed) = (Arc::clone(&hook.refused), Arc::clone(&hook.changed));
        tokio::spawn(async move {
            while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
                let (received, is_willing) = (Arc::clone(&received), Arc::clone(&is_willing));
                let (refused, changed) = (Arc::clone(&refused), Arc::clone(&changed));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(post) = Self::read(&mut stream).await {
                        let takes = is_willing.load(Ordering::SeqCst);
                        if takes {
                            received.lock().push(post);
                            changed.notify_one();
                        } else {
                            refused.notify_one();
                        }
                        let status = if takes { "200 OK" } else { "503 Not now" };
                        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        hook
    }

    async fn read(stream: &mut BufReader<TcpStream>) -> Option<(String, Value)> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        Some((head, serde_json::from_slice(&body).unwrap()))
    }

    /// The next `count` records; test events are no records.
    async fn take(&self, count: usize) -> Vec<Value> {
        let all = async {
            loop {
                let found: Vec<Value> = self.records();
                if found.len() >= count {
                    assert_eq!(found.len(), count, "{found:?}");
                    self.received.lock().clear();
                    return found;
                }
                self.changed.notified().await;
            }
        };
        let taken = tokio::time::timeout(PATIENCE, all).await;
        taken.unwrap_or_else(|_| panic!("only {:?} came", self.received.lock()))
    }

    fn records(&self) -> Vec<Value> {
        let received = self.received.lock();
        received.iter().flat_map(|(_, body)| body["Records"].as_array().cloned().unwrap_or_default()).collect()
    }
}

fn options(url: &str) -> NotificationOptions {
    let target = NotificationTarget::parse(&format!("hook={url}")).unwrap();
    NotificationOptions { targets: vec![target], ..NotificationOptions::default() }
}

/// A server whose notifications run until it is dropped.
struct Running {
    s3: S3,
    /// The one that served the store first: the store asks it for accounts as long as it lives, as in a process it does.
    first: S3Service,
    _stop: DropGuard,
}

impl std::ops::Deref for Running {
    type Target = S3;

    fn deref(&self) -> &S3 {
        &self.s3
    }
}

impl Running {
    fn of(s3: S3) -> Self {
        let stop = CancellationToken::new();
        let (service, stopped) = (s3.service.clone(), stop.clone());
        tokio::spawn(async move { service.run_notifications(stopped).await });
        Self { first: s3.service.clone(), s3, _stop: stop.drop_guard() }
    }

    /// With a bucket `bkt`.
    async fn with(options: NotificationOptions) -> Self {
        let s3 = S3::with(|all| all.notifications = options).await;
        s3.put("/bkt").send(&s3).await.expect(200);
        Self::of(s3)
    }

    /// The same store, as if the server had been started anew.
    fn again(self, options: NotificationOptions) -> Self {
        Self { first: self.first, ..Self::of(self.s3.again(|all| all.notifications = options)) }
    }
}

fn queue(id: &str, events: &[&str], filters: &[(&str, &str)]) -> String {
    let events: String = events.iter().map(|event| format!("<Event>{event}</Event>")).collect();
    let rules: String = filters
        .iter()
        .map(|(name, value)| format!("<FilterRule><Name>{name}</Name><Value>{value}</Value></FilterRule>"))
        .collect();
    format!(
        "<QueueConfiguration><Id>{id}</Id><Queue>arn:aws:sqs:us-east-1::hook</Queue>{events}\
         <Filter><S3Key>{rules}</S3Key></Filter></QueueConfiguration>"
    )
}

fn document(configurations: &[String]) -> String {
    format!(
        "<NotificationConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{}</NotificationConfiguration>",
        configurations.concat()
    )
}

const ALL: [&str; 5] =
    ["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:ObjectTagging:*", "s3:ObjectAcl:Put", "s3:LifecycleExpiration:*"];

async fn notify(s3: &S3, configurations: &[String]) {
    s3.put("/bkt?notification").body(document(configurations)).send(s3).await.expect(200);
}

fn names(records: &[Value]) -> Vec<String> {
    records.iter().map(|record| text(record, "/eventName")).collect()
}

fn text(record: &Value, pointer: &str) -> String {
    record.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned()
}

#[tokio::test]
async fn configurations_are_kept_shown_and_checked() {
    let hook = Hook::listen().await;
    let s3 = Running::with(options(&hook.url)).await;
    let shown = s3.get("/bkt?notification").send(&s3).await.expect(200);
    assert!(shown.text().contains("<NotificationConfiguration xmlns") && shown.elements("Id").is_empty());
    notify(&s3, &[queue("", &["s3:ObjectCreated:*"], &[("PREFIX", "a/"), ("suffix", ".jpg")])]).await;
    let shown = s3.get("/bkt?notification").send(&s3).await.expect(200);
    assert_eq!(
        (shown.elements("Name"), shown.elements("Value")),
        (vec!["Prefix".to_owned(), "Suffix".to_owned()], vec!["a/".to_owned(), ".jpg".to_owned()])
    );
    assert_eq!(shown.elements("Queue"), ["arn:aws:sqs:us-east-1::hook"]);
    assert_eq!(shown.elements("Id")[0].len(), 43, "a configuration without an id gets one");

    let unknown = queue("a", &["s3:ObjectCreated:*"], &[]).replace("::hook", "::nobody");
    let put = |configuration: &str| s3.put("/bkt?notification").body(document(&[configuration.to_owned()]));
    let refused = put(&unknown).send(&s3).await.refused(400, "InvalidArgument");
    assert_eq!(refused.element("Message").unwrap(), "Unable to validate the following destination configurations");
    assert_eq!(refused.element("ArgumentValue1").unwrap(), "The destination queue does not exist");
    put(&queue("a", &["s3:ObjectCreated:Pet"], &[])).send(&s3).await.refused(400, "InvalidArgument");
    put("<EventBridgeConfiguration/>").send(&s3).await.refused(501, "NotImplemented");
    s3.put("/bkt?notification").body("<Notification").send(&s3).await.refused(400, "MalformedXML");
    s3.delete("/bkt?notification").send(&s3).await.refused(405, "MethodNotAllowed");
    assert_eq!(s3.get("/bkt?notification").send(&s3).await.text(), shown.text(), "what is refused changes nothing");
    // What is not validated may be there later.
    put(&unknown).header("x-amz-skip-destination-validation", "true").send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    put("").send(&s3).await.expect(200);
    assert!(s3.get("/bkt?notification").send(&s3).await.elements("Id").is_empty());
    s3.get("/none?notification").send(&s3).await.refused(404, "NoSuchBucket");
    s3.put("/none?notification").body(document(&[])).send(&s3).await.refused(404, "NoSuchBucket");
    // Of it all the hook heard the test event alone.
    assert!(hook.records().is_empty());
}

#[tokio::test]
async fn topics_and_queues_get_a_test_event() {
    let hook = Hook::listen().await;
    let s3 = Running::with(options(&hook.url)).await;
    let function = "<CloudFunctionConfiguration><CloudFunction>arn:aws:lambda:us-east-1:1:function:hook</CloudFunction>\
        <Event>s3:ObjectRemoved:*</Event></CloudFunctionConfiguration>";
    notify(&s3, &[function.to_owned()]).await;
    notify(&s3, &[queue("q", &["s3:ObjectCreated:*"], &[])]).await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let come = async {
        while hook.received.lock().len() < 2 {
            hook.changed.notified().await;
        }
    };
    tokio::time::timeout(PATIENCE, come).await.unwrap();
    let received = hook.received.lock().clone();
    assert_eq!(received.len(), 2);
    let (head, test) = &received[0];
    assert!(head.starts_with("POST /hook HTTP/1.1\r\n") && head.contains("content-type: application/json"), "{head}");
    assert_eq!((text(test, "/Event"), text(test, "/Bucket")), ("s3:TestEvent".into(), "bkt".into()));
    assert_eq!(text(test, "/Service"), "Amazon S3");
    assert_eq!(names(received[1].1["Records"].as_array().unwrap()), ["ObjectCreated:Put"]);
    let id =
        |head: &str| head.lines().find_map(|line| Some(line.strip_prefix("x-gabion-notification-id: ")?.to_owned()));
    assert_ne!(id(head).unwrap(), id(&received[1].0).unwrap());
}

#[tokio::test]
async fn what_happens_to_objects_is_told() {
    let hook = Hook::listen().await;
    let mut with_token = options(&hook.url);
    with_token.targets[0].secret = Some(gabion_server::credentials::SecretKey::new("very secret"));
    let s3 = Running::with(with_token).await;
    s3.put("/bkt?ownershipControls")
        .body("<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></OwnershipControls>")
        .send(&s3)
        .await
        .expect(200);
    notify(&s3, &[queue("rule", &ALL, &[])]).await;

    let put = s3.put("/bkt/a%20b/%C3%BC").body("four").send(&s3).await.expect(200);
    let request = put.header("x-amz-request-id").unwrap().to_owned();
    s3.put("/bkt/copy").header("x-amz-copy-source", "/bkt/a%20b/%C3%BC").send(&s3).await.expect(200);
    posts::signed(&s3, posts::KEY, &[("key", "posted"), ("file", "hello")]).await.expect(204);
    let upload = s3.post("/bkt/parts?uploads").send(&s3).await.expect(200).element("UploadId").unwrap();
    let part = s3.put(&format!("/bkt/parts?partNumber=1&uploadId={upload}")).body("0123456789").send(&s3).await;
    let etag = part.expect(200).header("etag").unwrap().to_owned();
    let parts = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    s3.post(&format!("/bkt/parts?uploadId={upload}")).body(parts).send(&s3).await.expect(200);
    let tags = "<Tagging><TagSet><Tag><Key>t</Key><Value>v</Value></Tag></TagSet></Tagging>";
    s3.put("/bkt/copy?tagging").body(tags).md5().send(&s3).await.expect(200);
    s3.delete("/bkt/copy?tagging").send(&s3).await.expect(204);
    s3.put("/bkt/copy?acl").header("x-amz-acl", "public-read").send(&s3).await.expect(200);
    s3.put("/bkt/moved?renameObject").header("x-amz-rename-source", "copy").send(&s3).await.expect(200);
    s3.delete("/bkt/moved").send(&s3).await.expect(204);
    // What is not there is not removed, what is read does not change, what is refused does not happen.
    s3.delete("/bkt/copy").send(&s3).await.expect(204);
    s3.get("/bkt/posted").send(&s3).await.expect(200);
    s3.put("/bkt/posted").header("if-none-match", "*").send(&s3).await.refused(412, "PreconditionFailed");
    let both = "<Delete><Object><Key>posted</Key></Object><Object><Key>none</Key></Object><Object><Key>parts</Key></Object></Delete>";
    s3.post("/bkt?delete").body(both).md5().send(&s3).await.expect(200);

    let heads: Vec<String> = hook.received.lock().iter().map(|(head, _)| head.clone()).collect();
    let records = hook.take(12).await;
    assert_eq!(
        names(&records),
        [
            "ObjectCreated:Put",
            "ObjectCreated:Copy",
            "ObjectCreated:Post",
            "ObjectCreated:CompleteMultipartUpload",
            "ObjectTagging:Put",
            "ObjectTagging:Delete",
            "ObjectAcl:Put",
            "ObjectCreated:Copy",
            "ObjectRemoved:Delete",
            "ObjectRemoved:Delete",
            "ObjectRemoved:Delete",
            "ObjectRemoved:Delete"
        ]
    );
    assert!(heads.iter().all(|head| head.contains("authorization: Bearer very secret\r\n")), "{heads:?}");
    let first = &records[0];
    for (pointer, expected) in [
        ("/eventVersion", "2.1"),
        ("/eventSource", "aws:s3"),
        ("/awsRegion", "us-east-1"),
        ("/requestParameters/sourceIPAddress", "127.0.0.1"),
        ("/responseElements/x-amz-request-id", &*request),
        ("/s3/s3SchemaVersion", "1.0"),
        ("/s3/configurationId", "rule"),
        ("/s3/bucket/name", "bkt"),
        ("/s3/bucket/arn", "arn:aws:s3:::bkt"),
        ("/s3/object/key", "a+b/%C3%BC"),
        ("/s3/object/eTag", "8cbad96aced40b3838dd9f07f6ef5772"),
        ("/s3/object/versionId", "-"),
    ] {
        assert_eq!(text(first, pointer), expected, "{pointer}");
    }
    assert!(text(first, "/userIdentity/principalId").starts_with("AWS:"));
    assert_ne!(text(first, "/s3/bucket/ownerIdentity/principalId"), "");
    assert_eq!(first.pointer("/s3/object/size"), Some(&Value::from(4)));
    assert_eq!(records[3].pointer("/s3/object/size"), Some(&Value::from(10)));
    assert_eq!(
        (text(&records[4], "/eventVersion"), text(&records[4], "/s3/object/sequencer")),
        ("2.3".into(), "-".into())
    );
    let sequencer = |at: usize| text(&records[at], "/s3/object/sequencer");
    assert!(sequencer(7) < sequencer(9) && sequencer(7).len() == 16, "{} {}", sequencer(7), sequencer(9));
    assert_eq!(records[9].pointer("/s3/object/size"), None);
}

#[tokio::test]
async fn versions_and_delete_markers_are_told_apart() {
    let hook = Hook::listen().await;
    let s3 = Running::with(options(&hook.url)).await;
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    s3.put("/bkt?versioning").body(enabled).send(&s3).await.expect(200);
    notify(&s3, &[queue("rule", &ALL, &[])]).await;
    let version = |answer: &crate::harness::Answer| answer.header("x-amz-version-id").unwrap().to_owned();
    let put = version(&s3.put("/bkt/k").body("x").send(&s3).await.expect(200));
    let marker = version(&s3.delete("/bkt/k").send(&s3).await.expect(204));
    s3.delete(&format!("/bkt/k?versionId={marker}")).send(&s3).await.expect(204);
    s3.delete(&format!("/bkt/k?versionId={put}")).send(&s3).await.expect(204);
    let records = hook.take(4).await;
    assert_eq!(
        names(&records),
        ["ObjectCreated:Put", "ObjectRemoved:DeleteMarkerCreated", "ObjectRemoved:Delete", "ObjectRemoved:Delete"]
    );
    let versions: Vec<String> = records.iter().map(|record| text(record, "/s3/object/versionId")).collect();
    assert_eq!(versions, [&*put, &*marker, &*marker, &*put]);
    let sequencers: Vec<String> = records.iter().map(|record| text(record, "/s3/object/sequencer")).collect();
    assert!(sequencers.is_sorted_by(|a, b| a < b), "{sequencers:?}");
}

#[tokio::test]
async fn filters_choose() {
    let hook = Hook::listen().await;
    let s3 = Running::with(options(&hook.url)).await;
    notify(
        &s3,
        &[
            queue("pictures", &["s3:ObjectCreated:Put"], &[("prefix", "in/"), ("suffix", ".jpg")]),
            queue("gone", &["s3:ObjectRemoved:Delete"], &[("prefix", "in/")]),
        ],
    )
    .await;
    for key in ["in/a.jpg", "in/a.png", "out/a.jpg", "in/b.jpg"] {
        s3.put(&format!("/bkt/{key}")).body("x").send(&s3).await.expect(200);
    }
    s3.put("/bkt/in/c.jpg").header("x-amz-copy-source", "/bkt/in/a.jpg").send(&s3).await.expect(200);
    s3.delete("/bkt/out/a.jpg").send(&s3).await.expect(204);
    s3.delete("/bkt/in/a.png").send(&s3).await.expect(204);
    let told: Vec<(String, String)> = hook
        .take(3)
        .await
        .iter()
        .map(|record| (text(record, "/s3/configurationId"), text(record, "/s3/object/key")))
        .collect();
    let expected = [("pictures", "in/a.jpg"), ("pictures", "in/b.jpg"), ("gone", "in/a.png")];
    assert_eq!(told, expected.map(|(id, key)| (id.to_owned(), key.to_owned())));
}

#[tokio::test]
async fn events_wait_for_their_target() {
    let hook = Hook::listen().await;
    hook.is_willing.store(false, Ordering::SeqCst);
    let s3 = Running::with(options(&hook.url)).await;
    notify(&s3, &[queue("rule", &["s3:ObjectCreated:*"], &[])]).await;
    for number in 0..5 {
        s3.put(&format!("/bkt/{number}")).body("x").send(&s3).await.expect(200);
    }
    tokio::time::timeout(PATIENCE, hook.refused.notified()).await.unwrap();
    // Nobody delivers for a while, and then the server is started anew.
    let s3 = s3.again(NotificationOptions::default());
    let kept = s3.store.list_site_configs("notifications/", None, 100).unwrap();
    assert!(!kept.is_empty() && hook.received.lock().is_empty());
    let s3 = s3.again(options(&hook.url));
    tokio::time::timeout(PATIENCE, hook.refused.notified()).await.unwrap();
    s3.put("/bkt/5").body("x").send(&s3).await.expect(200);
    hook.is_willing.store(true, Ordering::SeqCst);
    let keys: Vec<String> = hook.take(6).await.iter().map(|record| text(record, "/s3/object/key")).collect();
    assert_eq!(keys, ["0", "1", "2", "3", "4", "5"], "in the order in which they happened");
    // What was delivered is forgotten.
    s3.put("/bkt/6").body("x").send(&s3).await.expect(200);
    hook.take(1).await;
    let empty = async {
        while !s3.store.list_site_configs("notifications/", None, 1).unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, empty).await.unwrap();
}

#[tokio::test]
async fn messages_hold_as_many_records_as_they_may() {
    let hook = Hook::listen().await;
    let s3 = Running::with(NotificationOptions { records_per_message: 100, ..options(&hook.url) }).await;
    notify(&s3, &[queue("rule", &["s3:ObjectRemoved:*"], &[])]).await;
    for number in 0..5 {
        s3.put(&format!("/bkt/{number}")).body("x").send(&s3).await.expect(200);
    }
    let all: String = (0..5).map(|number| format!("<Object><Key>{number}</Key></Object>")).collect();
    s3.post("/bkt?delete").body(format!("<Delete>{all}</Delete>")).md5().send(&s3).await.expect(200);
    hook.take(5).await;
}

#[tokio::test]
async fn a_full_queue_refuses_or_drops() {
    let hook = Hook::listen().await;
    hook.is_willing.store(false, Ordering::SeqCst);
    let s3 = Running::with(NotificationOptions { queue_bytes: 1500, ..options(&hook.url) }).await;
    notify(&s3, &[queue("rule", &["s3:ObjectCreated:*", "s3:ObjectRemoved:*"], &[("prefix", "a")])]).await;
    let mut stored = 0;
    let refused = loop {
        let answer = s3.put(&format!("/bkt/a{stored}")).body("x").send(&s3).await;
        if answer.status != 200 {
            break answer;
        }
        stored += 1;
    };
    refused.refused(503, "SlowDown");
    assert!((1..5).contains(&stored), "{stored}");
    s3.get(&format!("/bkt/a{stored}")).send(&s3).await.refused(404, "NoSuchKey");
    s3.delete("/bkt/a0").send(&s3).await.refused(503, "SlowDown");
    let again = document(&[queue("again", &ALL, &[])]);
    s3.put("/bkt?notification").body(again).send(&s3).await.refused(503, "SlowDown");
    posts::signed(&s3, posts::KEY, &[("key", "a"), ("file", "hello")]).await.refused(503, "SlowDown");
    // What nobody wants to be told of goes on.
    s3.put("/bkt/b").body("x").send(&s3).await.expect(200);
    posts::signed(&s3, posts::KEY, &[("key", "b"), ("file", "hello")]).await.expect(204);
    s3.get("/bkt/a0").send(&s3).await.expect(200);

    let s3 = s3.again(NotificationOptions { queue_bytes: 1500, when_full: WhenFull::Drop, ..options(&hook.url) });
    // Once what is there from before was counted, which it is when it is delivered again; two posts may be from before.
    for _ in 0..3 {
        tokio::time::timeout(PATIENCE, hook.refused.notified()).await.unwrap();
    }
    s3.delete("/bkt/a0").send(&s3).await.expect(204);
    hook.is_willing.store(true, Ordering::SeqCst);
    let records = hook.take(stored).await;
    assert!(names(&records).iter().all(|name| name == "ObjectCreated:Put"), "{records:?}");
}

#[tokio::test]
async fn targets_are_for_whose_buckets_they_are_meant() {
    let hook = Hook::listen().await;
    let meant_for = |accounts: &[&str]| {
        let mut options = options(&hook.url);
        options.targets[0].accounts = accounts.iter().map(|id| (*id).to_owned()).collect();
        options
    };
    let own = Credentials::new(ACCESS_KEY, SECRET_KEY).first_account().id.clone();
    let s3 = Running::with(meant_for(&["999999999999"])).await;
    let events = document(&[queue("rule", &["s3:ObjectCreated:*"], &[])]);
    let refused = s3.put("/bkt?notification").body(events.clone()).send(&s3).await.refused(400, "InvalidArgument");
    assert_eq!(refused.element("ArgumentValue1").unwrap(), "The destination queue does not exist");
    let s3 = s3.again(meant_for(&["999999999999", &own]));
    s3.put("/bkt?notification").body(events).send(&s3).await.expect(200);
    s3.put("/bkt/a").body("x").send(&s3).await.expect(200);
    assert_eq!(hook.take(1).await.len(), 1);
    // What the operator says counts at once, not only for what buckets say from then on.
    let s3 = s3.again(meant_for(&["999999999999"]));
    s3.put("/bkt/b").body("x").send(&s3).await.expect(200);
    let s3 = s3.again(meant_for(&[&own]));
    s3.put("/bkt/c").body("x").send(&s3).await.expect(200);
    let keys = || hook.records().iter().map(|record| text(record, "/s3/object/key")).collect::<Vec<_>>();
    let come = async {
        while !keys().contains(&"c".to_owned()) {
            hook.changed.notified().await;
        }
    };
    tokio::time::timeout(PATIENCE, come).await.unwrap();
    // What was taken when a server ended may come again.
    assert!(!keys().contains(&"b".to_owned()), "{:?}", keys());
}

#[tokio::test]
async fn what_a_client_does_not_wait_for_is_told_as_well() {
    let hook = Hook::listen().await;
    let s3 = Running::with(options(&hook.url)).await;
    notify(&s3, &[queue("rule", &["s3:ObjectCreated:*"], &[])]).await;
    let mut putting = Box::pin(s3.put("/bkt/k").body("x").send(&s3));
    // It is begun, and the client is gone.
    assert!(futures::poll!(putting.as_mut()).is_pending());
    drop(putting);
    assert_eq!(names(&hook.take(1).await), ["ObjectCreated:Put"]);
    s3.get("/bkt/k").send(&s3).await.expect(200);
}

#[tokio::test]
async fn what_rules_end_is_told() {
    let hook = Hook::listen().await;
    let s3 = Running::with(options(&hook.url)).await;
    notify(&s3, &[queue("rule", &["s3:LifecycleExpiration:*", "s3:ObjectRemoved:*"], &[])]).await;
    let rule = "<LifecycleConfiguration><Rule><ID>r</ID><Status>Enabled</Status><Filter><Prefix/></Filter>\
        <Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>";
    s3.put("/bkt?lifecycle").body(rule).md5().send(&s3).await.expect(200);
    let days_pass = async || {
        tokio::time::sleep(Duration::from_millis(3)).await;
        let options = LifecycleOptions { debug_day_ms: Some(1), deletions_per_second: 1_000_000 };
        s3.service.apply_lifecycle(options, Arc::new(LifecycleFigures::default())).await.unwrap();
    };
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    days_pass().await;
    let record = hook.take(1).await.remove(0);
    assert_eq!(text(&record, "/eventName"), "LifecycleExpiration:Delete");
    assert_eq!(text(&record, "/userIdentity/principalId"), "s3.amazonaws.com");
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    s3.put("/bkt?versioning").body(enabled).send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    days_pass().await;
    assert_eq!(names(&hook.take(1).await), ["LifecycleExpiration:DeleteMarkerCreated"]);
}

/// The part of NATS that a publisher speaks, with a stream that keeps the subject `s3.events`.
async fn nats(listener: TcpListener, published: tokio::sync::mpsc::Sender<(String, Value)>) {
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = BufReader::new(stream);
    stream.write_all(b"INFO {\"server_id\":\"S\",\"version\":\"2.10.0\",\"headers\":true,\"max_payload\":1048576,\"proto\":1}\r\n").await.unwrap();
    let (mut line, mut sid, mut number) = (String::new(), String::new(), 0);
    while stream.read_line(&mut line).await.unwrap_or(0) > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["PING"] => stream.write_all(b"PONG\r\n").await.unwrap(),
            ["SUB", _, id] => sid = (*id).to_owned(),
            ["HPUB", subject, reply, head, all] => {
                assert_eq!(*subject, "s3.events");
                let (head, all): (usize, usize) = (head.parse().unwrap(), all.parse().unwrap());
                let mut message = vec![0; all + 2];
                stream.read_exact(&mut message).await.unwrap();
                number += 1;
                let ack = format!("{{\"stream\":\"S\",\"seq\":{number}}}");
                let answer = format!("MSG {reply} {sid} {}\r\n{ack}\r\n", ack.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
                let body = serde_json::from_slice(&message[head..all]).unwrap();
                let head = String::from_utf8(message[..head].to_vec()).unwrap();
                published.send((head, body)).await.unwrap();
            }
            _ => {}
        }
        line.clear();
    }
}

#[tokio::test]
async fn nats_gets_messages_with_ids() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (sender, mut published) = tokio::sync::mpsc::channel(100);
    let url = format!("nats://{}/s3.events", listener.local_addr().unwrap());
    tokio::spawn(nats(listener, sender));
    let s3 = Running::with(options(&url)).await;
    notify(&s3, &[queue("rule", &["s3:ObjectCreated:*"], &[])]).await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let mut ids = Vec::new();
    for expected in ["s3:TestEvent", "ObjectCreated:Put"] {
        let (head, body) = tokio::time::timeout(PATIENCE, published.recv()).await.unwrap().unwrap();
        let name = body.pointer("/Records/0/eventName").or(body.get("Event")).and_then(Value::as_str);
        assert_eq!(name, Some(expected), "{body}");
        ids.push(head.lines().find_map(|line| Some(line.strip_prefix("Nats-Msg-Id:")?.trim().to_owned())).unwrap());
    }
    assert!(ids[0].starts_with("hook-") && ids[0] != ids[1], "{ids:?}");
}
