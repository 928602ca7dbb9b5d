//! Changing the members of a deployment while it is open.
//!
//! A crash after any step leaves lists of two epochs: whichever the next start finds to be the newest counts as a whole and is
//! brought to all. A newcomer gets its list first: before that, no list names a target that does not know that it is one.
//!
//! Each list says of targets that left whether they are lost ([`super::lost`]).
//!
//! Each list also says which epoch every member was seen with. So a list of the same members with the next epoch is what makes older
//! images of the targets known as such, and lets the log forget what only they could bring back (docs/adr/0010).

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use gabion_types::TargetId;
use tokio::time::timeout;

use super::lost::{Holders, lost_next};
use super::membership::{MEMBERSHIP_FILE, Member, Membership};
use super::open::{label, write};
use super::{OVERDUE, Own, Standing, Target, TargetSet, is_overdue, overdue};
use crate::config::LogTarget;
use crate::error::LogError;

/// A target that is about to join, empty.
pub(crate) struct Newcomer {
    pub(crate) target: LogTarget,
    pub(crate) id: TargetId,
    /// The member whose shards it takes; `NONE` if it joins beside the others.
    pub(crate) replaces: TargetId,
}

impl TargetSet {
    /// The members.
    pub(crate) fn members(&self) -> Vec<Member> {
        self.roster.lock().members.clone()
    }

    /// Makes `edit`'s outcome, with the newcomer, the list of members: durable on most of the targets when it resolves. `holders` is asked when the list
    /// is drafted.
    ///
    /// # Errors
    /// Those of `edit`, and `Io` when the newcomer can not be written: nothing changed. `Unavailable` when the newcomer does not answer, or too few targets took the
    /// list: nothing changed for now, but the next start may find it.
    pub(crate) async fn change(
        &self,
        edit: impl FnOnce(&mut Vec<Member>) -> Result<(), LogError>,
        newcomer: Option<Newcomer>,
        holders: impl FnOnce() -> Holders,
    ) -> Result<(), LogError> {
        let _turn = self.change_turn.lock().await;
        let (mut next, before) = self.draft(edit, &holders())?;
        if let Some(newcomer) = &newcomer {
            let domain = label(&newcomer.target).to_owned();
            let member = Member::new(newcomer.id, domain, newcomer.target.name.clone());
            next.members.push(Member { replaces: newcomer.replaces, ..member });
            let list = Membership { target: newcomer.id, ..next.clone() };
            let late = || {
                let name = &newcomer.target.name;
                LogError::Unavailable(format!(
                    "{name} has not taken the list of members: {}; it may at the next start",
                    overdue()
                ))
            };
            timeout(OVERDUE, write(&newcomer.target, &list)).await.unwrap_or_else(|_| Err(late()))?;
        }
        let epoch = next.epoch;
        self.mark_dropped(&next);
        self.publish(next, before).await?;
        if let Some(newcomer) = newcomer {
            self.join(newcomer, epoch);
        }
        self.mark_draining();
        Ok(())
    }

    /// Writes the list with the next epoch and the same members; says whether it did. Not while most of the members are away: targets that got far
    /// ahead of the others would, after a restart without them, bring their list back over changes that were made meanwhile.
    ///
    /// # Errors
    /// `Unavailable` when too few targets took the list. The same list is written the next time: so none of them is ahead by more than one epoch, and a
    /// change that gets that epoch after a restart is on more targets, and counts.
    pub(crate) async fn move_on(&self, holders: impl FnOnce() -> Holders) -> Result<bool, LogError> {
        let _turn = self.change_turn.lock().await;
        let members = self.members();
        let works = |member: &&Member| matches!(self.standing(member.id), Standing::Here | Standing::Leaving);
        if members.iter().filter(works).count() <= members.len() / 2 {
            return Ok(false);
        }
        let again = {
            let roster = self.roster.lock();
            // Nothing else was written since.
            roster.unfinished.clone().filter(|list| list.epoch == roster.written_epoch)
        };
        let (next, before) = match again {
            Some(list) => (list, members.len()),
            None => self.draft(|_| Ok(()), &holders())?,
        };
        self.roster.lock().unfinished = Some(next.clone());
        self.publish(next, before).await?;
        self.roster.lock().unfinished = None;
        self.mark_draining();
        Ok(true)
    }

    /// Whether the next list would say of fewer targets, or at last by name, that they are lost.
    pub(crate) fn has_news_of_lost(&self, holders: impl FnOnce() -> Holders) -> bool {
        let (lost, members) = {
            let roster = self.roster.lock();
            (roster.lost.clone(), roster.members.clone())
        };
        // Segments are looked through only where there is something to find.
        lost.as_ref().is_none_or(|lost| !lost.is_empty())
            && lost_next(lost.as_ref(), &members, &members, &holders()) != lost
    }

    /// The next list, and how many members there are before it.
    fn draft(
        &self,
        edit: impl FnOnce(&mut Vec<Member>) -> Result<(), LogError>,
        holders: &Holders,
    ) -> Result<(Membership, usize), LogError> {
        let mut roster = self.roster.lock();
        let mut members = roster.members.clone();
        edit(&mut members)?;
        let lost = lost_next(roster.lost.as_ref(), &roster.members, &members, holders);
        for member in &mut members {
            member.seen = self.present(member.id).map_or(0, |target| target.own.lock().epoch).max(member.seen);
        }
        // A list that was written to too few targets may still be found: no other one gets its epoch.
        roster.written_epoch += 1;
        let (geometry, epoch) = (roster.geometry, roster.written_epoch);
        let next = Membership { deployment: self.deployment, target: TargetId::NONE, geometry, epoch, members, lost };
        Ok((next, roster.members.len()))
    }

    /// Makes a list the one that counts.
    async fn publish(&self, next: Membership, members_before: usize) -> Result<(), LogError> {
        let written = self.write_to_all(&next, members_before).await?;
        let mut roster = self.roster.lock();
        roster.epoch = next.epoch;
        // Whichever targets are damaged then: one that has this list is among the others.
        if written > self.parity.min(next.members.len() - 1) {
            roster.settled_epoch = next.members.iter().map(|member| member.seen).min().unwrap_or(0);
        }
        roster.members = next.members;
        roster.lost = next.lost;
        Ok(())
    }

    /// Brings the list to a target that was an old image of itself, now that nothing on it can come back.
    ///
    /// # Errors
    /// `Io`: it is one still.
    pub(crate) async fn bring_up(&self, number: usize) -> Result<(), LogError> {
        let _turn = self.change_turn.lock().await;
        let target = self.at(number);
        let newest = {
            let roster = self.roster.lock();
            let (geometry, epoch) = (roster.geometry, roster.epoch);
            let (members, lost) = (roster.members.clone(), roster.lost.clone());
            Membership { deployment: self.deployment, target: target.id, geometry, epoch, members, lost }
        };
        put_list(&target, &newest).await.map_err(|error| LogError::io(&target.name, error))?;
        let mut own = target.own.lock();
        own.epoch = newest.epoch;
        own.is_behind = false;
        Ok(())
    }

    /// Writes the list to all targets that are there and stay; says on how many it is.
    async fn write_to_all(&self, next: &Membership, members_before: usize) -> Result<usize, LogError> {
        let staying: Vec<(usize, Arc<Target>)> = self
            .all()
            .into_iter()
            .filter(|(_, target)| target.is_present() && next.member(target.id).is_some())
            .collect();
        let outcomes =
            join_all(staying.iter().map(async |(number, target)| (*number, self.write_to(target, next).await))).await;
        let mut written = 0;
        for (number, outcome) in outcomes {
            match outcome {
                Ok(()) => written += 1,
                Err(error) => {
                    tracing::warn!(%error, epoch = next.epoch, "the list of members could not be written to a target");
                    if !is_overdue(&error) {
                        self.failed(number, &error);
                    }
                }
            }
        }
        // Most of the members, or all that are there where most are lost.
        let needed = (members_before / 2 + 1).min(staying.len());
        if written < needed {
            return Err(LogError::Unavailable(format!(
                "the new list of members is on {written} targets, {needed} are needed; it may count at the next start"
            )));
        }
        Ok(written)
    }

    /// Writes the list to a target, unless it is not what it was: on an older image the list would hide that it is one. One that hangs is one without the list, and holds up no
    /// change of the others; nor is it given a newer one while this may still come.
    async fn write_to(&self, target: &Arc<Target>, next: &Membership) -> io::Result<()> {
        let disk = target.disk().ok_or(io::ErrorKind::NotFound)?;
        timeout(OVERDUE, self.recognise(target, &disk)).await.unwrap_or_else(|_| Err(overdue()))?;
        put_list(target, &Membership { target: target.id, ..next.clone() }).await?;
        target.own.lock().epoch = next.epoch;
        Ok(())
    }

    /// Takes the newcomer into the list of targets, in place of an absent one that had its directory.
    fn join(&self, newcomer: Newcomer, epoch: u64) {
        let domain = label(&newcomer.target).to_owned();
        let now_ns = self.clock.monotonic_ns();
        let mut targets = self.targets.write();
        for target in targets.iter().filter(|target| target.disk().is_none() && target.name == newcomer.target.name) {
            target.leave();
        }
        let LogTarget { name, disk, .. } = newcomer.target;
        let own = Own { epoch, ..Own::default() };
        targets.push(Arc::new(Target::new(name, newcomer.id, domain, disk, own, now_ns, &self.silence)));
        drop(targets);
        self.gain();
    }
}

/// Writes a list that is the target's own to it.
async fn put_list(target: &Arc<Target>, list: &Membership) -> io::Result<()> {
    let disk = target.disk().ok_or(io::ErrorKind::NotFound)?;
    let bytes = Bytes::from(list.encode());
    target.in_time(OVERDUE, async move { disk.write_file(MEMBERSHIP_FILE, bytes).await }).await
}
