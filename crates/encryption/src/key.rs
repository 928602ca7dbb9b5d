//! Secret keys: wrapped by each other, and the keys of bodies that are derived from them.
//!
//! Every use of a key has a key of its own, derived by HKDF-SHA-256 (RFC 5869) from the secret, a random salt, and what it is for. So each derived
//! key seals few messages, under nonces that are counted: none is ever used twice, however many objects a master key wraps.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac;
use zeroize::Zeroizing;

use crate::{Tampered, WrongKey, frames::TAG_BYTES};

/// Bytes of every key.
const KEY_BYTES: usize = 32;
/// Bytes that [`SecretKey::wrap`] makes: the salt, the key, the tag.
pub const WRAPPED_BYTES: usize = size_of::<WrapSalt>() + KEY_BYTES + TAG_BYTES as usize;

const FOR_WRAPPING: &[u8] = b"gabion wrap 1";
const FOR_TAG: &[u8] = b"gabion tag 1";
const FOR_BODY: &[u8] = b"gabion body 1";

/// Random bytes that make the wrapping of a key its own.
pub type WrapSalt = [u8; 32];
/// Random bytes that make the key of a body its own: two bodies of one data key, as a part that is uploaded again, share nothing.
pub type BodySalt = [u8; 16];

/// 256 secret bits: a master key, a customer's key, or the data key of an object.
#[derive(Clone)]
pub struct SecretKey(Box<Zeroizing<[u8; KEY_BYTES]>>);

impl SecretKey {
    /// Has them filled: by a generator that is fit for secrets, or from where they are kept.
    pub fn filled(fill: impl FnOnce(&mut [u8])) -> Self {
        // On the heap before it is secret: moving it leaves no copy behind.
        let mut bytes = Box::new(Zeroizing::new([0; KEY_BYTES]));
        fill(&mut bytes[..]);
        Self(bytes)
    }

    /// From bytes, of which there must be 32.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        (bytes.len() == KEY_BYTES).then(|| Self::filled(|key| key.copy_from_slice(bytes)))
    }

    /// The bits, for those who must hand them on.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0[..]
    }

    /// Wraps `inner` for `purpose`, without which it does not open. The salt is random and never used again.
    #[must_use]
    pub fn wrap(&self, inner: &SecretKey, purpose: &[u8], salt: &WrapSalt) -> Vec<u8> {
        let mut wrapped = Vec::with_capacity(WRAPPED_BYTES);
        wrapped.extend_from_slice(salt);
        let mut sealed = Zeroizing::new(**inner.0);
        let tag = self
            .derived(salt, FOR_WRAPPING, &[])
            .seal_in_place_separate_tag(nonce(0, true), Aad::from(purpose), &mut sealed[..])
            .expect("a key is short enough to be sealed");
        wrapped.extend_from_slice(&sealed[..]);
        wrapped.extend_from_slice(tag.as_ref());
        wrapped
    }

    /// Opens what [`SecretKey::wrap`] made.
    ///
    /// # Errors
    /// When this is another key, or the purpose another one.
    pub fn unwrap(&self, wrapped: &[u8], purpose: &[u8]) -> Result<SecretKey, WrongKey> {
        if wrapped.len() != WRAPPED_BYTES {
            return Err(WrongKey);
        }
        let (salt, sealed) = wrapped.split_at(size_of::<WrapSalt>());
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let opened = self
            .derived(salt, FOR_WRAPPING, &[])
            .open_in_place(nonce(0, true), Aad::from(purpose), &mut sealed)
            .map_err(|_| WrongKey)?;
        SecretKey::from_slice(opened).ok_or(WrongKey)
    }

    /// A tag for what these digests are of: it tells two bodies of one data key apart, and nothing of either to those who have not the key.
    #[must_use]
    pub fn tag<'a>(&self, digests: impl IntoIterator<Item = &'a [u8]>) -> [u8; 16] {
        let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, self.expose()));
        mac.update(FOR_TAG);
        for digest in digests {
            mac.update(&(digest.len() as u64).to_be_bytes());
            mac.update(digest);
        }
        let mut tag = [0; 16];
        tag.copy_from_slice(&mac.sign().as_ref()[..16]);
        tag
    }

    /// The key of a body.
    pub(crate) fn of_body(&self, salt: &BodySalt, part_number: u16, frame_bytes: u32) -> BodyKey {
        let about = [&part_number.to_be_bytes()[..], &frame_bytes.to_be_bytes()].concat();
        BodyKey(self.derived(salt, FOR_BODY, &about))
    }

    fn derived(&self, salt: &[u8], purpose: &[u8], about: &[u8]) -> LessSafeKey {
        let secret = Salt::new(HKDF_SHA256, salt).extract(self.expose());
        let info = [purpose, about];
        let key = secret.expand(&info, &AES_256_GCM).expect("32 bytes are few enough for HKDF");
        LessSafeKey::new(UnboundKey::from(key))
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey")
    }
}

/// The key of one body: of an object that came as one, or of a part.
pub(crate) struct BodyKey(LessSafeKey);

impl BodyKey {
    /// Seals a frame in place, and appends its tag.
    pub(crate) fn seal(&self, frame: u64, is_last: bool, bytes: &mut Vec<u8>) {
        self.0
            .seal_in_place_append_tag(nonce(frame, is_last), Aad::empty(), bytes)
            .expect("a frame is short enough to be sealed");
    }

    /// Opens a frame in place; what it held is at its front.
    pub(crate) fn open(&self, frame: u64, is_last: bool, sealed: &mut [u8]) -> Result<usize, Tampered> {
        match self.0.open_in_place(nonce(frame, is_last), Aad::empty(), sealed) {
            Ok(plain) => Ok(plain.len()),
            Err(_) => Err(Tampered),
        }
    }
}

/// The nonce of a frame: where it stands, and whether it ends its body.
fn nonce(frame: u64, is_last: bool) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&frame.to_be_bytes());
    nonce[NONCE_LEN - 1] = u8::from(is_last);
    Nonce::assume_unique_for_key(nonce)
}
