//! Files and directories twice: as programs see them, and as a power loss would leave them.

use std::collections::{BTreeMap, HashMap};

use rand::{Rng, rngs::SmallRng};

/// Errors, as the kernel numbers them.
pub(super) const ENOENT: i32 = 2;
pub(super) const EIO: i32 = 5;
pub(super) const EEXIST: i32 = 17;
pub(super) const ENOTDIR: i32 = 20;
pub(super) const EISDIR: i32 = 21;
pub(super) const ENOTEMPTY: i32 = 39;

pub(super) const ROOT: u64 = 1;
/// What a drive writes as a whole.
const SECTOR_BYTES: usize = 512;

/// A change of a file that no sync has covered.
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Len(usize),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => put(content, *offset, bytes),
            Change::Len(len) => content.resize(*len, 0),
        }
    }

    /// Sector by sector: kept or not.
    fn apply_torn(&self, content: &mut Vec<u8>, random: &mut SmallRng) {
        match self {
            Change::Write { offset, bytes } => {
                let mut at = 0;
                while at < bytes.len() {
                    let end = ((offset + at) / SECTOR_BYTES + 1) * SECTOR_BYTES - offset;
                    let end = end.min(bytes.len());
                    if random.random() {
                        put(content, offset + at, &bytes[at..end]);
                    }
                    at = end;
                }
            }
            Change::Len(_) if random.random() => self.apply(content),
            Change::Len(_) => {}
        }
    }
}

fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

#[derive(Default)]
struct File {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

impl File {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    fn forget(&mut self, random: &mut SmallRng) {
        let pending = std::mem::take(&mut self.pending);
        match random.random_range(0..3) {
            0 => {}
            1 => {
                let whole = random.random_range(0..=pending.len());
                pending[..whole].iter().for_each(|change| change.apply(&mut self.durable));
                if let Some(last) = pending.get(whole) {
                    last.apply_torn(&mut self.durable, random);
                }
            }
            _ => pending.iter().for_each(|change| change.apply_torn(&mut self.durable, random)),
        }
        self.now.clone_from(&self.durable);
    }
}

/// A change of a directory that no sync has covered.
enum Step {
    Link(String, u64),
    Unlink(String),
    Rename(String, String),
}

impl Step {
    fn apply(&self, entries: &mut BTreeMap<String, u64>) {
        match self {
            Step::Link(name, node) => drop(entries.insert(name.clone(), *node)),
            Step::Unlink(name) => drop(entries.remove(name)),
            Step::Rename(from, to) => {
                if let Some(node) = entries.remove(from) {
                    entries.insert(to.clone(), node);
                }
            }
        }
    }
}

#[derive(Default)]
struct Directory {
    now: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    pending: Vec<Step>,
}

impl Directory {
    fn step(&mut self, step: Step) {
        step.apply(&mut self.now);
        self.pending.push(step);
    }

    fn sync(&mut self) {
        for step in self.pending.drain(..) {
            step.apply(&mut self.durable);
        }
    }

    /// Names change in order: a journal keeps some first part of it.
    fn forget(&mut self, random: &mut SmallRng) {
        let kept = random.random_range(0..=self.pending.len());
        for step in self.pending.drain(..).take(kept) {
            step.apply(&mut self.durable);
        }
        self.now.clone_from(&self.durable);
    }
}

enum Node {
    File(File),
    Directory(Directory),
}

/// What a node is, for the kernel.
pub(super) struct Attributes {
    pub(super) node: u64,
    pub(super) is_directory: bool,
    pub(super) len: u64,
}

/// All of it. Nodes are known by number; nothing is given back before the next start.
pub(super) struct Volume {
    nodes: HashMap<u64, Node>,
    next: u64,
    powered: bool,
}

impl Volume {
    pub(super) fn new() -> Self {
        let nodes = HashMap::from([(ROOT, Node::Directory(Directory::default()))]);
        Self { nodes, next: ROOT + 1, powered: true }
    }

    pub(super) fn is_powered(&self) -> bool {
        self.powered
    }

    pub(super) fn cut_power(&mut self) {
        self.powered = false;
    }

    /// Forgets what it may, and begins anew.
    pub(super) fn restart(&mut self, random: &mut SmallRng) {
        let mut numbers: Vec<u64> = self.nodes.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            match self.nodes.get_mut(&number).expect("just listed") {
                Node::File(file) => file.forget(random),
                Node::Directory(directory) => directory.forget(random),
            }
        }
        let mut left = HashMap::new();
        let mut reached = vec![ROOT];
        while let Some(number) = reached.pop() {
            let Some(node) = self.nodes.remove(&number) else { continue };
            if let Node::Directory(directory) = &node {
                reached.extend(directory.now.values());
            }
            left.insert(number, node);
        }
        self.nodes = left;
        self.powered = true;
    }

    fn file(&mut self, node: u64) -> Result<&mut File, i32> {
        match self.nodes.get_mut(&node) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(EISDIR),
            None => Err(ENOENT),
        }
    }

    fn directory(&mut self, node: u64) -> Result<&mut Directory, i32> {
        match self.nodes.get_mut(&node) {
            Some(Node::Directory(directory)) => Ok(directory),
            Some(Node::File(_)) => Err(ENOTDIR),
            None => Err(ENOENT),
        }
    }

    pub(super) fn attributes(&self, node: u64) -> Result<Attributes, i32> {
        match self.nodes.get(&node).ok_or(ENOENT)? {
            Node::File(file) => Ok(Attributes { node, is_directory: false, len: file.now.len() as u64 }),
            Node::Directory(_) => Ok(Attributes { node, is_directory: true, len: 0 }),
        }
    }

    pub(super) fn lookup(&mut self, parent: u64, name: &str) -> Result<Attributes, i32> {
        let node = *self.directory(parent)?.now.get(name).ok_or(ENOENT)?;
        self.attributes(node)
    }

    pub(super) fn make(&mut self, parent: u64, name: &str, is_directory: bool) -> Result<Attributes, i32> {
        let number = self.next;
        let directory = self.directory(parent)?;
        if directory.now.contains_key(name) {
            return Err(EEXIST);
        }
        directory.step(Step::Link(name.to_owned(), number));
        self.next += 1;
        let node = if is_directory { Node::Directory(Directory::default()) } else { Node::File(File::default()) };
        self.nodes.insert(number, node);
        self.attributes(number)
    }

    pub(super) fn unlink(&mut self, parent: u64, name: &str) -> Result<(), i32> {
        let attributes = self.lookup(parent, name)?;
        if attributes.is_directory && !self.directory(attributes.node)?.now.is_empty() {
            return Err(ENOTEMPTY);
        }
        self.directory(parent)?.step(Step::Unlink(name.to_owned()));
        Ok(())
    }

    pub(super) fn rename(&mut self, parent: u64, from: &str, to: &str) -> Result<(), i32> {
        self.lookup(parent, from)?;
        self.directory(parent)?.step(Step::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    pub(super) fn read(&mut self, node: u64, offset: usize, len: usize) -> Result<&[u8], i32> {
        let content = &self.file(node)?.now;
        let start = offset.min(content.len());
        Ok(&content[start..(start + len).min(content.len())])
    }

    pub(super) fn write(&mut self, node: u64, offset: usize, bytes: &[u8]) -> Result<(), i32> {
        self.file(node)?.change(Change::Write { offset, bytes: bytes.to_vec() });
        Ok(())
    }

    pub(super) fn set_len(&mut self, node: u64, len: usize) -> Result<(), i32> {
        self.file(node)?.change(Change::Len(len));
        Ok(())
    }

    /// Makes a file at least this long.
    pub(super) fn allocate(&mut self, node: u64, len: usize) -> Result<(), i32> {
        if self.file(node)?.now.len() < len { self.set_len(node, len) } else { Ok(()) }
    }

    pub(super) fn sync(&mut self, node: u64) -> Result<(), i32> {
        match self.nodes.get_mut(&node).ok_or(ENOENT)? {
            Node::File(file) => file.sync(),
            Node::Directory(directory) => directory.sync(),
        }
        Ok(())
    }

    /// The entries of a directory from a position on: name and node.
    pub(super) fn entries(&mut self, node: u64, from: usize) -> Result<Vec<(String, Attributes)>, i32> {
        let entries: Vec<(String, u64)> =
            self.directory(node)?.now.iter().skip(from).map(|(name, node)| (name.clone(), *node)).collect();
        entries.into_iter().map(|(name, node)| Ok((name, self.attributes(node)?))).collect()
    }
}
