//! What the buckets of an account hold together, kept for the accounts that were asked for: those with a quota.
//!
//! Made of the buckets' counters when it is first asked for, and from then on changed with them, after each index commit and before anybody is
//! answered. A bucket that comes or goes throws away what is known of its owner, and of nobody else.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::atomic::{AtomicBool, Ordering},
};

use gabion_metadata::{
    Index, Pages, ScanRange, Table,
    keys::{self, Counted},
    rows::{BucketRow, Row, UsageRow},
};
use gabion_types::BucketName;
use parking_lot::Mutex;

use crate::{Holding, StoreError};

/// Rows that one scan returns at most.
const PAGE_ROWS: usize = 512;

/// Changes of counters, by their keys: objects (or parts) and bytes.
pub(super) type Changes = BTreeMap<Vec<u8>, (i64, i64)>;

/// See the module.
#[derive(Default)]
pub(super) struct Accounts {
    known: Mutex<Known>,
    /// Whether any is known.
    is_used: AtomicBool,
}

#[derive(Default)]
struct Known {
    /// By canonical id.
    totals: HashMap<String, Total>,
    /// Of whose total a counter is part, and whether it counts parts.
    counters: HashMap<Vec<u8>, (String, bool)>,
}

struct Total {
    held: Holding,
    /// How the rows of buckets name the account.
    owners: Vec<String>,
}

impl Accounts {
    /// Whether changes are to be told.
    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    pub(super) fn get(&self, account: &str) -> Option<Holding> {
        self.known.lock().totals.get(account).map(|total| total.held)
    }

    /// Adds up what an account holds, that of all buckets whose rows name one of `owners`. Nothing is committed meanwhile.
    pub(super) fn add_up(&self, index: &dyn Index, account: &str, owners: Vec<String>) -> Result<Holding, StoreError> {
        let mut total = Holding::default();
        let mut counters = Vec::new();
        let mut pages = Pages::new(ScanRange::all(Table::Bucket), PAGE_ROWS);
        while let Some(rows) = pages.next(|range, limit| index.scan(range, limit))? {
            for (key, row) in rows {
                if !owners.contains(&BucketRow::decode(&row)?.owner) {
                    continue;
                }
                let name = keys::decode_bucket(&key).map_err(|error| StoreError::Corrupt(error.to_string()))?;
                let held = of_bucket(index, &name)?;
                total.objects += held.objects;
                total.bytes += held.bytes;
                total.parts += held.parts;
                total.part_bytes += held.part_bytes;
                counters.push((keys::counter(Counted::PartsOfBucket(name.as_str())), true));
                counters.push((key, false));
            }
        }
        let mut known = self.known.lock();
        known.totals.insert(account.to_owned(), Total { held: total, owners });
        known.counters.extend(counters.into_iter().map(|(key, parts)| (key, (account.to_owned(), parts))));
        self.is_used.store(true, Ordering::Release);
        Ok(total)
    }

    /// Counters were changed.
    pub(super) fn changed(&self, changes: &Changes) {
        let Known { totals, counters } = &mut *self.known.lock();
        for (key, &(count, bytes)) in changes {
            let Some((account, is_of_parts)) = counters.get(key) else { continue };
            let Some(Total { held: total, .. }) = totals.get_mut(account) else { continue };
            let (counted, sum) = if *is_of_parts {
                (&mut total.parts, &mut total.part_bytes)
            } else {
                (&mut total.objects, &mut total.bytes)
            };
            *counted = counted.saturating_add_signed(count);
            *sum = sum.saturating_add_signed(bytes);
        }
    }

    /// Buckets of these came or went.
    pub(super) fn forget(&self, owners: &BTreeSet<String>) {
        let Known { totals, counters } = &mut *self.known.lock();
        totals.retain(|_, total| total.owners.iter().all(|owner| !owners.contains(owner)));
        counters.retain(|_, (account, _)| totals.contains_key(account));
        self.is_used.store(!totals.is_empty(), Ordering::Release);
    }
}

/// What a bucket holds.
pub(crate) fn of_bucket(index: &dyn Index, bucket: &BucketName) -> Result<Holding, StoreError> {
    held(index, &keys::bucket(bucket), &keys::counter(Counted::PartsOfBucket(bucket.as_str())))
}

/// What a user holds.
pub(crate) fn of_user(index: &dyn Index, user: &str) -> Result<Holding, StoreError> {
    held(index, &keys::counter(Counted::ObjectsOfUser(user)), &keys::counter(Counted::PartsOfUser(user)))
}

/// Both counters at one point in time: a completion moves bytes from one to the other.
fn held(index: &dyn Index, objects: &[u8], parts: &[u8]) -> Result<Holding, StoreError> {
    let index = index.snapshot();
    let counted = |key: &[u8]| match index.get(Table::Usage, key)? {
        Some(row) => Ok::<_, StoreError>(UsageRow::decode(&row)?),
        None => Ok(UsageRow::default()),
    };
    let (objects, parts) = (counted(objects)?, counted(parts)?);
    Ok(Holding { objects: objects.objects, bytes: objects.bytes, parts: parts.objects, part_bytes: parts.bytes })
}
