//! The full check, when no client is at work.

use std::time::Duration;

use gabion_platform::{FaultRates, HANGS_S_MAX, OneIn, SimDisk};
use gabion_store::{GetObject, ListObjects, ListParts, ListUploads, Store, StoreError};
use gabion_types::{BucketName, ObjectKey};

use crate::{
    client::Client,
    history::Call,
    machine::Machine,
    truth,
    uploads::{Life, Upload},
};

/// Open files of a shard: one of the lane that writes it, one of the readers, and one that either is about to let go of.
const HANDLES_PER_FILE: usize = 3;
/// How often it is looked whether lanes are idle.
const RESTS_MAX: usize = 100;

/// Checks that everything is as it was acknowledged: bytes, listings, uploads, counters, histories, and that nothing is left
/// open. `all_decided`: the store was opened since the last change was asked for, so that none may take effect later.
///
/// # Errors
/// What is wrong.
pub(crate) async fn full(client: &Client<'_>, all_decided: bool) -> Result<(), String> {
    // Time passes only when nothing is left to do: what clients hung up on has ended then.
    tokio::time::sleep(Duration::from_millis(20)).await;
    rest(client).await?;
    read_all(client).await;
    let buckets = client.world.borrow().buckets.clone();
    for bucket in buckets {
        client.read_document(&bucket);
        list_all(client, &bucket).await?;
        uploads(client, &bucket, all_decided).await?;
    }
    parts(client, all_decided).await?;
    let mut world = client.world.borrow_mut();
    let now = world.tick();
    if let Some(violation) = &world.violation {
        return Err(violation.clone());
    }
    for (from, to) in std::mem::take(&mut world.renames) {
        let took_effect = |call: Call| world.registers[call.key].took_effect(call, now);
        if let (Some(left), Some(came)) = (took_effect(from), took_effect(to))
            && left != came
        {
            return Err(format!(
                "a renaming of {} to {} took effect by half: left {left}, came {came}",
                from.key, to.key
            ));
        }
    }
    for (key, register) in world.registers.iter_mut().enumerate() {
        register.settle(now, all_decided).map_err(|history| format!("key {key} is not linearizable; {history}"))?;
    }
    truth::check(&client.machine.state_dir.index())
}

/// Reads every key.
async fn read_all(client: &Client<'_>) {
    let keys = client.world.borrow().keys.clone();
    for (number, (bucket, key)) in keys.into_iter().enumerate() {
        let called = client.world.borrow_mut().tick();
        match client.store.get_object(GetObject::whole(bucket, key)).await {
            Ok(read) => client.read(number, called, read, false).await,
            Err(StoreError::NoSuchKey) => client.saw(number, called, None),
            Err(StoreError::NoSuchBucket) => client.world.borrow_mut().saw_bucket_of(number, called, false),
            Err(error) => client.read_failed(&format!("get {number}"), &error),
        }
    }
}

/// Lists a bucket page by page, whole and by folder.
async fn list_all(client: &Client<'_>, bucket: &BucketName) -> Result<(), String> {
    let keys = client.world.borrow().keys.clone();
    let called = client.world.borrow_mut().tick();
    let mut listed: Vec<String> = Vec::new();
    for delimiter in [None, Some("/".to_owned())] {
        let mut after = None;
        let mut names: Vec<String> = Vec::new();
        loop {
            let max = 1 + client.world.borrow_mut().dice.below(5) as usize;
            let delimiter = delimiter.clone();
            let request = ListObjects { bucket: bucket.clone(), prefix: String::new(), delimiter, after, max };
            let page = match client.store.list_objects(request).await {
                Ok(page) => page,
                Err(StoreError::NoSuchBucket) => {
                    client.world.borrow_mut().saw_bucket(bucket, called, false);
                    return Ok(());
                }
                Err(error) => return Err(format!("list: {error}")),
            };
            client.world.borrow_mut().saw_bucket(bucket, called, true);
            for entry in &page.entries {
                let is_it = |(of, key): &(BucketName, ObjectKey)| of == bucket && key.as_str() == entry.key;
                let Some(number) = keys.iter().position(is_it) else {
                    return Err(format!("the listing has {:?}, which nobody put", entry.key));
                };
                client.saw_tag(number, called, &entry.etag.to_string(), entry.size);
            }
            let mut page_names: Vec<String> = page.entries.into_iter().map(|entry| entry.key).collect();
            page_names.extend(page.common_prefixes);
            page_names.sort();
            names.extend(page_names);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if !names.is_sorted() {
            return Err(format!("the listing is not in order: {names:?}"));
        }
        if delimiter.is_none() {
            listed = names;
            continue;
        }
        let folder = |name: &String| name.find('/').map_or(name.clone(), |end| name[..=end].to_owned());
        let mut expected: Vec<String> = listed.iter().map(folder).collect();
        expected.dedup();
        if names != expected {
            return Err(format!("by folder the listing is {names:?} instead of {expected:?}"));
        }
    }
    for (number, (of, key)) in keys.iter().enumerate() {
        if of == bucket && !listed.iter().any(|name| name == key.as_str()) {
            client.saw(number, called, None);
        }
    }
    Ok(())
}

/// The uploads of a bucket are those that clients know of.
async fn uploads(client: &Client<'_>, bucket: &BucketName, all_decided: bool) -> Result<(), String> {
    let request = ListUploads {
        bucket: bucket.clone(),
        prefix: String::new(),
        delimiter: None,
        key_marker: None,
        upload_id_marker: None,
        max: 100_000,
    };
    let called = client.world.borrow_mut().tick();
    let listed = match client.store.list_uploads(request).await {
        Ok(listed) => listed.uploads,
        Err(StoreError::NoSuchBucket) => {
            client.world.borrow_mut().saw_bucket(bucket, called, false);
            Vec::new()
        }
        Err(error) => return Err(format!("list uploads: {error}")),
    };
    let mut world = client.world.borrow_mut();
    let world = &mut *world;
    for upload in &listed {
        let of = |(of, key): &(BucketName, ObjectKey)| of == bucket && key.as_str() == upload.key;
        let Some(key) = world.keys.iter().position(of) else {
            return Err(format!("there is an upload to {:?}, which nobody asked for", upload.key));
        };
        if world.uploads.iter().any(|known| known.id == upload.upload) {
            continue;
        }
        // Its client was never answered.
        let unknown = world.unknown_uploads.entry(key).or_default();
        if *unknown == 0 {
            return Err(format!("upload {} was not asked for", upload.upload));
        }
        *unknown -= 1;
        world.uploads.push(Upload::new(upload.upload, key));
    }
    for known in world.uploads.iter_mut().filter(|known| world.keys[known.key].0 == *bucket) {
        let is_there = listed.iter().any(|upload| upload.upload == known.id);
        known.life = match (known.life, is_there) {
            (Life::Open, false) if known.may_be_gone => Life::Ended,
            (Life::Open, false) => return Err(format!("upload {} is gone", known.id)),
            (Life::Ended, true) => return Err(format!("upload {} is back", known.id)),
            (Life::MaybeEnded, true) if all_decided => Life::Open,
            (Life::MaybeEnded, false) => Life::Ended,
            (life, _) => life,
        };
        known.may_be_gone &= !all_decided;
    }
    if all_decided {
        world.unknown_uploads.retain(|key, _| world.keys[*key].0 != *bucket);
    }
    Ok(())
}

/// The parts of every upload are those that clients know of.
async fn parts(client: &Client<'_>, all_decided: bool) -> Result<(), String> {
    let count = client.world.borrow().uploads.len();
    for at in 0..count {
        let target = client.world.borrow().upload_ref(at);
        if client.world.borrow().uploads[at].life == Life::Ended {
            continue;
        }
        let request = ListParts { target, after: 0, max: 10_000 };
        let listed = client.store.list_parts(request).await.map_err(|error| format!("list parts: {error}"))?.parts;
        let listed: Vec<_> = listed.iter().map(|part| (part.part_number, part.etag.to_string(), part.size)).collect();
        client.world.borrow_mut().uploads[at].compare(&listed, all_decided)?;
    }
    Ok(())
}

/// What the store does by itself comes to a rest, so that at some time lanes are idle and no memory is taken.
///
/// Disks take no time meanwhile: a segment that can not be freed as long as a target fails is tried again with each checkpoint, and where these come as fast as it takes
/// to be refused by slow ones, a lane has always something to refuse.
async fn rest(client: &Client<'_>) -> Result<(), String> {
    let disks = &client.machine.disks;
    let rates: Vec<FaultRates> = disks.iter().map(|disk| disk.rates()).collect();
    for (disk, rates) in disks.iter().zip(&rates) {
        disk.set_rates(FaultRates { slow_ms_max: 0, hangs: OneIn(0), ..*rates });
    }
    // What hangs already does so whatever the rates are now.
    if disks.iter().any(SimDisk::has_hung) {
        tokio::time::sleep(Duration::from_secs(HANGS_S_MAX + 1)).await;
    }
    let outcome = rest_of_fast_disks(client).await;
    for (disk, rates) in disks.iter().zip(rates) {
        disk.set_rates(rates);
    }
    outcome
}

async fn rest_of_fast_disks(client: &Client<'_>) -> Result<(), String> {
    let mut busy = None;
    for _ in 0..RESTS_MAX {
        let lanes = client.store.status().log.lanes;
        let lane = lanes.into_iter().find(|lane| lane.queued + lane.in_flight + lane.queued_bytes > 0);
        within_bounds(&client.store, client.machine)?;
        let taken = client.store.memory().into_iter().find(|memory| memory.used_bytes > 0);
        if lane.is_none() && taken.is_none() {
            return Ok(());
        }
        busy = Some((lane, taken));
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    Err(format!("a lane is never idle, or memory never given back: {busy:?}"))
}

/// No more memory is taken than there is, and no more files are open than there are: whatever clients are at.
///
/// # Errors
/// What is exceeded.
pub(crate) fn within_bounds(store: &Store, machine: &Machine) -> Result<(), String> {
    if let Some(over) = store.memory().into_iter().find(|memory| memory.used_bytes > memory.limit_bytes) {
        return Err(format!("there is less memory than is taken: {over:?}"));
    }
    for (number, disk) in machine.disks.iter().enumerate() {
        let (open, files) = (disk.open_files(), disk.paths().len());
        if open > files * HANDLES_PER_FILE {
            return Err(format!("target {number} has {files} files, and {open} handles are open"));
        }
    }
    Ok(())
}
