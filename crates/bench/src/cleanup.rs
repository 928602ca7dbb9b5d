//! Removes what a run wrote, by whichever of its endpoints answers.
//!
//! Several runs may share a bucket, and the one that made it deletes it only when nobody uses it any more. Objects keep a bucket from being deleted, but uploads in parts do not, nor what is
//! yet to be written: so each run has an object of its own there, its lease, from when it has found or made the bucket until all else of it is removed.
//!
//! Only what lies below a folder that no other run has is touched. A prefix that was given may hold what others wrote: it is never deleted, whatever it is.

use std::{
    io::{Write, stderr},
    time::Duration,
};

use anyhow::{Context, anyhow};
use tokio::runtime::Builder;

use crate::{
    clock::Stamp,
    factory::Factory,
    failure::{Failure, all_of},
    patience::Patience,
    progress::{Progress, Whole},
    s3::{Client, Listing, ObjectName, Order},
    stop::is_stopped,
    threads::Tick,
};

/// How long is waited for writes that nobody waited for the end of.
const PAUSE_FOR_PENDING: Duration = Duration::from_secs(1);

/// The key of a run's lease: beside its folder, where the run lists nothing.
pub(crate) fn lease(prefix: &str, run: &str) -> String {
    format!("{prefix}{}.lease", run.trim_end_matches('/'))
}

/// What a run left behind.
pub(crate) struct Leftovers<'a> {
    pub(crate) factory: &'a Factory,
    pub(crate) prefix: &'a str,
    /// The run's own name, which follows.
    pub(crate) run: &'a str,
    /// The key of the lease, if it has one.
    pub(crate) lease: Option<&'a str>,
    /// All but the lease is to stay.
    pub(crate) keeps: bool,
    /// Uploads in parts may be among it.
    pub(crate) uploads: bool,
    /// Writes may be among it that nobody waited for the end of: they may become objects a little later.
    pub(crate) pending: bool,
    /// Most objects that there may be, if that is known.
    pub(crate) objects_max: Option<u64>,
    /// The bucket was made by this run.
    pub(crate) created: bool,
}

impl Leftovers<'_> {
    /// Deletes what lies below the run's own folder, its lease, and the bucket if this run created it and nobody else uses it.
    ///
    /// # Errors
    /// With what stays and where, when something does.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        if self.keeps && self.lease.is_none() {
            return Ok(());
        }
        assert!(self.run.len() > 1 && self.run.ends_with('/'), "only a folder of the run's own is emptied");
        let runtime = Builder::new_current_thread().enable_all().build().context("starting the client")?;
        let clients = (0..self.factory.endpoint_count()).map(|number| self.factory.client(number)).collect();
        let mut remover = Remover {
            factory: self.factory,
            clients,
            asked: 0,
            folder: format!("{}{}", self.prefix, self.run),
            progress: Progress::new("cleaning up", Whole::Unknown),
            removed: 0,
            objects: 0,
            refusal: None,
        };
        let outcome = runtime.block_on(remover.remove(self));
        let Remover { progress, folder, objects, .. } = remover;
        progress.finish();
        let removed = match outcome {
            // Another run that made the bucket was the last to leave it.
            Err(Failure::Status { status: 404, code }) if code == "NoSuchBucket" => Ok(()),
            outcome => outcome.with_context(|| {
                let bucket = self.factory.bucket();
                let stays = self.lease.filter(|_| self.keeps).unwrap_or(&folder);
                format!("removing what was written: what lies below {stays:?} in the bucket {bucket:?} stays")
            }),
        };
        let survivors = objects.saturating_sub(self.objects_max.unwrap_or(u64::MAX));
        let survived = if survivors == 0 {
            Ok(())
        } else {
            Err(anyhow!("objects that were there at the end although their deletion had succeeded: {survivors}"))
        };
        all_of([survived, removed])
    }
}

struct Remover<'a> {
    factory: &'a Factory,
    /// One for each endpoint.
    clients: Vec<Client>,
    /// Which of them is asked: the next one when it does not answer.
    asked: usize,
    folder: String,
    progress: Progress,
    removed: u64,
    /// Of these, objects: each is listed once, whatever versions it has.
    objects: u64,
    /// What the first of those said that are not to be deleted, as they are locked, or others'. The rest is.
    refusal: Option<Failure>,
}

impl Remover<'_> {
    async fn remove(&mut self, leftovers: &Leftovers<'_>) -> Result<(), Failure> {
        let removed = if leftovers.keeps { Ok(()) } else { self.remove_written(leftovers).await };
        if removed.as_ref().is_err_and(Failure::is_silence) {
            return removed;
        }
        let released = if let Some(lease) = leftovers.lease { self.release(lease).await } else { Ok(()) };
        removed.and(released)?;
        if let Some(refusal) = self.refusal.take() {
            return Err(refusal);
        }
        if leftovers.keeps || !leftovers.created || self.others_upload().await? {
            return Ok(());
        }
        if !self.delete_bucket().await? {
            // Another run uses it, or a write that was given up came to its end only now.
            self.remove_all().await?;
            self.delete_bucket().await?;
        }
        Ok(())
    }

    async fn remove_written(&mut self, leftovers: &Leftovers<'_>) -> Result<(), Failure> {
        // First: one whose end was not waited for may yet become an object. Who may not list uploads can remove objects all the same.
        let aborted = if leftovers.uploads { self.abort_uploads().await } else { Ok(()) };
        if is_stopped() && aborted.as_ref().is_err_and(Failure::is_silence) {
            return aborted;
        }
        let mut removed = self.remove_all().await;
        if leftovers.pending && removed.is_ok() {
            tokio::time::sleep(PAUSE_FOR_PENDING).await;
            removed = self.remove_all().await;
        }
        removed.and(aborted)
    }

    /// Removes the lease, and where the bucket keeps versions all of it.
    async fn release(&mut self, lease: &str) -> Result<(), Failure> {
        self.ask(async |client| client.delete(lease).await).await?;
        self.remove_versions(lease).await
    }

    /// Whether others have uploads in progress: they hold no objects, and servers would delete the bucket with them. Of who may not list them only leases are known.
    async fn others_upload(&mut self) -> Result<bool, Failure> {
        match self.ask(async |client| client.list_uploads("").await).await {
            Ok(uploads) => Ok(uploads.iter().any(|(key, _)| !key.starts_with(&self.folder))),
            Err(Failure::Status { .. }) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Deletes the bucket; `false` if it is not empty.
    async fn delete_bucket(&mut self) -> Result<bool, Failure> {
        match self.ask(async |client| client.delete_bucket().await).await {
            Err(Failure::Status { status: 409, .. }) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    async fn remove_all(&mut self) -> Result<(), Failure> {
        self.remove_objects().await?;
        let folder = self.folder.clone();
        self.remove_versions(&folder).await
    }

    /// Sends one request, as often and to as many endpoints as it takes.
    async fn ask<T>(&mut self, request: impl AsyncFn(&mut Client) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut patience = Patience::of_cleaning();
        loop {
            let client = &mut self.clients[self.asked];
            match self.factory.cleaning_limit().run(Stamp::now(), request(client)).await {
                Err(failure) => patience.after(failure).await?,
                answer => return answer,
            }
            self.asked = (self.asked + 1) % self.clients.len();
        }
    }

    /// Gives up the uploads in parts that were neither completed nor given up: a request of theirs was not answered in time.
    async fn abort_uploads(&mut self) -> Result<(), Failure> {
        let (folder, mut before) = (self.folder.clone(), Vec::new());
        loop {
            let uploads = self.ask(async |client| client.list_uploads(&folder).await).await?;
            // Where those that were given up are listed on, there is nothing more to do.
            if uploads.is_empty() || uploads == before {
                return Ok(());
            }
            for (key, upload) in &uploads {
                match self.ask(async |client| client.abort_upload(key, upload).await).await {
                    Ok(()) | Err(Failure::Status { status: 404, .. }) => {}
                    Err(failure) => return Err(failure),
                }
            }
            before = uploads;
        }
    }

    async fn remove_objects(&mut self) -> Result<(), Failure> {
        let (folder, mut before, mut token) = (self.folder.clone(), Vec::new(), None);
        loop {
            let listing = Listing {
                prefix: &folder,
                delimiter: None,
                max_keys: 1000,
                token: token.as_deref(),
                order: Order::Any,
            };
            let page = async |client: &mut Client| {
                let page = client.list(listing).await?;
                let listed: Vec<_> = client.listed_keys().into_iter().map(ObjectName::newest).collect();
                Ok((listed, page.next))
            };
            let (listed, next) = self.ask(page).await?;
            if listed.is_empty() {
                return Ok(());
            }
            if listed == before {
                return Err(Failure::Malformed("objects are listed on that were deleted".to_owned()));
            }
            let removed = self.removed;
            let is_all = self.delete(&folder, listed.clone()).await?;
            self.objects += self.removed - removed;
            match next {
                _ if is_all => before = listed,
                Some(next) => (token, before) = (Some(next), Vec::new()),
                None => return Ok(()),
            }
        }
    }

    /// Where a bucket keeps versions, deleting by key only adds one.
    async fn remove_versions(&mut self, prefix: &str) -> Result<(), Failure> {
        let (mut before, mut after) = (Vec::new(), None);
        loop {
            let (versions, next) = match self
                .ask(async |client| client.list_versions(prefix, after.as_ref()).await)
                .await
            {
                // There are none where nobody knows of them.
                Err(Failure::Status { status: 405 | 501, .. }) => return Ok(()),
                Err(Failure::Status { status: 403, .. }) => {
                    // All else is removed. The program ends well without this being read.
                    let _ = writeln!(
                        stderr(),
                        "gabion: these keys have no right to list versions: if the bucket {:?} keeps them, those below {prefix:?} stay",
                        self.factory.bucket(),
                    );
                    return Ok(());
                }
                outcome => outcome?,
            };
            if versions.is_empty() {
                return Ok(());
            }
            if versions == before {
                return Err(Failure::Malformed("versions are listed on that were deleted".to_owned()));
            }
            match next {
                _ if self.delete(prefix, versions.clone()).await? => before = versions,
                Some(next) => (after, before) = (Some(next), Vec::new()),
                None => return Ok(()),
            }
        }
    }

    /// Deletes a page of what was listed below `prefix`; `false` if some of it stays.
    async fn delete(&mut self, prefix: &str, listed: Vec<ObjectName>) -> Result<bool, Failure> {
        // A server that lists what was not asked for deletes nothing of others.
        let mut own = listed;
        own.retain(|name| name.key.starts_with(prefix));
        if own.is_empty() {
            return Err(Failure::Malformed("only keys are listed that were not asked for".to_owned()));
        }
        let mut refused = self.ask(async |client| client.delete_objects(&own).await).await?;
        self.removed += own.len().saturating_sub(refused.len()) as u64;
        self.progress.tick(Tick { operations: self.removed, ..Tick::default() });
        let is_all = refused.is_empty();
        if !is_all && self.refusal.is_none() {
            self.refusal = Some(refused.swap_remove(0));
        }
        Ok(is_all)
    }
}
