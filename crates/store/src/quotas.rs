//! Quotas, decided where it is exact: when something is committed.
//!
//! What buckets and users hold is counted by rows that change with the objects (`apply`). A commit that adds to what is limited reserves what it
//! adds, under its key's lock, and lets go of it when the log has answered: by then the rows say it. So what is there and what is
//! on its way never go over a quota together, however many write at once. Who would fit but for what others have reserved waits until
//! one of them is done: it may yet fail. Of what nobody knows if it will take effect at the next start the room is taken, and nobody waits for it.
//! What is reserved is asked and counted under one lock, so that nobody is missed between the two.
//!
//! Parts of open uploads count as bytes of the bucket, and of the user who began the upload, until it is completed or aborted: a
//! completion brings no bytes, only an object. Parts that were put before they were counted come in with their completion.
//!
//! Without a quota this costs a question that is answered from memory.

use std::{
    collections::{HashMap, hash_map::Entry},
    pin::pin,
    sync::{Arc, OnceLock},
};

use gabion_metadata::{
    Table, keys,
    rows::{ObjectRow, PartRow, Row, VersionKind},
};
use gabion_types::{BucketName, ObjectKey};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    Configs, Holder, Holding, Limit, Limits, QuotaKeeper, Store, StoreError, UploadPart, VersionId, Versioning,
    apply::{held_by_bucket, held_by_user},
    store::Inner,
    versions,
};

/// Who knows the limits, and what is on its way.
#[derive(Default)]
pub(crate) struct Quotas {
    keeper: OnceLock<Arc<dyn QuotaKeeper>>,
    pending: Arc<Pending>,
}

/// What commits on their way add.
#[derive(Default)]
struct Pending {
    holders: Mutex<HashMap<Holder, Reservations>>,
    /// Rings when a commit has come to its end.
    released: Notify,
}

/// What commits add to a holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reservations {
    /// Those that are not answered.
    on_its_way: Added,
    /// Those that may take effect at the next start.
    uncertain: Added,
}

/// What is added to a holder. What is taken away counts when it is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Added {
    objects: u64,
    bytes: u64,
}

impl Added {
    fn add(&mut self, other: Self) {
        self.objects = self.objects.saturating_add(other.objects);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// A change of what a holder holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change {
    objects: i64,
    bytes: i64,
}

impl Change {
    fn of(objects: i64, bytes: u64) -> Self {
        Self { objects, bytes: i64::try_from(bytes).unwrap_or(i64::MAX) }
    }

    fn less(self, other: Self) -> Self {
        Self { objects: self.objects - other.objects, bytes: self.bytes - other.bytes }
    }

    fn added(self) -> Added {
        Added { objects: self.objects.max(0).unsigned_abs(), bytes: self.bytes.max(0).unsigned_abs() }
    }
}

/// What a commit changes.
struct Adds<'a> {
    bucket: &'a BucketName,
    configs: &'a Configs,
    creator: Option<&'a str>,
    /// For the bucket, and so for its account.
    all: Change,
    /// For its creator.
    his: Change,
}

impl Adds<'_> {
    /// What makes place for it.
    fn replacing(mut self, creator: Option<&str>, change: Change) -> Self {
        self.all = self.all.less(change);
        if creator == self.creator {
            self.his = self.his.less(change);
        }
        self
    }

    /// The object that it takes the place of.
    fn replacing_object(self, row: Option<&ObjectRow>) -> Self {
        match row.filter(|row| !VersionKind::is_marker(row.kind)) {
            Some(row) => self.replacing(row.attributes.creator.as_deref(), Change::of(1, row.size)),
            None => self,
        }
    }

    /// The part that it takes the place of, or makes an object of.
    fn replacing_part(self, row: &PartRow) -> Self {
        match &row.counts {
            Some(counts) => self.replacing(counts.creator.as_deref(), Change::of(0, row.size)),
            None => self,
        }
    }
}

/// One limit that counts for a commit.
struct Wanted {
    holder: Holder,
    limit: Limit,
    change: Change,
}

/// Whether something fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Fits,
    /// If what is on its way fails.
    Later,
    Never,
}

/// Room that is reserved until it is dropped.
pub(crate) struct Reserved {
    pending: Arc<Pending>,
    added: Vec<(Holder, Added)>,
}

impl Reserved {
    /// What it was reserved for may take effect at the next start.
    pub(crate) fn leak(mut self) {
        let pending = Arc::clone(&self.pending);
        let mut holders = pending.holders.lock();
        for (holder, added) in &self.added {
            holders.entry(holder.clone()).or_default().uncertain.add(*added);
        }
        self.release(&mut holders);
    }

    fn release(&mut self, holders: &mut HashMap<Holder, Reservations>) {
        for (holder, added) in self.added.drain(..) {
            if let Entry::Occupied(mut entry) = holders.entry(holder) {
                let left = &mut entry.get_mut().on_its_way;
                left.objects -= added.objects;
                left.bytes -= added.bytes;
                if *entry.get() == Reservations::default() {
                    entry.remove();
                }
            }
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let pending = Arc::clone(&self.pending);
        self.release(&mut pending.holders.lock());
        pending.released.notify_waiters();
    }
}

impl Store {
    /// Says who knows what is limited; the first time counts.
    pub fn set_quota_keeper(&self, keeper: Arc<dyn QuotaKeeper>) {
        // Whoever comes second finds the same users and buckets.
        let _ = self.inner.quotas.keeper.set(keeper);
    }

    /// What somebody holds now.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Unavailable`.
    pub fn holding(&self, holder: &Holder) -> Result<Holding, StoreError> {
        if let Holder::Bucket(bucket) = holder {
            self.inner.require_bucket(bucket)?;
        }
        self.inner.held(holder)
    }

    /// Whether an object of so many bytes by `creator` would fit now. To be asked before its body is; what counts is asked again when it is
    /// committed.
    ///
    /// # Errors
    /// `QuotaExceeded`, `Unavailable`.
    pub fn check_room(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        creator: Option<&str>,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let inner = &self.inner;
        let configs = inner.bucket_configs(bucket)?;
        let Some(limits) = inner.limits(&configs, creator)? else { return Ok(()) };
        let adds = inner.adds_object(bucket, key, &configs, creator, bytes)?;
        inner.check(&wanted(limits, &adds))
    }

    /// As [`Store::check_room`], for a part; one that can not be stored anyway is refused when it is.
    ///
    /// # Errors
    /// `QuotaExceeded`, `Unavailable`.
    pub fn check_part_room(&self, part: &UploadPart, bytes: u64) -> Result<(), StoreError> {
        let inner = &self.inner;
        let Ok(upload) = inner.upload(&part.target) else { return Ok(()) };
        let configs = inner.bucket_configs(&part.target.bucket)?;
        let creator = upload.attributes.creator.as_deref();
        let Some(limits) = inner.limits(&configs, creator)? else { return Ok(()) };
        let adds = inner.adds_part(part, &configs, creator, bytes)?;
        inner.check(&wanted(limits, &adds))
    }
}

impl Inner {
    /// What is limited for a commit, if anything is.
    pub(crate) fn limits(&self, configs: &Configs, creator: Option<&str>) -> Result<Option<Limits>, StoreError> {
        let Some(keeper) = self.quotas.keeper.get() else { return Ok(None) };
        let limits = keeper.limits(configs, creator)?;
        Ok((limits != Limits::default()).then_some(limits))
    }

    /// Reserves room for an object, under its key's lock.
    ///
    /// # Errors
    /// `QuotaExceeded`, `Unavailable`.
    pub(crate) async fn reserve_object(
        &self,
        limits: Limits,
        (bucket, key): (&BucketName, &ObjectKey),
        configs: &Configs,
        creator: Option<&str>,
        size: u64,
    ) -> Result<Box<Reserved>, StoreError> {
        let adds = self.adds_object(bucket, key, configs, creator, size)?;
        self.reserve(&wanted(limits, &adds)).await
    }

    /// Reserves room for the object that is made of these parts, under its key's lock.
    ///
    /// # Errors
    /// As [`Inner::reserve_object`].
    pub(crate) async fn reserve_completed(
        &self,
        limits: Limits,
        (bucket, key): (&BucketName, &ObjectKey),
        configs: &Configs,
        creator: Option<&str>,
        parts: &[(u16, PartRow)],
    ) -> Result<Box<Reserved>, StoreError> {
        let size = parts.iter().map(|(_, part)| part.size).sum();
        let adds = self.adds_object(bucket, key, configs, creator, size)?;
        let adds = parts.iter().fold(adds, |adds, (_, part)| adds.replacing_part(part));
        self.reserve(&wanted(limits, &adds)).await
    }

    /// Reserves room for a part, under its lock.
    ///
    /// # Errors
    /// As [`Inner::reserve_object`].
    pub(crate) async fn reserve_part(
        &self,
        limits: Limits,
        part: &UploadPart,
        configs: &Configs,
        creator: Option<&str>,
        size: u64,
    ) -> Result<Box<Reserved>, StoreError> {
        let adds = self.adds_part(part, configs, creator, size)?;
        self.reserve(&wanted(limits, &adds)).await
    }

    fn adds_object<'a>(
        &self,
        bucket: &'a BucketName,
        key: &ObjectKey,
        configs: &'a Configs,
        creator: Option<&'a str>,
        size: u64,
    ) -> Result<Adds<'a>, StoreError> {
        let change = Change::of(1, size);
        let replaced = match configs.versioning() {
            Versioning::Enabled => None,
            Versioning::Never => self.object(bucket, key)?,
            Versioning::Suspended => {
                versions::locate(&*self.index.snapshot(), bucket, key, VersionId::Null)?.map(|found| found.row)
            }
        };
        Ok(Adds { bucket, configs, creator, all: change, his: change }.replacing_object(replaced.as_ref()))
    }

    fn adds_part<'a>(
        &self,
        part: &'a UploadPart,
        configs: &'a Configs,
        creator: Option<&'a str>,
        size: u64,
    ) -> Result<Adds<'a>, StoreError> {
        let change = Change::of(0, size);
        let adds = Adds { bucket: &part.target.bucket, configs, creator, all: change, his: change };
        match self.index.get(Table::Part, &keys::part(part.target.upload, part.part_number))? {
            Some(row) => Ok(adds.replacing_part(&PartRow::decode(&row)?)),
            None => Ok(adds),
        }
    }

    /// Waits until it is certain that something fits.
    async fn reserve(&self, wanted: &[Wanted]) -> Result<Box<Reserved>, StoreError> {
        let pending = &self.quotas.pending;
        loop {
            let mut released = pin!(pending.released.notified());
            // What is released from here on is heard.
            released.as_mut().enable();
            {
                let mut holders = pending.holders.lock();
                let fit = self.fit(wanted, |holder| holders.get(holder).copied().unwrap_or_default())?;
                match fit {
                    Fit::Never => return Err(self.exceeded()),
                    Fit::Later => {}
                    Fit::Fits => {
                        let added: Vec<_> =
                            wanted.iter().map(|wanted| (wanted.holder.clone(), wanted.change.added())).collect();
                        for (holder, added) in &added {
                            holders.entry(holder.clone()).or_default().on_its_way.add(*added);
                        }
                        return Ok(Box::new(Reserved { pending: Arc::clone(pending), added }));
                    }
                }
            }
            released.await;
        }
    }

    /// Refuses what would not fit even if nothing was on its way.
    fn check(&self, wanted: &[Wanted]) -> Result<(), StoreError> {
        match self.fit(wanted, |_| Reservations::default())? {
            Fit::Fits | Fit::Later => Ok(()),
            Fit::Never => Err(self.exceeded()),
        }
    }

    fn fit(&self, wanted: &[Wanted], pending: impl Fn(&Holder) -> Reservations) -> Result<Fit, StoreError> {
        let mut fit = Fit::Fits;
        for Wanted { holder, limit, change } in wanted {
            fit = fit.max(fits(self.held(holder)?, pending(holder), *change, *limit));
        }
        Ok(fit)
    }

    fn exceeded(&self) -> StoreError {
        self.metrics.quota_refusals.add(1);
        StoreError::QuotaExceeded
    }

    fn held(&self, holder: &Holder) -> Result<Holding, StoreError> {
        match holder {
            Holder::Bucket(bucket) => held_by_bucket(&*self.index, bucket),
            Holder::User(user) => held_by_user(&*self.index, user),
            Holder::Account(account) => self.apply.held_by_account(account, || self.stored_owners(account)),
        }
    }
}

/// The limits that count for a commit.
fn wanted(limits: Limits, adds: &Adds<'_>) -> Vec<Wanted> {
    let account = adds.configs.owner().map(|owner| Holder::Account(owner.to_owned()));
    let user = adds.creator.map(|creator| Holder::User(creator.to_owned()));
    let all = [
        (Some(Holder::Bucket(adds.bucket.clone())), limits.bucket, adds.all),
        (account, limits.account, adds.all),
        (user, limits.user, adds.his),
    ];
    let limited = all.into_iter().filter(|(_, limit, _)| *limit != Limit::default());
    limited.filter_map(|(holder, limit, change)| Some(Wanted { holder: holder?, limit, change })).collect()
}

/// Whether a change keeps within a limit. What takes nothing more is no matter, also where a limit was lowered below what is there.
fn fits(held: Holding, pending: Reservations, change: Change, limit: Limit) -> Fit {
    let Reservations { on_its_way, uncertain } = pending;
    let one = |held: u64, on_its_way: u64, change: i64, most: Option<u64>| {
        let (Some(most), Ok(more @ 1..)) = (most, u64::try_from(change)) else { return Fit::Fits };
        match held.saturating_add(more) {
            after if after > most => Fit::Never,
            after if after.saturating_add(on_its_way) > most => Fit::Later,
            _ => Fit::Fits,
        }
    };
    let bytes = held.all_bytes().saturating_add(uncertain.bytes);
    let objects = held.objects.saturating_add(uncertain.objects);
    one(bytes, on_its_way.bytes, change.bytes, limit.bytes).max(one(
        objects,
        on_its_way.objects,
        change.objects,
        limit.objects,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_to_the_last_byte() {
        let limit = |bytes, objects| Limit { bytes, objects };
        let held = |objects, bytes, part_bytes| Holding { objects, bytes, parts: 1, part_bytes };
        let added = |objects, bytes| Reservations { on_its_way: Added { objects, bytes }, ..Reservations::default() };
        let uncertain =
            |objects, bytes| Reservations { uncertain: Added { objects, bytes }, ..Reservations::default() };
        let change = |objects, bytes| Change { objects, bytes };
        let none = added(0, 0);
        let table = [
            (limit(None, None), held(u64::MAX, u64::MAX, 1), added(1, 1), change(1, 1), Fit::Fits),
            (limit(Some(10), None), held(9, 9, 0), none, change(1, 1), Fit::Fits),
            (limit(Some(10), None), held(9, 4, 5), none, change(1, 1), Fit::Fits),
            (limit(Some(10), None), held(9, 4, 6), none, change(1, 1), Fit::Never),
            (limit(Some(10), None), held(9, 9, 0), added(1, 1), change(1, 1), Fit::Later),
            (limit(Some(10), None), held(9, 9, 0), uncertain(1, 1), change(1, 1), Fit::Never),
            (limit(Some(11), Some(11)), held(9, 9, 0), uncertain(1, 1), change(1, 1), Fit::Fits),
            (limit(None, Some(10)), held(9, 9, 0), uncertain(1, 1), change(1, 0), Fit::Never),
            (limit(None, Some(10)), held(9, 100, 0), none, change(1, 1), Fit::Fits),
            (limit(None, Some(10)), held(9, 0, 0), added(1, 0), change(1, 1), Fit::Later),
            (limit(None, Some(10)), held(10, 0, 0), none, change(1, 0), Fit::Never),
            (limit(Some(10), Some(0)), held(0, 0, 0), none, change(1, 1), Fit::Never),
            // What is replaced makes room, and what brings nothing is never refused.
            (limit(Some(10), Some(1)), held(1, 10, 0), none, change(0, 0), Fit::Fits),
            (limit(Some(10), Some(1)), held(1, 12, 0), none, change(0, -1), Fit::Fits),
            (limit(Some(10), Some(1)), held(1, 10, 0), none, change(0, 1), Fit::Never),
        ];
        for (limit, held, pending, change, expected) in table {
            assert_eq!(fits(held, pending, change, limit), expected, "{limit:?} {held:?} {pending:?} {change:?}");
        }
    }
}
