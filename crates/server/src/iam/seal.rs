//! Secrets at rest: sealed with AES-256-GCM under a key of the configuration, or plain when there is none.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gabion_platform::Entropy;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest, Sha256};

use super::model::Sealed;
use crate::credentials::SecretKey;

const PLAIN: &str = "plain:";
const AES: &str = "aes256gcm:";

/// Seals and opens secrets.
pub(crate) struct Sealer {
    key: Option<LessSafeKey>,
    entropy: Arc<dyn Entropy>,
}

impl Sealer {
    /// `key` is whatever the operator keeps as a secret; nothing: what is stored is plain.
    pub(crate) fn new(key: Option<&SecretKey>, entropy: Arc<dyn Entropy>) -> Self {
        let derived = |secret: &SecretKey| {
            aes_key(&Sha256::new().chain_update("gabion iam secrets\0").chain_update(secret.expose()).finalize().into())
        };
        Self { key: key.map(derived), entropy }
    }

    /// Seals a secret that belongs to `owner`, for whom alone it can be opened.
    pub(crate) fn seal(&self, owner: &str, secret: &str) -> Sealed {
        Sealed(match &self.key {
            None => format!("{PLAIN}{secret}"),
            Some(key) => {
                format!("{AES}{}", BASE64_STANDARD.encode(encrypt(key, &*self.entropy, owner, secret.as_bytes())))
            }
        })
    }

    /// Opens one; nothing when it was sealed with another key or for another owner.
    pub(crate) fn open(&self, owner: &str, sealed: &Sealed) -> Option<SecretKey> {
        if let Some(secret) = sealed.0.strip_prefix(PLAIN) {
            return Some(SecretKey::new(secret));
        }
        let bytes = BASE64_STANDARD.decode(sealed.0.strip_prefix(AES)?).ok()?;
        let secret = decrypt(self.key.as_ref()?, owner, bytes)?;
        Some(SecretKey::new(String::from_utf8(secret).ok()?))
    }
}

/// A key of AES-256-GCM.
pub(super) fn aes_key(bytes: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).expect("the key has the algorithm's length"))
}

/// A random nonce, the ciphertext and its tag. Random nonces of 96 bits are safe for 2^32 messages of a key.
pub(super) fn encrypt(key: &LessSafeKey, entropy: &dyn Entropy, owner: &str, text: &[u8]) -> Vec<u8> {
    let mut nonce = [0; NONCE_LEN];
    entropy.fill(&mut nonce);
    let mut bytes = text.to_vec();
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(owner.as_bytes()), &mut bytes)
        .expect("a secret is shorter than what the algorithm can take");
    [&nonce[..], &bytes].concat()
}

/// The other way round; nothing when a bit of it, the key or the owner is another.
pub(super) fn decrypt(key: &LessSafeKey, owner: &str, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let (nonce, text) = bytes.split_first_chunk_mut::<NONCE_LEN>()?;
    let nonce = Nonce::assume_unique_for_key(*nonce);
    Some(key.open_in_place(nonce, Aad::from(owner.as_bytes()), text).ok()?.to_vec())
}

#[cfg(test)]
mod tests {
    use gabion_platform::SeededEntropy;

    use super::*;

    fn sealer(key: Option<&str>) -> Sealer {
        Sealer::new(key.map(SecretKey::new).as_ref(), Arc::new(SeededEntropy::new(3)))
    }

    #[test]
    fn a_sealed_secret_opens_with_its_key_for_its_owner_only() {
        let sealed = sealer(Some("k1")).seal("AK", "very secret");
        assert!(!sealed.0.contains("very") && !format!("{sealed:?}").contains("aes"));
        assert_eq!(sealer(Some("k1")).open("AK", &sealed).unwrap().expose(), "very secret");
        for (key, owner) in [(Some("k2"), "AK"), (Some("k1"), "other"), (None, "AK")] {
            assert!(sealer(key).open(owner, &sealed).is_none(), "{key:?} {owner}");
        }
        let mut broken = sealed.clone();
        broken.0.replace_range(20..21, if &sealed.0[20..21] == "A" { "B" } else { "A" });
        assert!(sealer(Some("k1")).open("AK", &broken).is_none());
        for text in ["", "aes256gcm:", "aes256gcm:AAAA", "aes256gcm:!", "rot13:x"] {
            assert!(sealer(Some("k1")).open("AK", &Sealed(text.into())).is_none(), "{text}");
        }
    }

    #[test]
    fn without_a_key_secrets_are_plain_and_stay_readable_with_one() {
        let sealed = sealer(None).seal("AK", "secret");
        assert_eq!(sealed.0, "plain:secret");
        assert_eq!(sealer(Some("k")).open("AK", &sealed).unwrap().expose(), "secret");
    }
}
