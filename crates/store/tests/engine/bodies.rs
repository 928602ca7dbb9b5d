//! Bodies that do not come as promised, and their digests.

use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::join_all;
use futures::stream;
use gabion_store::{
    BodyError, BodyPiece, BodySource, Checksum, ChecksumAlgorithm, DigestKind, GetObject, ObjectBody, Store, StoreError,
};

use crate::harness::*;

async fn fresh() -> (World, Store) {
    let world = World::new(1, config(2, 1));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    (world, store)
}

fn pieces(pieces: Vec<Result<Bytes, BodyError>>, length: Option<u64>) -> ObjectBody {
    ObjectBody::from_stream(Box::pin(stream::iter(pieces)), length)
}

fn checksum(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> Checksum {
    let mut digester = gabion_erasure::Digester::new(false, &[algorithm]);
    digester.update(bytes);
    digester.finish().checksums[0]
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_the_old_object() {
    let (_world, store) = fresh().await;
    let old = bytes(9, 100);
    for size in [1000, 3_000_000] {
        put(&store, "bucket", "key", &old).await;
        for (last, length, expected) in [
            (Err(BodyError::Incomplete), None, StoreError::Body(BodyError::Incomplete)),
            (Err(BodyError::BadChunkSignature), None, StoreError::Body(BodyError::BadChunkSignature)),
            (Ok(Bytes::new()), Some(size as u64 + 1), StoreError::Body(BodyError::WrongLength)),
            (Ok(bytes(2, 1)), Some(size as u64), StoreError::Body(BodyError::TooLarge)),
            (Ok(Bytes::new()), Some((5 << 30) + 1), StoreError::EntityTooLarge),
        ] {
            let body = pieces(vec![Ok(bytes(1, size)), last], length);
            let got = store.put_object(put_request("bucket", "key"), body).await.unwrap_err();
            assert_eq!(format!("{got:?}"), format!("{expected:?}"));
            assert_eq!(get(&store, "bucket", "key").await.unwrap(), old);
        }
    }
    assert_eq!(store.metrics().bodies_refused.get(), 10);
}

#[tokio::test]
async fn tiny_pieces_and_unknown_lengths_come_out_whole() {
    let (_world, store) = fresh().await;
    for (size, piece) in [(0, 1), (5000, 7), (200_000, 999), ((1 << 20) + 1, 65_536), (2_000_000, 20_000)] {
        let body = bytes(size as u64, size);
        let parts = body.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        store.put_object(put_request("bucket", "key"), pieces(parts, None)).await.unwrap();
        assert_eq!(get(&store, "bucket", "key").await.unwrap(), body);
    }
}

#[tokio::test]
async fn digests_are_checked_and_kept() {
    let (_world, store) = fresh().await;
    for size in [1000, 1_500_000] {
        let body = bytes(3, size);
        for algorithm in ChecksumAlgorithm::ALL {
            let good = checksum(algorithm, &body);
            let with = |checksums| ObjectBody { checksums, ..ObjectBody::from_bytes(body.clone()) };
            let put = store.put_object(put_request("bucket", "key"), with(vec![good])).await.unwrap();
            assert_eq!(put.checksums.len(), 1);
            let head = store.head_object(&GetObject::whole(bucket("bucket"), key("key"))).unwrap();
            assert_eq!(head.info.checksums[0].value, good.as_bytes());
            assert_eq!(head.info.checksums[0].algorithm, algorithm.index());
            let bad = checksum(algorithm, b"other");
            let refused = store.put_object(put_request("bucket", "key"), with(vec![bad])).await;
            assert!(matches!(refused, Err(StoreError::BadDigest(DigestKind::Checksum(a))) if a == algorithm));

            let trailing = |value: Result<Vec<Checksum>, BodyError>| ObjectBody {
                compute: vec![algorithm],
                trailers: Some(Box::new(|| value)),
                ..ObjectBody::from_bytes(body.clone())
            };
            store.put_object(put_request("bucket", "key"), trailing(Ok(vec![good]))).await.unwrap();
            let refused = store.put_object(put_request("bucket", "key"), trailing(Ok(vec![bad]))).await;
            assert!(matches!(refused, Err(StoreError::BadDigest(_))));
            let broken = trailing(Err(BodyError::MalformedTrailer("x".into())));
            let refused = store.put_object(put_request("bucket", "key"), broken).await;
            assert!(matches!(refused, Err(StoreError::Body(BodyError::MalformedTrailer(_)))));
        }
        let md5 = |content_md5| ObjectBody { content_md5: Some(content_md5), ..ObjectBody::from_bytes(body.clone()) };
        let refused = store.put_object(put_request("bucket", "key"), md5([0; 16])).await;
        assert!(matches!(refused, Err(StoreError::BadDigest(DigestKind::Md5))));
        let mut digester = gabion_erasure::Digester::new(true, &[]);
        digester.update(&body);
        let good = digester.finish().md5.unwrap();
        store.put_object(put_request("bucket", "key"), md5(good)).await.unwrap();
    }
}

#[tokio::test]
async fn a_bucket_that_goes_while_a_body_comes_takes_no_object() {
    let (_world, store) = fresh().await;
    let (send, receive) = futures::channel::mpsc::unbounded();
    let body = ObjectBody::from_stream(Box::pin(receive), None);
    let task = tokio::spawn({
        let store = store.clone();
        async move { store.put_object(put_request("bucket", "key"), body).await }
    });
    send.unbounded_send(Ok(bytes(1, 2_000_000))).unwrap();
    tokio::task::yield_now().await;
    store.delete_bucket(&bucket("bucket")).await.unwrap();
    drop(send);
    assert!(matches!(task.await.unwrap(), Err(StoreError::NoSuchBucket)));
}

/// One that does not say how long it is, and turns out to be long, leaves the memory of small ones to these while the rest of it comes.
#[tokio::test]
async fn a_body_that_is_long_keeps_no_memory_from_short_ones() {
    let (_world, store) = fresh().await;
    let used = || store.memory().iter().find(|use_| use_.name == "bodies").unwrap().used_bytes;
    let (send, receive) = futures::channel::mpsc::unbounded();
    let body = ObjectBody::from_stream(Box::pin(receive), None);
    let task = tokio::spawn({
        let store = store.clone();
        async move { store.put_object(put_request("bucket", "key"), body).await }
    });
    let wait_until = async |is_there: &dyn Fn() -> bool| {
        for _ in 0..10_000 {
            if is_there() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{} bytes are taken", used());
    };
    send.unbounded_send(Ok(bytes(1, 1000))).unwrap();
    wait_until(&|| used() == 1 << 20).await;
    send.unbounded_send(Ok(bytes(2, 2_000_000))).unwrap();
    wait_until(&|| used() == 0).await;
    drop(send);
    task.await.unwrap().unwrap();
    assert_eq!(get(&store, "bucket", "key").await.unwrap().len(), 2_001_000);
}

/// A body as a connection has it: some of it was read already, the rest is read to where it is wanted, as it comes.
struct Received {
    rest: Bytes,
    turn: usize,
}

impl BodySource for Received {
    fn poll_piece(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<Option<Result<BodyPiece, BodyError>>> {
        self.turn += 1;
        if self.turn.is_multiple_of(3) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let most = [100_000, 1, 4096, 77, 30_001][self.turn % 5].min(self.rest.len());
        if most == 0 {
            return Poll::Ready(None);
        }
        if room.is_empty() || self.turn.is_multiple_of(7) {
            return Poll::Ready(Some(Ok(BodyPiece::Bytes(self.rest.split_to(most)))));
        }
        let bytes = self.rest.split_to(most.min(room.len()));
        room[..bytes.len()].copy_from_slice(&bytes);
        Poll::Ready(Some(Ok(BodyPiece::InRoom(bytes.len()))))
    }
}

/// Two stripes at a time have memory, and none is kept while another is waited for: neither by what is written nor by what has no MD5 yet.
#[tokio::test(start_paused = true)]
async fn bodies_that_are_read_into_their_stripes_do_not_wait_for_each_other() {
    let mut config = config(2, 1);
    config.log.stripe_memory_bytes = 2 * 3 * config.log.stripe_payload_bytes as u64 / 2;
    let stripe_bytes = config.log.stripe_payload_bytes;
    let world = World::new(79, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let bodies: Vec<Bytes> = (0..20).map(|i| bytes(i, 5 * stripe_bytes + [0, 1, 65_536][i as usize % 3])).collect();
    let puts = bodies.iter().enumerate().map(|(i, body)| {
        let mut digester = gabion_erasure::Digester::new(true, &[]);
        digester.update(body);
        let received = Received { rest: body.clone(), turn: i };
        let put = ObjectBody {
            stream: Box::new(received),
            content_md5: digester.finish().md5,
            compute: vec![ChecksumAlgorithm::Crc32],
            ..ObjectBody::from_stream(Box::pin(stream::empty()), Some(body.len() as u64))
        };
        store.put_object(put_request("bucket", &format!("{i}")), put)
    });
    for (put, body) in join_all(puts).await.into_iter().zip(&bodies) {
        assert_eq!(put.unwrap().checksums[0].value, checksum(ChecksumAlgorithm::Crc32, body).as_bytes());
    }
    for (i, body) in bodies.iter().enumerate() {
        assert!(get(&store, "bucket", &format!("{i}")).await.unwrap() == body, "{i}");
    }
}

/// A client that is slow has the stripe that it fills: what it sent before is durable and has its MD5, though somebody else has nothing to share it with.
#[tokio::test(start_paused = true)]
async fn a_stalled_body_keeps_no_more_than_one_stripe() {
    let mut config = config(2, 1);
    let stripe_bytes = config.log.stripe_payload_bytes;
    let taken_bytes = 3 * stripe_bytes as u64 / 2;
    config.log.stripe_memory_bytes = 3 * taken_bytes;
    let world = World::new(80, config);
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let body = bytes(1, 6 * stripe_bytes);
    let mut digester = gabion_erasure::Digester::new(true, &[]);
    digester.update(&body);
    let (send, receive) = futures::channel::mpsc::unbounded();
    let put = ObjectBody {
        content_md5: digester.finish().md5,
        ..ObjectBody::from_stream(Box::pin(receive), Some(body.len() as u64))
    };
    let idle = ObjectBody::from_stream(Box::pin(stream::pending()), Some(body.len() as u64));
    // Who has sent nothing is there first: the other one is not alone then, and leaves what it has.
    let [idle, stalled] = [("idle", idle), ("stalled", put)].map(|(name, body)| {
        let store = store.clone();
        tokio::spawn(async move { store.put_object(put_request("bucket", name), body).await })
    });
    let stripes = || store.memory().into_iter().find(|memory| memory.name == "stripes").unwrap().used_bytes;
    let half = body.split_at(2 * stripe_bytes + stripe_bytes / 2);
    half.0.chunks(10_000).for_each(|piece| send.unbounded_send(Ok(Bytes::copy_from_slice(piece))).unwrap());
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(stripes(), taken_bytes, "and none for who has sent nothing");
    half.1.chunks(10_000).for_each(|piece| send.unbounded_send(Ok(Bytes::copy_from_slice(piece))).unwrap());
    drop(send);
    stalled.await.unwrap().unwrap();
    assert_eq!(stripes(), 0);
    assert!(!idle.is_finished());
    idle.abort();
    assert!(get(&store, "bucket", "stalled").await.unwrap() == body);
}

#[tokio::test]
async fn a_body_that_breaks_off_in_its_stripe_leaves_the_old_object() {
    let (_world, store) = fresh().await;
    let old = bytes(9, 100);
    put(&store, "bucket", "key", &old).await;
    for (comes, length, expected) in [(2_000_000, 2_000_001, "WrongLength"), (2_000_000, 1_999_999, "TooLarge")] {
        let source = Received { rest: bytes(1, comes), turn: 0 };
        let body =
            ObjectBody { stream: Box::new(source), ..ObjectBody::from_stream(Box::pin(stream::empty()), Some(length)) };
        let refused = store.put_object(put_request("bucket", "key"), body).await.unwrap_err();
        assert!(format!("{refused:?}").contains(expected), "{refused:?}");
        assert_eq!(get(&store, "bucket", "key").await.unwrap(), old);
    }
}
