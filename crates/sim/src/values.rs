//! Bodies: each is made of seeded pieces, so that it need not be kept, and is known by its entity tag.

use std::collections::BTreeMap;

use bytes::Bytes;
use gabion_erasure::{ChecksumAlgorithm, Digester, crc64};
use gabion_platform::{Entropy, SeededEntropy};
use gabion_store::EtagKind;

/// A body that some client made.
pub type Value = u32;

/// A run of bytes that follows from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) seed: u64,
    pub(crate) from: usize,
    pub(crate) len: usize,
}

impl Piece {
    fn bytes(self) -> Bytes {
        let mut out = vec![0; self.from + self.len];
        SeededEntropy::new(self.seed).fill(&mut out);
        Bytes::from(out).slice(self.from..)
    }
}

/// What is known of a body.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) etag: String,
    pub(crate) len: usize,
    crc64: u64,
}

impl Body {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|piece| piece.bytes()).collect()
    }

    /// The pieces that a range consists of.
    pub(crate) fn cut(&self, first: usize, end: usize) -> Vec<Piece> {
        let mut start = 0;
        let mut cut = Vec::new();
        for piece in &self.pieces {
            let (from, to) = (first.max(start), end.min(start + piece.len));
            if from < to {
                cut.push(Piece { seed: piece.seed, from: piece.from + from - start, len: to - from });
            }
            start += piece.len;
        }
        cut
    }
}

/// A part of an upload, as a client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) tag: Tag,
    pub(crate) len: usize,
}

impl Part {
    pub(crate) fn etag(&self) -> String {
        match self.tag {
            Tag::Md5(md5) => hex(md5),
            Tag::Crc64(crc64) => format!("{crc64:016x}-1"),
        }
    }
}

/// What the tag of one body says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Md5([u8; 16]),
    Crc64(u64),
}

/// All bodies of a run.
#[derive(Debug, Default)]
pub(crate) struct Values {
    bodies: Vec<Body>,
    by_etag: BTreeMap<String, Value>,
    next_seed: u64,
    kind: EtagKind,
}

impl Values {
    /// Bodies that differ from those of other seeds, with tags of this kind.
    pub(crate) fn new(seed: u64, kind: EtagKind) -> Self {
        Self { next_seed: seed << 24, kind, ..Self::default() }
    }

    fn tag(&self, bytes: &[u8]) -> Tag {
        match self.kind {
            EtagKind::Md5 => Tag::Md5(md5(bytes)),
            EtagKind::Crc64Nvme => Tag::Crc64(crc64(bytes)),
        }
    }

    pub(crate) fn body(&self, value: Value) -> &Body {
        &self.bodies[value as usize]
    }

    /// Number of bodies.
    pub(crate) fn count(&self) -> Value {
        self.bodies.len() as Value
    }

    /// The body that has this tag.
    pub(crate) fn find(&self, etag: &str) -> Option<Value> {
        self.by_etag.get(etag).copied()
    }

    /// A new body of one piece.
    pub(crate) fn fresh(&mut self, len: usize) -> (Value, Bytes) {
        let (part, bytes) = self.fresh_part(len);
        (self.add(part.pieces.clone(), part.etag(), crc64(&bytes), len), bytes)
    }

    /// A new part.
    pub(crate) fn fresh_part(&mut self, len: usize) -> (Part, Bytes) {
        self.next_seed += 1;
        let piece = Piece { seed: self.next_seed, from: 0, len };
        let bytes = piece.bytes();
        (Part { pieces: vec![piece], tag: self.tag(&bytes), len }, bytes)
    }

    /// The part that is a range of a body.
    pub(crate) fn part_of(&self, value: Value, first: usize, end: usize) -> Part {
        let body = self.body(value);
        let bytes = body.bytes();
        Part { pieces: body.cut(first, end), tag: self.tag(&bytes[first..end]), len: end - first }
    }

    /// The body that consists of these parts.
    pub(crate) fn whole(&mut self, parts: &[&Part]) -> Value {
        let pieces: Vec<Piece> = parts.iter().flat_map(|part| part.pieces.iter().copied()).collect();
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes()).collect();
        let (crc, len) = (crc64(&bytes), bytes.len());
        let md5s = parts.iter().map(|part| match part.tag {
            Tag::Md5(md5) => Some(md5),
            Tag::Crc64(_) => None,
        });
        let etag = match md5s.collect::<Option<Vec<_>>>() {
            Some(md5s) => format!("{}-{}", hex(md5(md5s.as_flattened())), parts.len()),
            None => format!("{crc:016x}-{}", parts.len()),
        };
        self.add(pieces, etag, crc, len)
    }

    /// The body that a part makes of another one, appended to it.
    pub(crate) fn appended(&mut self, before: Value, part: &Part) -> Value {
        let body = self.body(before);
        let pieces: Vec<Piece> = body.pieces.iter().chain(&part.pieces).copied().collect();
        let (before_etag, len) = (body.etag.clone(), body.len + part.len);
        let parts = before_etag.rsplit_once('-').and_then(|(_, parts)| parts.parse().ok()).unwrap_or(1_u32) + 1;
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes()).collect();
        let crc = crc64(&bytes);
        let etag = match part.tag {
            Tag::Md5(of_part) => format!("{}-{parts}", hex(md5(&[before_etag.as_bytes(), &of_part].concat()))),
            Tag::Crc64(_) => format!("{crc:016x}-{parts}"),
        };
        self.add(pieces, etag, crc, len)
    }

    fn add(&mut self, pieces: Vec<Piece>, etag: String, crc64: u64, len: usize) -> Value {
        if let Some(value) = self.find(&etag) {
            return value;
        }
        let value = self.bodies.len() as Value;
        self.by_etag.insert(etag.clone(), value);
        self.bodies.push(Body { pieces, etag, len, crc64 });
        value
    }

    /// What is wrong with `got`, which should be bytes `first` to `end` of the body.
    pub(crate) fn verify(&self, value: Value, first: usize, end: usize, got: &[u8]) -> Result<(), String> {
        let body = self.body(value);
        if got.len() != end - first {
            return Err(format!("{} bytes instead of {first}..{end} of body {value} ({})", got.len(), body.etag));
        }
        let right = if end - first == body.len { crc64(got) == body.crc64 } else { got == &body.bytes()[first..end] };
        if right { Ok(()) } else { Err(format!("wrong bytes in {first}..{end} of body {value} ({})", body.etag)) }
    }
}

fn md5(bytes: &[u8]) -> [u8; 16] {
    let mut digester = Digester::new(true, &[] as &[ChecksumAlgorithm]);
    digester.update(bytes);
    digester.finish().md5.expect("it was asked for")
}

fn hex(md5: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(md5))
}
