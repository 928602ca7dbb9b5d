//! Fields of fixed width, read and written in order.

use gabion_erasure::crc64;

use crate::segment_info::LaneKind;

/// Why bytes are not the structure they were taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormatError {
    /// They begin otherwise.
    #[error("no magic")]
    Magic,
    /// A later program wrote them.
    #[error("unknown version {0}")]
    Version(u16),
    /// They end too early.
    #[error("cut short")]
    Short,
    /// Some bit is wrong.
    #[error("wrong checksum")]
    Checksum,
    /// The checksum is right, but a field has a value that is never written, or another than was expected.
    #[error("bad {0}")]
    Field(&'static str),
}

/// Takes fields from the front.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let (front, rest) = self.rest.split_at_checked(count).ok_or(FormatError::Short)?;
        self.rest = rest;
        Ok(front)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        Ok(self.take(N)?.try_into().expect("take gives as many as asked for"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reserved bytes: what a later version may give a meaning, so they must be zero in this one.
    pub(crate) fn zeros(&mut self, count: usize) -> Result<(), FormatError> {
        if self.take(count)?.iter().all(|&byte| byte == 0) { Ok(()) } else { Err(FormatError::Field("reserved bytes")) }
    }

    pub(crate) fn magic_and_version<const N: usize>(
        &mut self,
        magic: &[u8; N],
        version: u16,
    ) -> Result<(), FormatError> {
        if self.array::<N>()? != *magic {
            return Err(FormatError::Magic);
        }
        match self.u16()? {
            found if found == version => Ok(()),
            found => Err(FormatError::Version(found)),
        }
    }

    pub(crate) fn lane_kind(&mut self) -> Result<LaneKind, FormatError> {
        match self.u8()? {
            1 => Ok(LaneKind::Small),
            2 => Ok(LaneKind::Large),
            _ => Err(FormatError::Field("kind")),
        }
    }
}

/// Puts fields one after another.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Writes into `out`, which the caller made as long as the structure.
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.put(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn lane_kind(&mut self, kind: LaneKind) -> &mut Self {
        self.u8(match kind {
            LaneKind::Small => 1,
            LaneKind::Large => 2,
        })
    }

    pub(crate) fn zeros(&mut self, count: usize) -> &mut Self {
        self.out[self.at..self.at + count].fill(0);
        self.at += count;
        self
    }

    /// Fills up with zeros and puts the checksum of all before it into the last 8 bytes.
    pub(crate) fn finish(&mut self) {
        let end = self.out.len() - 8;
        self.zeros(end - self.at);
        let crc = crc64(&self.out[..end]);
        self.u64(crc);
    }
}

/// Splits off and checks the last 8 bytes.
pub(crate) fn checked(bytes: &[u8]) -> Result<&[u8], FormatError> {
    let (front, crc) = bytes.split_last_chunk::<8>().ok_or(FormatError::Short)?;
    if crc64(front) == u64::from_le_bytes(*crc) { Ok(front) } else { Err(FormatError::Checksum) }
}
