//! What was deleted stays deleted, whichever segments went meanwhile, and of whichever of them the index is made anew.
//!
//! Each operation has a segment of its own, so that a few of them make what takes thousands elsewhere: a deletion without its object, an object without what it took the place of.

use std::collections::BTreeMap;

use bytes::Bytes;
use gabion_metadata::rows::SegmentState;
use gabion_store::{Attributes, CompletedPart, CreateUpload, ObjectBody, Store, UploadPart, UploadRef};
use proptest::prelude::*;

use super::model::cases;
use crate::harness::*;

const KEYS: [&str; 2] = ["a", "b"];

#[derive(Debug, Clone)]
enum Op {
    /// With an object beside it that stays, or in a segment that goes with it.
    Put {
        key: usize,
        beside: bool,
    },
    /// In two parts; what stays lies beside the completion.
    PutParts {
        key: usize,
        beside: bool,
    },
    Delete {
        key: usize,
    },
    Rename {
        from: usize,
    },
    /// The newest or the oldest that stays is deleted.
    Go {
        newest: bool,
    },
    Free,
    Compact,
    Snapshot,
    LoseIndex {
        restore: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..KEYS.len();
    prop_oneof![
        4 => (key.clone(), any::<bool>()).prop_map(|(key, beside)| Op::Put { key, beside }),
        2 => (key.clone(), any::<bool>()).prop_map(|(key, beside)| Op::PutParts { key, beside }),
        4 => key.clone().prop_map(|key| Op::Delete { key }),
        1 => key.prop_map(|from| Op::Rename { from }),
        1 => any::<bool>().prop_map(|newest| Op::Go { newest }),
        3 => Just(Op::Free),
        1 => Just(Op::Compact),
        1 => Just(Op::Snapshot),
        2 => any::<bool>().prop_map(|restore| Op::LoseIndex { restore }),
    ]
}

struct Run {
    world: World,
    store: Store,
    /// The objects that are there.
    present: BTreeMap<String, Bytes>,
    numbered: u64,
}

impl Run {
    async fn new(seed: u64) -> Self {
        let mut config = config(1, 0);
        config.log.small_lanes = 1;
        config.compaction.live_ratio_max = 1.0;
        let world = World::new(seed, config);
        let store = world.open().await;
        store.create_bucket(bucket("bucket"), None).await.unwrap();
        Self { world, store, present: BTreeMap::new(), numbered: 0 }.next_segment().await
    }

    fn next_number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    async fn put(&mut self, name: &str, len: usize) {
        let body = bytes(self.next_number(), len);
        put(&self.store, "bucket", name, &body).await;
        self.present.insert(name.to_owned(), body);
    }

    async fn put_beside(&mut self, beside: bool) {
        if beside {
            let name = format!("stays {:04}", self.next_number());
            self.put(&name, 100).await;
        }
    }

    /// What comes next has a segment of its own. The one that ends has something dead in it beside what it is about: room for what is carried.
    async fn next_segment(mut self) -> Self {
        self.put("filler", 2000).await;
        self.store = self.world.restart(self.store).await;
        self
    }

    async fn put_parts(mut self, name: &str, beside: bool) -> Self {
        let (bucket, key) = (bucket("bucket"), key(name));
        let request = CreateUpload {
            bucket: bucket.clone(),
            key: key.clone(),
            attributes: Attributes::default(),
            checksum: None,
        };
        let target = UploadRef { bucket, key, upload: self.store.create_upload(request).await.unwrap() };
        let (mut parts, mut body) = (Vec::new(), Vec::new());
        for part_number in 1..=2 {
            let bytes = bytes(self.next_number(), 100);
            body.extend_from_slice(&bytes);
            let part = UploadPart { target: target.clone(), part_number };
            let etag = self.store.upload_part(part, ObjectBody::from_bytes(bytes)).await.unwrap().etag.to_string();
            parts.push(CompletedPart { part_number, etag, checksums: Vec::new() });
        }
        self = self.next_segment().await;
        let request = complete_request(target, parts);
        self.store.complete_upload(request).await.unwrap();
        self.present.insert(name.to_owned(), body.into());
        self.put_beside(beside).await;
        self.next_segment().await
    }

    async fn delete(&mut self, name: &str) {
        assert_eq!(delete(&self.store, "bucket", name).await, self.present.remove(name).is_some());
    }

    async fn step(mut self, op: Op) -> Self {
        match op {
            Op::Put { key, beside } => {
                self.put(KEYS[key], 100).await;
                self.put_beside(beside).await;
                self.next_segment().await
            }
            Op::PutParts { key, beside } => self.put_parts(KEYS[key], beside).await,
            Op::Delete { key } => {
                self.delete(KEYS[key]).await;
                self.next_segment().await
            }
            Op::Rename { from } => {
                let (from, to) = (KEYS[from], KEYS[1 - from]);
                if let Some(body) = self.present.remove(from) {
                    self.store.rename_object(rename_request(from, to)).await.unwrap();
                    self.present.insert(to.to_owned(), body);
                }
                self.next_segment().await
            }
            Op::Go { newest } => {
                let mut all = self.present.keys().filter(|name| name.starts_with("stays"));
                if let Some(name) = if newest { all.last() } else { all.next() }.cloned() {
                    self.delete(&name).await;
                }
                self.next_segment().await
            }
            Op::Free => {
                self.store.free_dead_segments().await.unwrap();
                self.next_segment().await
            }
            Op::Compact => {
                self.store.compact().await.unwrap();
                self.next_segment().await
            }
            Op::Snapshot => {
                self.store.snapshot_index().await.unwrap();
                self.next_segment().await
            }
            Op::LoseIndex { restore } => self.lose_index(restore).await,
        }
    }

    async fn lose_index(mut self, restore: bool) -> Self {
        self.world.crash(self.store, 0).await;
        self.world.lose_index();
        self.world.config.index_snapshot_restore = restore;
        self.store = self.world.open().await;
        assert_eq!(keys(&self.store, "bucket").await, self.present.keys().cloned().collect::<Vec<_>>());
        for (name, body) in &self.present {
            assert_eq!(get(&self.store, "bucket", name).await.unwrap(), body, "{name}");
        }
        self
    }
}

/// How many bytes nobody needs are in the log after the operations.
fn run(seed: u64, ops: &[Op]) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut run = Run::new(seed).await;
        for op in ops {
            run = run.step(op.clone()).await;
        }
        let rows = run.world.segment_rows().into_values().filter(|row| row.state != SegmentState::Freeing);
        let dead_bytes = rows.map(|row| row.written_bytes as i64 - row.live_bytes).sum();
        for restore in [true, false] {
            run = run.lose_index(restore).await;
        }
        dead_bytes
    })
}

const PUT: Op = Op::Put { key: 0, beside: false };
const PUT_BESIDE: Op = Op::Put { key: 0, beside: true };
const DELETE: Op = Op::Delete { key: 0 };
const RESTORE: Op = Op::LoseIndex { restore: true };
const REBUILD: Op = Op::LoseIndex { restore: false };

#[test]
fn a_completion_whose_parts_are_gone_hides_nothing_from_a_later_object() {
    let upload = Op::PutParts { key: 0, beside: true };
    let go = Op::Go { newest: true };
    run(
        1,
        &[PUT_BESIDE, Op::Snapshot, upload, PUT, Op::Free, RESTORE, DELETE, go, Op::Free, Op::Free, Op::Free, RESTORE],
    );
}

#[test]
fn a_snapshot_that_an_index_was_made_without_may_have_what_was_there_before_an_object() {
    // Free also starts anew: what the index was made without, it still knows then.
    run(2, &[PUT, Op::Snapshot, PUT, Op::Free, REBUILD, Op::Free, DELETE, Op::Free, Op::Free, RESTORE]);
}

#[test]
fn a_deletion_that_names_nothing_is_carried_under_an_object_that_names_nothing() {
    let mut ops = vec![PUT_BESIDE; 10];
    ops.extend([DELETE, PUT, Op::Snapshot]);
    ops.extend(vec![PUT; 10]);
    ops.extend([Op::Free, RESTORE, DELETE, Op::Snapshot, Op::Free, Op::Free, REBUILD]);
    run(3, &ops);
}

#[test]
fn deletions_of_a_key_that_was_often_overwritten_are_not_carried_for_ever() {
    let dead_bytes = |deletions| {
        let mut ops = Vec::new();
        for _ in 0..deletions {
            for _ in 0..4 {
                ops.extend([PUT, PUT, PUT, Op::Free]);
            }
            ops.push(DELETE);
        }
        ops.extend(vec![Op::Free; 4]);
        run(4, &ops)
    };
    assert_eq!(dead_bytes(8), dead_bytes(2));
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, ..ProptestConfig::with_cases(cases(48)) })]

    #[test]
    fn what_was_deleted_stays_deleted(seed in 1_u64..1_000_000, ops in prop::collection::vec(op(), 1..60)) {
        run(seed, &ops);
    }
}
