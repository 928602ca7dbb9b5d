//! If-None-Match and If-Match on writes and deletes: atomic, per key.

use aws_sdk_s3::primitives::ByteStream;
use gabion_tests::{Content, Outcome, bytes_of, failure};

use crate::{BUCKET, refused, served};

#[tokio::test]
async fn put_if_absent_and_put_if_unchanged() {
    let (_server, client) = served().await;
    let put = || client.put_object().bucket(BUCKET).key("k").body(ByteStream::from_static(b"one"));
    assert_eq!(failure(put().if_match("\"any\"").send().await), refused(404, "NoSuchKey"));
    let first = put().if_none_match("*").send().await.unwrap();
    assert_eq!(failure(put().if_none_match("*").send().await), refused(412, "PreconditionFailed"));
    assert_eq!(failure(put().if_match("\"other\"").send().await), refused(412, "PreconditionFailed"));
    let etag = first.e_tag().unwrap();
    let second = put().body(ByteStream::from_static(b"two")).if_match(etag).send().await.unwrap();
    assert_ne!(second.e_tag(), Some(etag));
    assert_eq!(failure(put().if_match(etag).send().await), refused(412, "PreconditionFailed"), "it has changed");
    client.delete_object().bucket(BUCKET).key("k").send().await.unwrap();
    put().if_none_match("*").send().await.unwrap();
}

#[tokio::test]
async fn delete_if_unchanged() {
    let (_server, client) = served().await;
    let put = client.put_object().bucket(BUCKET).key("k").send().await.unwrap();
    let delete = || client.delete_object().bucket(BUCKET).key("k");
    assert_eq!(failure(delete().if_match("\"other\"").send().await), refused(412, "PreconditionFailed"));
    client.head_object().bucket(BUCKET).key("k").send().await.unwrap();
    delete().if_match(put.e_tag().unwrap()).send().await.unwrap();
    assert_eq!(failure(client.head_object().bucket(BUCKET).key("k").send().await).status(), Some(404));
}

/// A body of so many bytes is in the sockets' buffers before anything is answered.
const SENT_AT_ONCE: usize = 64 * 1024;

/// Whatever their number and size, one of the writers that ask for absence wins, and its bytes are what is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_exactly_one_creates_the_object() {
    let (_server, client) = served().await;
    for (round, len) in [100, 5000, 1_500_000].into_iter().enumerate() {
        let key = format!("race/{round}");
        let writers = (0..16).map(|writer| {
            let body = ByteStream::from(Content::new(writer, len).bytes());
            let put = client.put_object().bucket(BUCKET).key(&key).body(body).if_none_match("*").send();
            async move { (writer, put.await) }
        });
        let mut winners = Vec::new();
        for (writer, result) in futures::future::join_all(writers).await {
            match result {
                Ok(_) => winners.push(writer),
                Err(error) => {
                    let outcome = failure(Err::<(), _>(error));
                    // A body that is on its way when the object appears is refused unread, and the connection ends: a client that still writes may
                    // see that before it sees the answer (and SDKs try again, which is off here).
                    let is_cut_off = len > SENT_AT_ONCE && matches!(outcome, Outcome::Lost(_));
                    assert!(is_cut_off || matches!(outcome.status(), Some(409 | 412)), "{outcome:?}");
                }
            }
        }
        assert_eq!(winners.len(), 1, "{len}: {winners:?}");
        let got = client.get_object().bucket(BUCKET).key(&key).send().await.unwrap();
        assert_eq!(bytes_of(got).await.unwrap(), Content::new(winners[0], len).bytes());
    }
}

/// A counter kept by compare-and-swap loses no increment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_by_if_match_are_not_lost() {
    const WRITERS: usize = 8;
    const INCREMENTS: usize = 10;
    let (_server, client) = served().await;
    client.put_object().bucket(BUCKET).key("n").body(ByteStream::from_static(b"0")).send().await.unwrap();
    let increments = (0..WRITERS).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut done = 0;
            while done < INCREMENTS {
                let got = client.get_object().bucket(BUCKET).key("n").send().await.unwrap();
                let etag = got.e_tag().unwrap().to_owned();
                let text = String::from_utf8(bytes_of(got).await.unwrap().to_vec()).unwrap();
                let next = (text.parse::<usize>().unwrap() + 1).to_string();
                let put = client.put_object().bucket(BUCKET).key("n").body(ByteStream::from(next.into_bytes()));
                match put.if_match(etag).send().await {
                    Ok(_) => done += 1,
                    Err(error) => {
                        let outcome = failure(Err::<(), _>(error));
                        assert!(matches!(outcome.status(), Some(409 | 412)), "{outcome:?}");
                    }
                }
            }
        })
    });
    futures::future::try_join_all(increments).await.unwrap();
    let got = client.get_object().bucket(BUCKET).key("n").send().await.unwrap();
    assert_eq!(bytes_of(got).await.unwrap(), (WRITERS * INCREMENTS).to_string());
}
