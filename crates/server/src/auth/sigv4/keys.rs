//! Signing keys that were derived before.

use std::collections::HashMap;

use parking_lot::RwLock;
use s3s_sigv4::AmzDate;

use crate::credentials::SecretKey;

/// Access keys whose signing key is kept; beyond them all are forgotten and derived anew.
const KEPT_MAX: usize = 10_000;

/// Derived keys by access key: each for the latest day that it was used on. Only access keys that exist get here.
#[derive(Default)]
pub(super) struct SigningKeys(RwLock<HashMap<Box<str>, Kept>>);

struct Kept {
    date: [u8; 8],
    secret: SecretKey,
    key: [u8; 32],
}

impl SigningKeys {
    /// The key for a day, derived if it is not there.
    pub(super) fn get(
        &self,
        access_key: &str,
        secret: &SecretKey,
        date: &AmzDate,
        region: &str,
        service: &str,
    ) -> [u8; 32] {
        let day = day(date);
        if let Some(kept) = self.0.read().get(access_key)
            && kept.date == day
            && kept.secret.is_same(secret)
        {
            return kept.key;
        }
        let key = s3s_sigv4::derive_signing_key(secret.expose(), date, region, service);
        let mut all = self.0.write();
        // It is not verified yet that the request may name an older day: what is in use stays.
        if all.get(access_key).is_some_and(|kept| kept.date > day && kept.secret.is_same(secret)) {
            return key;
        }
        if all.len() >= KEPT_MAX && !all.contains_key(access_key) {
            all.clear();
        }
        all.insert(access_key.into(), Kept { date: day, secret: secret.clone(), key });
        key
    }
}

fn day(date: &AmzDate) -> [u8; 8] {
    let mut day = [0; 8];
    day.copy_from_slice(date.fmt_date().as_bytes());
    day
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_key_is_the_derived_one() {
        let keys = SigningKeys::default();
        let (one, other) = (SecretKey::new("one"), SecretKey::new("other"));
        let dates =
            ["20260101T000000Z", "20260101T235959Z", "20260102T000000Z"].map(|date| AmzDate::parse(date).unwrap());
        for _ in 0..2 {
            for date in &dates {
                for secret in [&one, &other, &one] {
                    let derived = s3s_sigv4::derive_signing_key(secret.expose(), date, "r", "s3");
                    assert_eq!(keys.get("AK", secret, date, "r", "s3"), derived);
                    assert_eq!(keys.get("AK", secret, date, "r", "s3"), derived);
                }
            }
        }
        assert_eq!(keys.0.read().len(), 1);
    }

    #[test]
    fn the_number_of_kept_keys_is_bounded() {
        let keys = SigningKeys::default();
        let (secret, date) = (SecretKey::new("one"), AmzDate::parse("20260101T000000Z").unwrap());
        for i in 0..=KEPT_MAX {
            keys.get(&i.to_string(), &secret, &date, "r", "s3");
        }
        assert_eq!(keys.0.read().len(), 1);
    }
}
