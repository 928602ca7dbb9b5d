//! What large reads have the page cache load, and when: what is needed at once, and of what lies behind it as much as the memory for reading ahead has room for.

use std::{
    collections::BTreeSet,
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use gabion_platform::{Disk, DiskFile, Durable, IoFuture, Load, SimDisk, Wanted};
use gabion_store::{GetObject, ObjectStream, Store};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::harness::*;

/// Where a load or a read began: disk, path, offset.
type At = (usize, String, u64);

/// The page cache of all disks, which loads when the test says so.
struct Cache {
    loads: Mutex<Vec<(At, Wanted)>>,
    reads: AtomicUsize,
    opened: AtomicUsize,
    /// Loads under way.
    waiting: AtomicUsize,
    /// Whether there is anything to be waited for: it has nothing.
    lacks: AtomicBool,
    /// Whether reads are not there at once.
    reads_wait: AtomicBool,
    now: Arc<Semaphore>,
    later: Arc<Semaphore>,
}

struct CachedFile {
    file: Arc<dyn DiskFile>,
    disk: usize,
    path: String,
    cache: Arc<Cache>,
}

/// One of the loads under way.
struct Waiting(Arc<Cache>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl DiskFile for CachedFile {
    fn read_at(&self, offset: u64, len: usize) -> IoFuture<Bytes> {
        self.cache.reads.fetch_add(1, Ordering::SeqCst);
        let mut read = self.file.read_at(offset, len);
        if self.cache.reads_wait.load(Ordering::SeqCst) {
            return Box::pin(async move {
                tokio::task::yield_now().await;
                read.await
            });
        }
        loop {
            if let Some(read) = (&mut read).now_or_never() {
                return Box::pin(std::future::ready(read));
            }
        }
    }

    fn load(&self, offset: u64, _len: usize, wanted: Wanted) -> Load {
        let cache = Arc::clone(&self.cache);
        cache.loads.lock().push(((self.disk, self.path.clone(), offset), wanted));
        if !cache.lacks.load(Ordering::SeqCst) {
            return None;
        }
        cache.waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = Waiting(Arc::clone(&cache));
        Some(Box::pin(async move {
            let turns = match wanted {
                Wanted::Now => &cache.now,
                Wanted::Later => &cache.later,
            };
            turns.acquire().await.unwrap().forget();
            drop(waiting);
        }))
    }

    fn write_at(&self, offset: u64, parts: Vec<Bytes>, durable: Durable) -> IoFuture<()> {
        self.file.write_at(offset, parts, durable)
    }

    fn sync(&self) -> IoFuture<()> {
        self.file.sync()
    }

    fn len(&self) -> IoFuture<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> IoFuture<()> {
        self.file.set_len(len)
    }

    fn punch(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.file.punch(offset, len)
    }

    fn prewrite(&self, offset: u64, len: u64) -> IoFuture<bool> {
        self.file.prewrite(offset, len)
    }
}

const STRIPE_BYTES: usize = 2 << 20;
const STRIPES: usize = 6;
const AHEAD: usize = 2;
/// Of a stripe two chunks have data.
const DATA: usize = 2;

/// A store with one large object, of which no file is open yet.
struct Scene {
    world: World,
    store: Store,
    cache: Arc<Cache>,
    object: Bytes,
}

impl Scene {
    async fn new(seed: u64) -> Self {
        let mut config = config(DATA, 1);
        config.log.stripe_payload_bytes = STRIPE_BYTES;
        config.log.segment_payload_bytes = 32 << 20;
        config.log.large_lanes = 1;
        config.read_ahead_stripes = AHEAD;
        let world = World::new(seed, config);
        let cache = Arc::new(Cache {
            loads: Mutex::default(),
            reads: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            lacks: AtomicBool::new(true),
            reads_wait: AtomicBool::new(false),
            now: Arc::new(Semaphore::new(0)),
            later: Arc::new(Semaphore::new(0)),
        });
        let wrap = |number: usize, disk: &SimDisk| -> Arc<dyn Disk> {
            let cache = Arc::clone(&cache);
            disk.wrapped(Arc::new(move |_, path, opened| {
                let (disk, path, cache) = (number, path.to_owned(), Arc::clone(&cache));
                Box::pin(async move {
                    // A file is never open at once.
                    tokio::task::yield_now().await;
                    cache.opened.fetch_add(1, Ordering::SeqCst);
                    Ok(Arc::new(CachedFile { file: opened.await?, disk, path, cache }) as Arc<dyn DiskFile>)
                })
            }))
        };
        let object = bytes(seed, STRIPES * STRIPE_BYTES);
        let mut store = world.open_on(wrap).await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        put(&store, "bucket", "object", &object).await;
        // The next start seals the segment, and the one after it has no need to look into it.
        for _ in 0..2 {
            store.shutdown().await;
            drop(store);
            store = world.open_on(wrap).await;
        }
        cache.reads.store(0, Ordering::SeqCst);
        cache.opened.store(0, Ordering::SeqCst);
        assert_eq!(cache.loads.lock().len(), 0, "what is written is not loaded");
        Self { world, store, cache, object }
    }

    /// A get that begins, and waits for its first bytes.
    async fn begin(&self) -> tokio::task::JoinHandle<ObjectStream> {
        let store = self.store.clone();
        let task = tokio::spawn(async move {
            store.get_object(GetObject::whole(bucket("bucket"), key("object"))).await.unwrap().body
        });
        settle().await;
        task
    }

    /// How many loads were asked for since the last time, of those somebody waits for and of the others.
    fn loads(&self) -> [usize; 2] {
        let loads = std::mem::take(&mut *self.cache.loads.lock());
        let starts: BTreeSet<_> = loads.iter().map(|(at, _)| at).collect();
        assert_eq!(starts.len(), loads.len(), "what is loaded is not loaded again");
        let count = |wanted| loads.iter().filter(|load| load.1 == wanted).count();
        [Wanted::Now, Wanted::Later].map(count)
    }

    fn waiting(&self) -> usize {
        self.cache.waiting.load(Ordering::SeqCst)
    }

    /// What is taken of the memory for reading ahead.
    fn bytes_ahead(&self) -> usize {
        let memory = self.store.memory().into_iter().find(|memory| memory.name == "reads ahead").unwrap();
        memory.used_bytes as usize
    }

    /// The body has bytes `range` next.
    async fn next(&self, body: &mut ObjectStream, range: Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            let chunk = body.next().await.unwrap().unwrap();
            assert!(chunk == self.object[at..at + chunk.len()], "bytes from {at} on");
            at += chunk.len();
        }
        assert_eq!(at, range.end);
    }
}

/// Lets everything go on that can.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stripe_is_loaded_before_it_is_read_and_those_behind_it_meanwhile() {
    let scene = Scene::new(61).await;
    let get = scene.begin().await;
    assert_eq!((scene.loads(), scene.waiting()), ([DATA, AHEAD * DATA], (1 + AHEAD) * DATA));
    assert_eq!((scene.bytes_ahead(), scene.cache.reads.load(Ordering::SeqCst)), (AHEAD * STRIPE_BYTES, 0));
    scene.cache.now.add_permits(DATA);
    let mut body = get.await.unwrap();
    // The first one is there, in parts; nothing else is asked for while they are read.
    scene.next(&mut body, 0..STRIPE_BYTES).await;
    settle().await;
    assert_eq!((scene.loads(), scene.waiting(), scene.bytes_ahead()), ([0, 0], AHEAD * DATA, AHEAD * STRIPE_BYTES));
    // The second one is not there.
    assert!(body.next().now_or_never().is_none());
    for stripe in 1..STRIPES {
        scene.cache.later.add_permits(DATA);
        scene.next(&mut body, stripe * STRIPE_BYTES..(stripe + 1) * STRIPE_BYTES).await;
        let ahead = AHEAD.min(STRIPES - 1 - stripe);
        settle().await;
        let begun = if stripe + AHEAD < STRIPES { DATA } else { 0 };
        assert_eq!((scene.loads(), scene.bytes_ahead()), ([0, begun], ahead * STRIPE_BYTES), "stripe {stripe}");
    }
    assert!(body.next().await.is_none());
    assert_eq!((scene.waiting(), scene.bytes_ahead()), (0, 0));
}

#[tokio::test]
async fn loads_end_with_the_stream_and_give_their_memory_back_then() {
    let scene = Scene::new(62).await;
    let get = scene.begin().await;
    assert_eq!((scene.waiting(), scene.bytes_ahead()), ((1 + AHEAD) * DATA, AHEAD * STRIPE_BYTES));
    get.abort();
    settle().await;
    assert_eq!((scene.waiting(), scene.bytes_ahead()), (0, 0), "before the first bytes");
    scene.loads();
    for reads_wait in [false, true] {
        scene.cache.reads_wait.store(reads_wait, Ordering::SeqCst);
        let get = scene.begin().await;
        scene.cache.now.add_permits(DATA);
        let mut body = get.await.unwrap();
        scene.next(&mut body, 0..STRIPE_BYTES).await;
        assert_eq!(scene.waiting(), AHEAD * DATA);
        assert!(scene.bytes_ahead() >= AHEAD * STRIPE_BYTES);
        drop(body);
        settle().await;
        assert_eq!((scene.waiting(), scene.bytes_ahead()), (0, 0), "reads ahead: {reads_wait}");
        scene.loads();
    }
}

/// A client that does not ask for its body keeps nobody's turn: what its stream waits for goes on by itself.
#[tokio::test]
async fn what_a_stalled_client_has_asked_for_ends_by_itself() {
    let scene = Scene::new(66).await;
    scene.cache.lacks.store(false, Ordering::SeqCst);
    let mut body = scene.begin().await.await.unwrap();
    scene.next(&mut body, 0..STRIPE_BYTES).await;
    // The second stripe is not there, and was not loaded ahead.
    scene.cache.lacks.store(true, Ordering::SeqCst);
    assert!(body.next().now_or_never().is_none());
    settle().await;
    assert_eq!((scene.loads(), scene.waiting()), ([2 * DATA, AHEAD * DATA], (1 + AHEAD) * DATA));
    scene.cache.now.add_permits(DATA);
    settle().await;
    assert_eq!(scene.waiting(), AHEAD * DATA, "nobody asked for the body");
    scene.cache.later.add_permits(STRIPES * DATA);
    scene.next(&mut body, STRIPE_BYTES..scene.object.len()).await;
}

/// Files that have to be opened are not taken for pages that have to be loaded.
#[tokio::test]
async fn nothing_is_loaded_ahead_of_what_is_there() {
    let scene = Scene::new(63).await;
    scene.cache.lacks.store(false, Ordering::SeqCst);
    let mut body = scene.begin().await.await.unwrap();
    assert_eq!(scene.cache.opened.load(Ordering::SeqCst), DATA);
    for stripe in 0..STRIPES {
        scene.next(&mut body, stripe * STRIPE_BYTES..(stripe + 1) * STRIPE_BYTES).await;
        assert_eq!((scene.loads(), scene.bytes_ahead()), ([DATA, 0], 0));
    }
    assert!(body.next().await.is_none());
}

/// Where what was loaded is not there at once after all, it is read ahead: with the memory that its loads have, and without loading it once more.
#[tokio::test]
async fn what_is_read_ahead_is_what_was_loaded_ahead() {
    let scene = Scene::new(64).await;
    scene.cache.reads_wait.store(true, Ordering::SeqCst);
    let get = scene.begin().await;
    scene.cache.now.add_permits(DATA);
    let mut body = get.await.unwrap();
    // The rest of the first stripe is read ahead as well.
    assert_eq!((scene.loads(), scene.waiting()), ([DATA, AHEAD * DATA], AHEAD * DATA));
    let rest_bytes = STRIPE_BYTES - (512 << 10);
    assert_eq!(scene.bytes_ahead(), rest_bytes + AHEAD * STRIPE_BYTES, "nothing has two shares");
    scene.next(&mut body, 0..STRIPE_BYTES).await;
    for stripe in 1..STRIPES {
        scene.cache.later.add_permits(DATA);
        scene.next(&mut body, stripe * STRIPE_BYTES..(stripe + 1) * STRIPE_BYTES).await;
        settle().await;
        assert!(scene.waiting() <= AHEAD * DATA);
    }
    assert!(body.next().await.is_none());
    assert_eq!(scene.loads(), [0, (STRIPES - 1 - AHEAD) * DATA]);
    assert_eq!((scene.waiting(), scene.bytes_ahead()), (0, 0));
}

/// Where a target can not be read, whole stripes are read ahead with what replaces it, and each is loaded once before that.
#[tokio::test]
async fn stripes_that_are_not_whole_are_loaded_once() {
    let scene = Scene::new(65).await;
    let get = scene.begin().await;
    let lost = scene.cache.loads.lock()[0].0.0;
    scene.world.disks[lost].fail_reads(u32::MAX, io::ErrorKind::Other);
    for turns in [&scene.cache.now, &scene.cache.later] {
        turns.add_permits(STRIPES * DATA);
    }
    let mut body = get.await.unwrap();
    scene.next(&mut body, 0..scene.object.len()).await;
    assert!(body.next().await.is_none());
    settle().await;
    assert!(scene.store.log_metrics().degraded_reads.get() > 0);
    assert_eq!(scene.loads().iter().sum::<usize>(), STRIPES * DATA);
    assert_eq!((scene.waiting(), scene.bytes_ahead()), (0, 0));
}
