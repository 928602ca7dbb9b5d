//! Signing keys that were derived before.

use std::collections::HashMap;

use parking_lot::RwLock;
use s3s_sigv4::AmzDate;
use sha2::{Digest, Sha256};

use super::date::DAY_BYTES;
use crate::credentials::SecretKey;

/// Access keys whose signing key is kept; beyond them all are forgotten and derived anew.
const KEPT_MAX: usize = 10_000;
/// Bytes that SHA-256 takes in at a time; HMAC pads its key to so many.
const BLOCK_BYTES: usize = 64;

/// Keys derived for one region and service, by access key: each for the latest day that it was used on. Only access keys that exist get here.
pub(super) struct SigningKeys {
    region: Box<str>,
    service: &'static str,
    kept: RwLock<HashMap<Box<str>, Kept>>,
}

struct Kept {
    day: [u8; DAY_BYTES],
    secret: SecretKey,
    key: SigningKey,
}

/// A derived key, with what HMAC-SHA-256 (RFC 2104) makes of it before it sees a message.
#[derive(Clone)]
pub(super) struct SigningKey {
    inner: Sha256,
    outer: Sha256,
}

impl SigningKey {
    pub(super) fn new(bytes: [u8; 32]) -> Self {
        let padded = |pad: u8| {
            let mut block = [pad; BLOCK_BYTES];
            block.iter_mut().zip(bytes).for_each(|(pad, key)| *pad ^= key);
            Sha256::new_with_prefix(block)
        };
        Self { inner: padded(0x36), outer: padded(0x5c) }
    }

    /// The HMAC of a message.
    pub(super) fn sign(&self, message: &[u8]) -> [u8; 32] {
        let inner = self.inner.clone().chain_update(message).finalize();
        self.outer.clone().chain_update(inner).finalize().into()
    }
}

impl SigningKeys {
    pub(super) fn new(region: &str, service: &'static str) -> Self {
        Self { region: region.into(), service, kept: RwLock::default() }
    }

    /// The key for the day of a date, derived if it is not there; nothing when it is no date.
    pub(super) fn get(&self, access_key: &str, secret: &SecretKey, date: &str) -> Option<SigningKey> {
        let day: [u8; DAY_BYTES] = date.as_bytes().get(..DAY_BYTES)?.try_into().ok()?;
        if let Some(kept) = self.kept.read().get(access_key)
            && kept.day == day
            && kept.secret.is_same(secret)
        {
            return Some(kept.key.clone());
        }
        let date = AmzDate::parse(date).ok()?;
        let key = SigningKey::new(s3s_sigv4::derive_signing_key(secret.expose(), &date, &self.region, self.service));
        let mut all = self.kept.write();
        // It is not verified yet that the request may name an older day: what is in use stays.
        if all.get(access_key).is_some_and(|kept| kept.day > day && kept.secret.is_same(secret)) {
            return Some(key);
        }
        if all.len() >= KEPT_MAX && !all.contains_key(access_key) {
            all.clear();
        }
        all.insert(access_key.into(), Kept { day, secret: secret.clone(), key: key.clone() });
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_key_is_the_derived_one() {
        let keys = SigningKeys::new("r", "s3");
        let (one, other) = (SecretKey::new("one"), SecretKey::new("other"));
        for _ in 0..2 {
            for date in ["20260101T000000Z", "20260101T235959Z", "20260102T000000Z"] {
                for secret in [&one, &other, &one] {
                    let parsed = AmzDate::parse(date).unwrap();
                    let derived = s3s_sigv4::derive_signing_key(secret.expose(), &parsed, "r", "s3");
                    let signature = SigningKey::new(derived).sign(b"text");
                    for _ in 0..2 {
                        assert_eq!(keys.get("AK", secret, date).unwrap().sign(b"text"), signature);
                    }
                }
            }
        }
        assert_eq!(keys.kept.read().len(), 1);
        assert!(keys.get("AK", &one, "2026").is_none());
    }

    #[test]
    fn the_number_of_kept_keys_is_bounded() {
        let keys = SigningKeys::new("r", "s3");
        let secret = SecretKey::new("one");
        for i in 0..=KEPT_MAX {
            keys.get(&i.to_string(), &secret, "20260101T000000Z").unwrap();
        }
        assert_eq!(keys.kept.read().len(), 1);
    }

    #[test]
    fn a_key_signs_as_hmac_does() {
        for bytes in [[0; 32], [0x5c; 32], [7; 32]] {
            for message in ["", "message", &"m".repeat(200)] {
                let expected = s3s_sigv4::calculate_signature_with_key(message, &bytes);
                assert_eq!(SigningKey::new(bytes).sign(message.as_bytes()), expected);
            }
        }
    }
}
