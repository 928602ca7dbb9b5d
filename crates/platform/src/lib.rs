//! Disk, clock and entropy: the only crate that touches the kernel, and its simulated twin.
//!
//! Everything above names [`Disk`], [`Clock`] and [`Entropy`] and nothing of the operating system; a simulation
//! passes [`SimDisk`], [`ManualClock`] and [`SeededEntropy`] instead and owns the world.
//!
//! What this crate must not know: segments, stripes, records, rows, objects. It moves bytes and names.
//!
//! Nothing is assumed of a target but positioned reads and writes, append by one writer, sync that is honest,
//! rename, unlink and listing (DESIGN.md §6): no extended attributes, no shared mmap, no coherent page cache
//! between nodes. The one file lock, [`DirLock`], matters in the state
//! directory, which is always local; targets are locked where their file systems have locks.
//!
//! Futures of this crate need no particular runtime: they use only tokio's channels and semaphores. Those of simulated disks that are slow, or hang, wait by tokio's timers.

mod cached_writer;
mod clock;
mod connection;
mod counted;
mod disk;
mod entropy;
mod error;
mod host;
mod lock;
mod memory;
mod open_files;
mod pages;
mod parts;
mod path;
mod scheduling;
mod select;
mod settle;
mod sim;
mod threads;
mod uring;

#[cfg(test)]
mod conformance;

pub use cached_writer::{CachedWriter, CachedWrites};
pub use clock::{Clock, ManualClock, SystemClock};
pub use connection::unpace_loopback;
pub use counted::{CountedDisk, IoCounters, IoCounts};
pub use disk::{CachedWrite, DirEntry, Disk, DiskFile, Durable, IoFuture, Load, READ_BYTES_MAX, Space, Wanted};
pub use entropy::{Dice, Entropy, OsEntropy, SeededEntropy};
pub use error::is_exhausted;
pub use lock::DirLock;
pub use memory::{Buffer, Buffers, Chunk};
pub use open_files::raise_open_files_limit;
pub use pages::{FilePlace, FilePlaces, PagePipe};
pub use path::{PATH_BYTES_MAX, PATH_COMPONENT_BYTES_MAX};
pub use scheduling::schedule_as_batch;
pub use select::{DriverChoice, DriverOptions, OpenedDisk, UnknownDriver, open_disk};
pub use settle::{sync_file_systems, touch_memory};
pub use sim::{
    Access, AskAccess, AskChange, AskSpace, DiskImage, FaultPlan, FaultRates, HANGS_S_MAX, OneIn, OpenFile, Opening,
    SECTOR_BYTES, SimDisk, SimPower,
};
