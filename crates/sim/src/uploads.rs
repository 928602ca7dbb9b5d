//! What clients know of their multipart uploads.

use std::collections::BTreeMap;

use gabion_types::UploadId;

use crate::values::Part;

/// Whether an upload is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Open,
    /// It was asked to end, and the answer is not known.
    MaybeEnded,
    Ended,
}

/// An upload; one client works on it at a time.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    pub(crate) id: UploadId,
    pub(crate) key: usize,
    pub(crate) life: Life,
    /// By number: what the part may be, `None` for nothing.
    pub(crate) parts: BTreeMap<u16, Vec<Option<Part>>>,
    pub(crate) is_busy: bool,
    /// A part may be something that no client knows.
    pub(crate) is_unknown: bool,
    /// Its bucket may be deleted, and the upload with it; or its beginning may be lost with the power.
    pub(crate) may_be_gone: bool,
    /// Its end is known to be durable.
    pub(crate) has_ended_for_good: bool,
}

impl Upload {
    pub(crate) fn new(id: UploadId, key: usize) -> Self {
        Self {
            id,
            key,
            life: Life::Open,
            parts: BTreeMap::new(),
            is_busy: false,
            is_unknown: false,
            may_be_gone: false,
            has_ended_for_good: false,
        }
    }

    /// What it was before a request that came to nothing; unless it ended meanwhile.
    pub(crate) fn stays(&mut self, was: Life) {
        if self.life != Life::Ended {
            self.life = was;
        }
    }

    /// All that was acknowledged is durable.
    pub(crate) fn synced(&mut self) {
        self.has_ended_for_good = self.life == Life::Ended;
    }

    /// The power went out, and what was not synced may be lost.
    pub(crate) fn lost_power(&mut self) {
        if !self.has_ended_for_good {
            self.life = Life::MaybeEnded;
            self.is_unknown = true;
        }
    }

    /// A part is on its way: it may be this from now on, or stay what it was.
    pub(crate) fn may_have(&mut self, number: u16, part: Part) {
        self.parts.entry(number).or_insert_with(|| vec![None]).push(Some(part));
    }

    /// The part is this.
    pub(crate) fn has(&mut self, number: u16, part: Part) {
        self.parts.insert(number, vec![Some(part)]);
    }

    /// The parts that are known for certain.
    pub(crate) fn certain(&self) -> Vec<(u16, Part)> {
        let certain = |(number, parts): (&u16, &Vec<Option<Part>>)| match &parts[..] {
            [Some(part)] => Some((*number, part.clone())),
            _ => None,
        };
        self.parts.iter().filter_map(certain).collect()
    }

    /// Compares with what the store lists (number, tag, length); what is seen is certain once nothing can change it any more.
    ///
    /// # Errors
    /// What does not fit.
    pub(crate) fn compare(&mut self, listed: &[(u16, String, u64)], all_decided: bool) -> Result<(), String> {
        if self.is_unknown {
            return Ok(());
        }
        if let Some((number, ..)) = listed.iter().find(|(number, ..)| !self.parts.contains_key(number)) {
            return Err(format!("upload {}: part {number} was never sent", self.id));
        }
        for (number, possible) in &mut self.parts {
            let got = listed.iter().find(|(at, ..)| at == number);
            let fits = |part: &Option<Part>| match (part, got) {
                (Some(part), Some((_, etag, len))) => part.etag() == *etag && part.len as u64 == *len,
                (None, None) => true,
                _ => false,
            };
            let Some(found) = possible.iter().find(|part| fits(part)).cloned() else {
                return Err(format!("upload {}: part {number} is {got:?}, not one of {possible:?}", self.id));
            };
            if all_decided {
                *possible = vec![found];
            }
        }
        Ok(())
    }
}
