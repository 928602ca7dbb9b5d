//! Encrypted objects: their data keys, and where a range of them lies among what is stored (docs/adr/0015).
//!
//! Rows speak of bytes as clients know them; extents hold sealed ones. Only here, and where a body comes in or goes out, are both known. What moves
//! bytes without reading them (compaction, repair, rebalance, copies by reference) moves sealed ones.

use std::sync::Arc;

use gabion_encryption::{BodyRange, Frames, SecretKey};
use gabion_metadata::{
    Index, ScanRange, Table, keys,
    rows::{Attributes, Encryption, EncryptionScheme, ManifestPart, ObjectRow, Row, Salt},
};
use gabion_types::{BucketName, ManifestId, ObjectKey, limits::PART_NUMBER_MAX};

use crate::{ByteRange, Encrypt, KeyError, KeyKeeper, Store, StoreError, store::Inner};

/// Parts that one scan asks for.
const SCAN_PARTS: usize = 64;

/// How a body that comes in is sealed.
pub(crate) struct Seal {
    pub data_key: SecretKey,
    pub frames: Frames,
    pub salt: Salt,
    /// The part that it is, or 0.
    pub part_number: u16,
    /// Whether its tag says nothing of its bytes, as with every key that is not the site's own.
    pub hides_digest: bool,
}

impl Seal {
    pub(crate) fn new(
        inner: &Inner,
        encryption: &Encryption,
        data_key: SecretKey,
        part_number: u16,
    ) -> Result<Self, StoreError> {
        let salt = if part_number == 0 { encryption.salt } else { inner.random_salt() };
        let hides_digest = encryption.scheme != EncryptionScheme::Master;
        Ok(Self { data_key, frames: frames(encryption)?, salt, part_number, hides_digest })
    }
}

/// What is to be opened of an object, and where it lies among what is stored.
pub(crate) struct SealedRead {
    pub bodies: Vec<BodyRange>,
    pub stored: ByteRange,
}

impl Store {
    /// Whom the store asks for the keys that wrap data keys. To be said before it serves; what is said later is not heard.
    pub fn keep_keys(&self, keeper: Arc<dyn KeyKeeper>) {
        // A second one is not heard.
        let _ = self.inner.keys.set(keeper);
    }
}

impl Inner {
    /// A new data key for an object, and how it is encrypted.
    pub(crate) async fn new_encryption(
        &self,
        encrypt: &Encrypt,
        bucket: &BucketName,
        key: &ObjectKey,
    ) -> Result<(Box<Encryption>, SecretKey), StoreError> {
        let data_key = SecretKey::filled(|bytes| self.env.entropy.fill(bytes));
        let encryption = self.wrapped(encrypt, &data_key, bucket, key).await?;
        Ok((encryption, data_key))
    }

    /// Wraps a data key for an object.
    pub(crate) async fn wrapped(
        &self,
        encrypt: &Encrypt,
        data_key: &SecretKey,
        bucket: &BucketName,
        key: &ObjectKey,
    ) -> Result<Box<Encryption>, StoreError> {
        let mut wrap_salt = [0; 32];
        self.env.entropy.fill(&mut wrap_salt);
        let mut encryption = Box::new(Encryption {
            scheme: encrypt.scheme,
            frame_bytes: Frames::USUAL.frame_bytes(),
            wrapped_key: Vec::new(),
            salt: self.random_salt(),
            key_id: None,
            service_key: Vec::new(),
            context: encrypt.context.clone(),
            bucket_key: encrypt.bucket_key,
        });
        let purpose = purpose(&encryption, bucket, key);
        encryption.wrapped_key = match (encrypt.scheme, &encrypt.customer) {
            (EncryptionScheme::Customer, Some(customer)) => customer.wrap(data_key, &purpose, &wrap_salt),
            (EncryptionScheme::Customer, None) => return Err(KeyError::Needed.into()),
            (scheme, _) => {
                let wrapping = self.keeper()?.wrapping_key(scheme, encrypt.key_id.as_deref()).await?;
                encryption.key_id = Some(wrapping.id);
                encryption.service_key = wrapping.service_key;
                wrapping.key.wrap(data_key, &purpose, &wrap_salt)
            }
        };
        Ok(encryption)
    }

    /// The data key of an object.
    pub(crate) async fn unlock(
        &self,
        encryption: &Encryption,
        bucket: &BucketName,
        key: &ObjectKey,
        customer: Option<&SecretKey>,
    ) -> Result<SecretKey, StoreError> {
        let purpose = purpose(encryption, bucket, key);
        match (encryption.scheme, customer) {
            (EncryptionScheme::Customer, Some(customer)) => {
                customer.unwrap(&encryption.wrapped_key, &purpose).map_err(|_| KeyError::Wrong.into())
            }
            (EncryptionScheme::Customer, None) => Err(KeyError::Needed.into()),
            (_, Some(_)) => Err(KeyError::NotApplicable.into()),
            (_, None) => {
                let wrapping = self.keeper()?.key_of(encryption).await?;
                wrapping.unwrap(&encryption.wrapped_key, &purpose).map_err(|_| {
                    let message = "the key of an object is not the one that wrapped it, or its row was changed";
                    StoreError::Corrupt(message.into())
                })
            }
        }
    }

    /// Whether the customer's key that was shown, or that none was, goes with the object.
    pub(crate) fn check_customer(
        &self,
        attributes: &Attributes,
        bucket: &BucketName,
        key: &ObjectKey,
        customer: Option<&SecretKey>,
    ) -> Result<(), StoreError> {
        match (&attributes.encryption, customer) {
            (Some(encryption), _) if encryption.scheme == EncryptionScheme::Customer => {
                let customer = customer.ok_or(KeyError::Needed)?;
                let purpose = purpose(encryption, bucket, key);
                customer.unwrap(&encryption.wrapped_key, &purpose).map_err(|_| KeyError::Wrong)?;
                Ok(())
            }
            (_, Some(_)) => Err(KeyError::NotApplicable.into()),
            (_, None) => Ok(()),
        }
    }

    /// Whether two objects of these may share their bytes: then `customer` and the target have the same key.
    pub(crate) fn is_same_key(&self, source: &Encryption, target: &Encrypt) -> bool {
        if source.scheme != target.scheme {
            return false;
        }
        match source.scheme {
            EncryptionScheme::Master | EncryptionScheme::Customer => true,
            EncryptionScheme::KeyService => match (&source.key_id, &target.key_id, self.keys.get()) {
                (Some(source), Some(target), Some(keeper)) => keeper.is_same(source, target),
                _ => false,
            },
        }
    }

    /// Where a range of an encrypted object lies; nothing when not all of its parts are there, because the object changed.
    pub(crate) fn locate(
        &self,
        row: &ObjectRow,
        encryption: &Encryption,
        range: ByteRange,
    ) -> Result<Option<SealedRead>, StoreError> {
        let frames = frames(encryption)?;
        let end = range.last + 1;
        let Some(parts) = row.parts else {
            let located = frames.locate(row.size, range.first, end);
            let body = BodyRange { salt: encryption.salt.0, part_number: 0, len: row.size, start: range.first, end };
            let stored = ByteRange { first: located.start, last: located.end - 1 };
            return Ok(Some(SealedRead { bodies: vec![body], stored }));
        };
        let Some(mut next) = part_at(&*self.index, parts.manifest, range.first)? else { return Ok(None) };
        let (mut bodies, mut stored, mut found_bytes) = (Vec::new(), None::<ByteRange>, 0);
        while found_bytes < range.len() {
            let all = ScanRange::prefix(Table::Manifest, &keys::manifest_parts(parts.manifest));
            let rows = self.index.scan(all.from(&keys::manifest_part(parts.manifest, next)), SCAN_PARTS)?;
            if rows.is_empty() {
                return Ok(None);
            }
            for (_, part) in &rows {
                let part = ManifestPart::decode(part)?;
                next = part.part_number.saturating_add(1);
                let start = range.first.clamp(part.start, part.start + part.size) - part.start;
                let end = end.clamp(part.start, part.start + part.size) - part.start;
                if start >= end {
                    continue;
                }
                let sealed = part
                    .sealed
                    .ok_or_else(|| StoreError::Corrupt("a part of an encrypted object has no salt".into()))?;
                let located = frames.locate(part.size, start, end);
                let last = sealed.start + located.end - 1;
                stored = Some(match stored {
                    None => ByteRange { first: sealed.start + located.start, last },
                    Some(before) => ByteRange { last, ..before },
                });
                let (salt, part_number) = (sealed.salt.0, part.part_number);
                bodies.push(BodyRange { salt, part_number, len: part.size, start, end });
                found_bytes += end - start;
            }
            if next > PART_NUMBER_MAX && found_bytes < range.len() {
                return Ok(None);
            }
        }
        Ok(stored.map(|stored| SealedRead { bodies, stored }))
    }

    fn keeper(&self) -> Result<&dyn KeyKeeper, StoreError> {
        self.keys.get().map(|keeper| &**keeper).ok_or_else(|| KeyError::NoKeeper.into())
    }

    pub(crate) fn random_salt(&self) -> Salt {
        let mut salt = [0; 16];
        self.env.entropy.fill(&mut salt);
        Salt(salt)
    }
}

/// The frames of an object.
pub(crate) fn frames(encryption: &Encryption) -> Result<Frames, StoreError> {
    let malformed = || StoreError::Corrupt(format!("an object has frames of {} bytes", encryption.frame_bytes));
    Frames::new(encryption.frame_bytes).ok_or_else(malformed)
}

/// Length of a body of `size` bytes as it is stored.
pub(crate) fn stored_len(attributes: &Attributes, size: u64) -> Result<u64, StoreError> {
    match &attributes.encryption {
        None => Ok(size),
        Some(encryption) => Ok(frames(encryption)?.sealed_len(size)),
    }
}

/// The number of the part that holds the byte at `offset`, or of the last one before it.
fn part_at(index: &dyn Index, manifest: ManifestId, offset: u64) -> Result<Option<u16>, StoreError> {
    let up_to = |part_number: u16| -> Result<Option<ManifestPart>, StoreError> {
        let all = ScanRange::prefix(Table::Manifest, &keys::manifest_parts(manifest));
        let rows = index.scan(all.up_to(&keys::manifest_part(manifest, part_number)).descending(), 1)?;
        Ok(rows.first().map(|(_, row)| ManifestPart::decode(row)).transpose()?)
    };
    // The greatest number up to which all parts begin at or before the offset: part numbers may have gaps.
    let (mut low, mut high) = (0, PART_NUMBER_MAX);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match up_to(middle)? {
            Some(part) if part.start > offset => high = part.part_number - 1,
            _ => low = middle,
        }
    }
    Ok(up_to(low)?.map(|part| part.part_number))
}

/// What a data key is wrapped for: it opens for nothing else.
fn purpose(encryption: &Encryption, bucket: &BucketName, key: &ObjectKey) -> Vec<u8> {
    let scheme = match encryption.scheme {
        EncryptionScheme::Master => "master",
        EncryptionScheme::KeyService => "key service",
        EncryptionScheme::Customer => "customer",
    };
    let context = encryption.context.as_deref().unwrap_or_default();
    let mut purpose = Vec::new();
    for text in [scheme, bucket.as_str(), key.as_str(), context] {
        purpose.extend_from_slice(&(text.len() as u64).to_be_bytes());
        purpose.extend_from_slice(text.as_bytes());
    }
    purpose
}
