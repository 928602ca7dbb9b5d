//! The kernel's FUSE protocol (`linux/fuse.h`, version 7.31), as much of it as a server needs. One thread answers one request after another.

use std::{
    fs,
    io::{Read, Write},
    sync::Mutex,
};

use super::volume::{Attributes, EEXIST, EIO, ENOENT, Volume};

const EXDEV: i32 = 18;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;

const WRITE_BYTES_MAX: u32 = 1 << 20;
const PAGES_MAX: u16 = 256;
const IN_HEADER_BYTES: usize = 40;
const OUT_HEADER_BYTES: usize = 16;
/// FUSE_BIG_WRITES and FUSE_MAX_PAGES.
const INIT_FLAGS: u32 = 1 << 5 | 1 << 22;
const SETATTR_SIZE: u32 = 1 << 3;
const FALLOCATE_KEEP_SIZE: u32 = 1;
const RENAME_NOREPLACE: u32 = 1;
/// Nobody but the kernel changes anything: what it knows stays true.
const VALID_S: u64 = 3600;

/// A request's numbers and names, in order.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], i32> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(EINVAL)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, i32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four were taken")))
    }

    fn u64(&mut self) -> Result<u64, i32> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight were taken")))
    }

    fn usize(&mut self) -> Result<usize, i32> {
        usize::try_from(self.u64()?).map_err(|_| EINVAL)
    }

    fn name(&mut self) -> Result<&'a str, i32> {
        let len = self.0.iter().position(|byte| *byte == 0).ok_or(EINVAL)?;
        let name = std::str::from_utf8(self.take(len)?).map_err(|_| EINVAL)?;
        self.take(1)?;
        Ok(name)
    }
}

/// An answer's numbers, in order.
#[derive(Default)]
struct Reply(Vec<u8>);

impl Reply {
    fn u16(mut self, number: u16) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn zeros(mut self, len: usize) -> Self {
        self.0.resize(self.0.len() + len, 0);
        self
    }

    /// `struct fuse_attr`, 88 bytes.
    fn attributes(self, of: &Attributes) -> Self {
        let mode = if of.is_directory { 0o040_755 } else { 0o100_644 };
        let links = if of.is_directory { 2 } else { 1 };
        let sized = self.u64(of.node).u64(of.len).u64(of.len.div_ceil(512)).zeros(3 * 8 + 3 * 4);
        sized.u32(mode).u32(links).zeros(3 * 4).u32(4096).zeros(4)
    }

    /// `struct fuse_entry_out`, 128 bytes.
    fn entry(self, of: &Attributes) -> Self {
        self.u64(of.node).u64(0).u64(VALID_S).u64(VALID_S).zeros(8).attributes(of)
    }
}

/// Answers the kernel until the file system is unmounted.
pub(super) fn serve(mut device: fs::File, volume: &Mutex<Volume>) {
    let mut request = vec![0; WRITE_BYTES_MAX as usize + 64 * 1024];
    loop {
        let len = match device.read(&mut request) {
            Ok(len) => len,
            // A request that was withdrawn before it was read, or a signal.
            Err(error) if matches!(error.raw_os_error(), Some(ENOENT | 4 | 11)) => continue,
            // ENODEV: unmounted.
            Err(_) => return,
        };
        let Some(answer) = answer(&request[..len], &mut volume.lock().unwrap()) else { continue };
        // The kernel refuses an answer to a request that was interrupted meanwhile: nobody waits for it.
        let _ = device.write(&answer);
    }
}

fn answer(request: &[u8], volume: &mut Volume) -> Option<Vec<u8>> {
    let mut header = Body(request);
    let (_, opcode, unique, node) = (header.u32().ok()?, header.u32().ok()?, header.u64().ok()?, header.u64().ok()?);
    // FORGET, INTERRUPT and BATCH_FORGET have no answer.
    if matches!(opcode, 2 | 36 | 42) {
        return None;
    }
    let body = Body(request.get(IN_HEADER_BYTES..)?);
    let outcome = if volume.is_powered() { perform(opcode, node, body, volume) } else { Err(EIO) };
    let (error, reply) = match outcome {
        Ok(reply) => (0, reply.0),
        Err(error) => (-error, Vec::new()),
    };
    let len = u32::try_from(OUT_HEADER_BYTES + reply.len()).expect("answers are short");
    let mut bytes = Vec::with_capacity(OUT_HEADER_BYTES + reply.len());
    bytes.extend(len.to_le_bytes());
    bytes.extend(error.to_le_bytes());
    bytes.extend(unique.to_le_bytes());
    bytes.extend(reply);
    Some(bytes)
}

fn perform(opcode: u32, node: u64, mut body: Body<'_>, volume: &mut Volume) -> Result<Reply, i32> {
    let nothing = Reply::default;
    match opcode {
        // LOOKUP
        1 => Ok(nothing().entry(&volume.lookup(node, body.name()?)?)),
        // GETATTR
        3 => Ok(attributes(&volume.attributes(node)?)),
        // SETATTR: of all that can be set, lengths alone are kept.
        4 => {
            let valid = body.u32()?;
            body.take(4 + 8)?;
            let len = body.usize()?;
            if valid & SETATTR_SIZE != 0 {
                volume.set_len(node, len)?;
            }
            Ok(attributes(&volume.attributes(node)?))
        }
        // MKDIR
        9 => {
            body.take(8)?;
            Ok(nothing().entry(&volume.make(node, body.name()?, true)?))
        }
        // UNLINK, RMDIR
        10 | 11 => volume.unlink(node, body.name()?).map(|()| nothing()),
        // RENAME, RENAME2
        12 | 45 => rename(opcode == 45, node, body, volume).map(|()| nothing()),
        // OPEN, OPENDIR: nodes are handles enough.
        14 | 27 => Ok(nothing().zeros(16)),
        // READ
        15 => {
            let (offset, len) = span(&mut body)?;
            Ok(Reply(volume.read(node, offset, len)?.to_vec()))
        }
        // WRITE
        16 => {
            let (offset, len) = span(&mut body)?;
            body.take(4 + 8 + 4 + 4)?;
            volume.write(node, offset, body.take(len)?)?;
            Ok(nothing().u32(len as u32).zeros(4))
        }
        // STATFS: 4 GiB, all free.
        17 => Ok(nothing()
            .u64(1 << 20)
            .u64(1 << 20)
            .u64(1 << 20)
            .u64(1 << 20)
            .u64(1 << 20)
            .u32(4096)
            .u32(255)
            .u32(4096)
            .zeros(28)),
        // RELEASE, FLUSH, RELEASEDIR, ACCESS, DESTROY
        18 | 25 | 29 | 34 | 38 => Ok(nothing()),
        // FSYNC, FSYNCDIR
        20 | 30 => volume.sync(node).map(|()| nothing()),
        // INIT
        26 => {
            let out =
                nothing().u32(7).u32(31).u32(WRITE_BYTES_MAX).u32(INIT_FLAGS).u16(64).u16(48).u32(WRITE_BYTES_MAX);
            Ok(out.u32(1).u16(PAGES_MAX).zeros(2 + 4 + 28))
        }
        // READDIR
        28 => {
            let (from, len) = span(&mut body)?;
            Ok(Reply(entries(volume, node, from, len)?))
        }
        // CREATE
        35 => {
            body.take(16)?;
            Ok(nothing().entry(&volume.make(node, body.name()?, false)?).zeros(16))
        }
        // FALLOCATE
        43 => {
            body.take(8)?;
            let (offset, len, mode) = (body.usize()?, body.usize()?, body.u32()?);
            match mode {
                0 => volume.allocate(node, offset + len)?,
                FALLOCATE_KEEP_SIZE => {}
                _ => return Err(EOPNOTSUPP),
            }
            Ok(nothing())
        }
        _ => Err(ENOSYS),
    }
}

/// `struct fuse_attr_out`.
fn attributes(of: &Attributes) -> Reply {
    Reply::default().u64(VALID_S).zeros(8).attributes(of)
}

/// Offset and length of a READ, WRITE or READDIR, after its handle.
fn span(body: &mut Body<'_>) -> Result<(usize, usize), i32> {
    body.take(8)?;
    let (offset, len) = (body.usize()?, body.u32()? as usize);
    // A READ ends with words that say nothing here; a WRITE's are skipped by its caller.
    Ok((offset, len))
}

fn rename(has_flags: bool, parent: u64, mut body: Body<'_>, volume: &mut Volume) -> Result<(), i32> {
    let new_parent = body.u64()?;
    let flags = if has_flags { body.u64()? as u32 } else { 0 };
    let (from, to) = (body.name()?, body.name()?);
    if new_parent != parent {
        // Nothing does it, and to keep it atomic over a power loss would take a journal.
        return Err(EXDEV);
    }
    match flags {
        0 => {}
        RENAME_NOREPLACE if volume.lookup(parent, to).is_ok() => return Err(EEXIST),
        RENAME_NOREPLACE => {}
        _ => return Err(EINVAL),
    }
    volume.rename(parent, from, to)
}

/// `struct fuse_dirent`s, as many as fit.
fn entries(volume: &mut Volume, node: u64, from: usize, len_max: usize) -> Result<Vec<u8>, i32> {
    const TYPE_DIRECTORY: u32 = 4;
    const TYPE_FILE: u32 = 8;
    let mut bytes = Vec::new();
    for (index, (name, of)) in volume.entries(node, from)?.into_iter().enumerate() {
        let padded = name.len().next_multiple_of(8);
        if bytes.len() + 24 + padded > len_max {
            break;
        }
        let kind = if of.is_directory { TYPE_DIRECTORY } else { TYPE_FILE };
        let entry = Reply::default().u64(of.node).u64((from + index + 1) as u64).u32(name.len() as u32).u32(kind);
        bytes.extend(entry.0);
        bytes.extend(name.as_bytes());
        bytes.resize(bytes.len() + padded - name.len(), 0);
    }
    Ok(bytes)
}
