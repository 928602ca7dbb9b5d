//! What lies behind the HTTP server of a floor: nothing, the log, or files.

use anyhow::Context;
use bytes::Bytes;
use gabion_erasure::Crc64;
use gabion_segment::{Durability, Log, NewRecord};
use gabion_types::limits::INLINE_BYTES_MAX;

use super::{
    FloorArgs,
    files::Batches,
    log::{MUTATION_BYTES, open_log},
    place::Place,
};
use crate::workload::Action;

/// Most memory that answers take together, in bytes; a server has it from its start to its end.
const BODIES_BYTES_MAX: u64 = 1 << 30;

/// What lies behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    /// Nothing, and all answers hold the same bytes: the least that HTTP can cost, from caches to caches.
    One,
    /// Nothing, but the bytes of each object lie in memory of their own, as those of a server with storage must.
    Each,
    /// The log: each body is committed before it is answered.
    Log(Durability),
    /// Files: as many bytes are written for the bodies that are there as the log would write.
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

    /// Whether it is measured with the operation on objects of this size. Large ones would be stripes that are filled while they arrive, and a get needs somewhere to say what
    /// lies where: that is the server itself.
    pub(super) fn has(self, action: Action, size_bytes: u64) -> bool {
        let is_small = size_bytes <= INLINE_BYTES_MAX as u64;
        match self {
            Behind::One => true,
            // Other answers hold nothing.
            Behind::Each => action == Action::Get,
            Behind::Log(_) | Behind::Files(_) => is_small && action == Action::Put,
        }
    }
}

/// What the server has.
pub(super) enum Storage {
    /// Answers, at least one.
    Memory(Vec<Bytes>),
    Log {
        log: Log,
        mutation: Bytes,
    },
    Files(Batches),
}

impl Storage {
    /// With the directories that it is in, which go after it.
    ///
    /// # Errors
    /// When a target can not be used.
    pub(super) async fn make(args: &FloorArgs, behind: Behind) -> anyhow::Result<(Self, Option<Place>)> {
        let size = usize::try_from(args.size).context("a size beyond the memory of this machine")?;
        let body = || Bytes::from(vec![0x5a; size]);
        match behind {
            Behind::One => Ok((Self::Memory(vec![body()]), None)),
            Behind::Each => {
                let count = args.objects().min(BODIES_BYTES_MAX / args.size).max(1);
                Ok((Self::Memory((0..count).map(|_| body()).collect()), None))
            }
            Behind::Log(durability) => {
                let place = Place::make(args, behind.key())?;
                let log = open_log(args, durability, &place).await?;
                let mutation = Bytes::from(vec![0x4d; MUTATION_BYTES]);
                Ok((Self::Log { log, mutation }, Some(place)))
            }
            Behind::Files(durability) => {
                let place = Place::make(args, behind.key())?;
                let disks: Vec<_> = place.disks()?.into_iter().map(|(_, disk)| disk).collect();
                Ok((Self::Files(Batches::start(args, durability, &disks).await?), Some(place)))
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
            Self::Memory(_) => Ok(()),
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

    /// The body of the object that a request names: the one of its number, with which the keys of objects that are read end. Nothing where none is kept.
    pub(super) fn body_of(&self, path: &str) -> Bytes {
        match self {
            Self::Memory(bodies) => bodies[number_of(path) % bodies.len()].clone(),
            Self::Log { .. } | Self::Files(_) => Bytes::new(),
        }
    }
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
    fn each_object_that_is_read_has_a_body_of_its_own() {
        let bodies: Vec<Bytes> = (0..20_u8).map(|number| Bytes::from(vec![number; 4])).collect();
        let storage = Storage::Memory(bodies.clone());
        for number in 0..20_u8 {
            let path = format!("/bucket/floor/run7/{number:010}");
            assert_eq!(storage.body_of(&path), bodies[usize::from(number)]);
        }
        let there_may_be_more_objects = storage.body_of("/bucket/floor/run/0000000021");
        assert_eq!(there_may_be_more_objects, bodies[1]);
        assert_eq!(storage.body_of("/bucket"), bodies[0]);
        assert_eq!(storage.body_of("/99999999999999999999999999"), bodies[0]);
    }
}
