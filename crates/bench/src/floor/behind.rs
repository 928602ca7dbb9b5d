//! What lies behind the HTTP server of a floor: nothing, the log, or files.

use anyhow::Context;
use bytes::Bytes;
use gabion_erasure::Crc64;
use gabion_segment::{Durability, Log, NewRecord, WHOLE_BYTES_MAX};
use hyper::Uri;

use super::{
    FloorArgs,
    files::Batches,
    log::{mutation, open_log},
    page::page,
    place::Place,
};
use crate::workload::Action;

/// Most memory that answers take together, in bytes; a server has it from its start to its end.
const BODIES_BYTES_MAX: u64 = 1 << 30;

/// Largest object of which there is a floor with something behind HTTP, in bytes: larger ones are cut, or are stripes that are filled while they arrive, which is the server itself.
const STORED_BYTES_MAX: u64 = WHOLE_BYTES_MAX as u64;

/// What lies behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    /// Nothing, and all answers hold the same bytes: the least that HTTP can cost, from caches to caches.
    One,
    /// Nothing, but the bytes of each object lie in memory of their own, as those of a server with storage must.
    Each,
    /// The log: each body is committed before it is answered.
    Log(Durability),
    /// Files: about as many bytes are written for the bodies that are there as the log would write.
    Files(Durability),
}

impl Behind {
    pub(super) const ALL: [Self; 6] = [
        Behind::One,
        Behind::Each,
        Behind::Log(Durability::Sync),
        Behind::Log(Durability::Relaxed),
        Behind::Files(Durability::Sync),
        Behind::Files(Durability::Relaxed),
    ];

    /// What the process that is the server is told.
    pub(super) fn key(self) -> &'static str {
        match self {
            Behind::One => "one",
            Behind::Each => "each",
            Behind::Log(Durability::Sync) => "log-sync",
            Behind::Log(Durability::Relaxed) => "log-relaxed",
            Behind::Files(Durability::Sync) => "files-sync",
            Behind::Files(Durability::Relaxed) => "files-relaxed",
        }
    }

    pub(super) fn stores(self) -> bool {
        matches!(self, Behind::Log(_) | Behind::Files(_))
    }

    /// Whether it is measured with the operation on objects of this size. A get from storage would need something that says what lies where: the server itself.
    pub(super) fn has(self, action: Action, size_bytes: u64) -> bool {
        match self {
            Behind::One => true,
            // Other answers hold nothing.
            Behind::Each => action == Action::Get,
            Behind::Log(_) | Behind::Files(_) => size_bytes <= STORED_BYTES_MAX && action == Action::Put,
        }
    }
}

/// What the server has.
pub(super) enum Storage {
    Memory {
        /// Answers, at least one.
        bodies: Vec<Bytes>,
        /// The answer to a listing.
        page: Bytes,
    },
    Log {
        log: Log,
        mutation: Bytes,
    },
    Files(Batches),
}

impl Storage {
    /// In these directories, where it needs some.
    ///
    /// # Errors
    /// When a target can not be used.
    pub(super) async fn make(args: &FloorArgs, behind: Behind, place: Option<&Place>) -> anyhow::Result<Self> {
        let in_place = || place.context("a floor that stores needs --targets");
        match behind {
            Behind::One | Behind::Each => {
                let size = usize::try_from(args.size).context("a size beyond the memory of this machine")?;
                let each = args.objects().min(BODIES_BYTES_MAX / args.size).max(1);
                let count = if behind == Behind::Each { each } else { 1 };
                let bodies = (0..count).map(|_| Bytes::from(vec![0x5a; size])).collect();
                Ok(Self::Memory { bodies, page: page(args) })
            }
            Behind::Log(durability) => {
                let storage = Self::Log { log: open_log(args, durability, in_place()?).await?, mutation: mutation() };
                // The first record opens a segment, which is not what is to be measured.
                storage.put(vec![Bytes::from_static(b"first")]).await?;
                Ok(storage)
            }
            Behind::Files(durability) => {
                let disks: Vec<_> = in_place()?.disks()?.into_iter().map(|(_, disk)| disk).collect();
                Ok(Self::Files(Batches::start(args, durability, &disks).await?))
            }
        }
    }

    /// Whether it wants what bodies hold.
    pub(super) fn wants_bodies(&self) -> bool {
        matches!(self, Self::Log { .. })
    }

    /// Takes a body that was received, and returns when it is as durable as it is to be.
    ///
    /// # Errors
    /// When it can not be written.
    pub(super) async fn put(&self, body: Vec<Bytes>) -> anyhow::Result<()> {
        match self {
            Self::Memory { .. } => Ok(()),
            Self::Log { log, mutation } => {
                let mut crc = Crc64::new();
                body.iter().for_each(|part| crc.update(part));
                let record = NewRecord { mutation: mutation.clone(), data: body, data_crc64: crc.finish() };
                log.commit(record).await?;
                Ok(())
            }
            Self::Files(batches) => batches.put().await,
        }
    }

    /// What is answered to a get: the page of a listing, or the body of the object that is named, the one of its number, with which the keys of objects that are
    /// read end. Nothing where none is kept.
    pub(super) fn answer_to(&self, uri: &Uri) -> Bytes {
        match self {
            Self::Memory { page, .. } if uri.query().is_some_and(is_listing) => page.clone(),
            Self::Memory { bodies, .. } => bodies[number_of(uri.path()) % bodies.len()].clone(),
            Self::Log { .. } | Self::Files(_) => Bytes::new(),
        }
    }
}

/// Whether a query asks for a listing.
fn is_listing(query: &str) -> bool {
    query.split('&').any(|pair| pair == "list-type=2")
}

/// The number that a path ends with.
fn number_of(path: &str) -> usize {
    let digits = path.len() - path.bytes().rev().take_while(u8::is_ascii_digit).count();
    path[digits..].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_stored_or_cut_is_not_measured() {
        let stored = |behind: Behind| behind.has(Action::Put, STORED_BYTES_MAX) && behind.stores();
        assert_eq!(Behind::ALL.map(stored), [false, false, true, true, true, true]);
        let rest = |behind: Behind| behind.has(Action::Get, 1) || behind.has(Action::Put, STORED_BYTES_MAX + 1);
        assert_eq!(Behind::ALL.map(rest), [true, true, false, false, false, false]);
        for action in [Action::Stat, Action::Delete, Action::List] {
            let bodiless = |behind: Behind| behind.has(action, 1);
            assert_eq!(Behind::ALL.map(bodiless), [true, false, false, false, false, false]);
        }
        let keys: std::collections::BTreeSet<_> = Behind::ALL.iter().map(|behind| behind.key()).collect();
        assert_eq!(keys.len(), Behind::ALL.len());
    }

    #[test]
    fn each_object_that_is_read_has_a_body_of_its_own() {
        let bodies: Vec<Bytes> = (0..20_u8).map(|number| Bytes::from(vec![number; 4])).collect();
        let storage = Storage::Memory { bodies: bodies.clone(), page: Bytes::from_static(b"page") };
        for number in 0..20_u8 {
            let path = format!("/bucket/floor/run7/{number:010}");
            assert_eq!(storage.answer_to(&path.parse().unwrap()), bodies[usize::from(number)]);
        }
        let answer = |uri: &'static str| storage.answer_to(&Uri::from_static(uri));
        let there_may_be_more_objects = answer("/bucket/floor/run/0000000021");
        assert_eq!(there_may_be_more_objects, bodies[1]);
        assert_eq!(answer("/bucket"), bodies[0]);
        assert_eq!(answer("/99999999999999999999999999"), bodies[0]);
        for query in ["list-type=2&max-keys=1000&prefix=floor", "continuation-token=1&list-type=2"] {
            assert_eq!(storage.answer_to(&format!("/bucket?{query}").parse().unwrap()), "page");
        }
        assert_eq!(answer("/bucket/1?list-type=22"), bodies[1]);
    }
}
