//! Temporary credentials: the session token says, sealed, what they stand for, and the secret follows from the access key. So nothing is stored of
//! them, they outlive a restart, and there may be any number.
//!
//! A token is opened once and kept with what it stands for until something is changed. Who it is for is looked up anew after every change: a session
//! has the policies that its role has now, and none when the role is gone.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gabion_platform::Entropy;
use parking_lot::RwLock;
use ring::aead::LessSafeKey;
use ring::hmac;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use super::seal::{aes_key, decrypt, encrypt};
use super::state::{State, parsed};
use crate::credentials::{Credential, Identity, NoCredential, Principal, SecretKey, Tags};

/// Sessions that are kept opened; beyond them all are opened anew.
const KEPT_MAX: usize = 10_000;
/// Longest token that is looked at: nothing longer fits into a request's head.
const TOKEN_BYTES_MAX: usize = 32 * 1024;

/// Who has a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Subject {
    /// The root of the account.
    Root,
    /// The user with this id.
    User(String),
    /// Somebody in the role with this id.
    Role(String),
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    /// The account's id.
    pub(super) account: String,
    pub(super) subject: Subject,
    /// What a session of a role is called.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    /// A policy that narrows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<String>,
    /// ARNs of managed policies that narrow it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) policy_arns: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) tags: Tags,
    /// Condition keys from where somebody was authenticated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) federated: Tags,
    pub(super) issued_ms: u64,
    pub(super) expires_ms: u64,
}

/// What tokens and their secrets are made with.
pub(super) struct TokenKey {
    seal: LessSafeKey,
    secrets: hmac::Key,
}

impl TokenKey {
    pub(super) fn new(secret: &SecretKey) -> Self {
        let base = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
        let derived = |what: &[u8]| {
            let tag = hmac::sign(&base, what);
            <[u8; 32]>::try_from(tag.as_ref()).expect("SHA-256 has 32 bytes")
        };
        Self {
            seal: aes_key(&derived(b"gabion session tokens")),
            secrets: hmac::Key::new(hmac::HMAC_SHA256, &derived(b"gabion session secrets")),
        }
    }

    /// The secret of a temporary access key, whether it was ever given out or not.
    pub(super) fn secret(&self, access_key: &str) -> SecretKey {
        let tag = hmac::sign(&self.secrets, access_key.as_bytes());
        // 30 bytes are 40 characters.
        SecretKey::new(BASE64_STANDARD.encode(&tag.as_ref()[..30]))
    }

    /// The token that makes an access key stand for a session.
    pub(super) fn token(&self, entropy: &dyn Entropy, access_key: &str, session: &Session) -> String {
        let text = serde_json::to_vec(session).expect("a session has only texts, numbers and lists");
        BASE64_STANDARD.encode(encrypt(&self.seal, entropy, access_key, &text))
    }

    fn open(&self, access_key: &str, token: &str) -> Option<Session> {
        let bytes = BASE64_STANDARD.decode(token).ok()?;
        serde_json::from_slice(&decrypt(&self.seal, access_key, bytes)?).ok()
    }
}

/// A session that was opened.
struct Kept {
    token: String,
    session: Session,
    generation: u64,
    credential: Credential,
}

/// Sessions that were asked for, by their access keys.
#[derive(Default)]
pub(super) struct Sessions(RwLock<HashMap<Box<str>, Arc<Kept>>>);

impl Sessions {
    pub(super) fn find(
        &self,
        state: &State,
        key: &TokenKey,
        access_key: &str,
        token: &str,
        now_ms: u64,
    ) -> Result<Credential, NoCredential> {
        let kept = self.0.read().get(access_key).cloned();
        let kept = kept.filter(|kept| bool::from(kept.token.as_bytes().ct_eq(token.as_bytes())));
        let kept = match kept {
            Some(kept) if kept.generation == state.generation => kept,
            Some(kept) => self.keep(state, key, access_key, token, kept.session.clone())?,
            None => {
                let opened = (token.len() <= TOKEN_BYTES_MAX).then(|| key.open(access_key, token)).flatten();
                self.keep(state, key, access_key, token, opened.ok_or(NoCredential::InvalidToken)?)?
            }
        };
        if now_ms >= kept.session.expires_ms {
            self.0.write().remove(access_key);
            return Err(NoCredential::ExpiredToken);
        }
        Ok(kept.credential.clone())
    }

    fn keep(
        &self,
        state: &State,
        key: &TokenKey,
        access_key: &str,
        token: &str,
        session: Session,
    ) -> Result<Arc<Kept>, NoCredential> {
        let identity = identity(state, access_key, &session).ok_or(NoCredential::InvalidToken)?;
        let credential = Credential { secret: key.secret(access_key), identity: Arc::new(identity) };
        let kept = Kept { token: token.to_owned(), session, generation: state.generation, credential };
        let kept = Arc::new(kept);
        let mut all = self.0.write();
        if all.len() >= KEPT_MAX {
            all.clear();
        }
        all.insert(access_key.into(), Arc::clone(&kept));
        Ok(kept)
    }
}

/// Who asks in a session; nothing when he, or his role, is gone.
fn identity(state: &State, access_key: &str, session: &Session) -> Option<Identity> {
    let tenant = state.tenants.get(&session.account)?;
    let mut identity = match &session.subject {
        // Another account may have its number by now: users and roles have ids that are never used again.
        Subject::Root if session.issued_ms < tenant.doc.created_ms => return None,
        Subject::Root => Identity::root(Arc::clone(&tenant.account), access_key),
        Subject::User(id) => tenant.user_identity(tenant.user_by_id(id)?, access_key),
        Subject::Role(id) => tenant.role_identity(tenant.role_by_id(id)?, &session.name, access_key),
    };
    if let Principal::AssumedRole { tags, .. } = &mut identity.principal {
        // What the session says counts more than what its role says.
        tags.retain(|(name, _)| !session.tags.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
        tags.extend(session.tags.iter().cloned());
    }
    identity.session_policies.extend(session.policy.as_deref().map(parsed));
    identity.session_policies.extend(session.policy_arns.iter().map(|arn| tenant.managed(arn)));
    identity.issued_ms = Some(session.issued_ms);
    identity.federated.clone_from(&session.federated);
    Some(identity)
}

#[cfg(test)]
mod tests {
    use gabion_platform::SeededEntropy;

    use super::super::model::AccountDoc;
    use super::super::state::Tenant;
    use super::*;

    const KEY: &str = "ASIAAAAAAAAAAAAAAAAA";

    fn session(account: &str) -> Session {
        Session {
            account: account.into(),
            subject: Subject::Root,
            name: String::new(),
            policy: None,
            policy_arns: Vec::new(),
            tags: Tags::new(),
            federated: Tags::new(),
            issued_ms: 1,
            expires_ms: 1000,
        }
    }

    fn state() -> State {
        let mut state = State::default();
        state.put_tenant(Tenant::new(AccountDoc {
            id: "1".into(),
            canonical_id: "c".into(),
            display_name: "d".into(),
            email: None,
            created_ms: 0,
            quota: Default::default(),
        }));
        state
    }

    #[test]
    fn a_token_holds_for_its_key_and_its_time() {
        let (entropy, sessions, state) = (SeededEntropy::new(1), Sessions::default(), state());
        let key = TokenKey::new(&SecretKey::new("one"));
        let token = key.token(&entropy, KEY, &session("1"));
        let find = |key: &TokenKey, access_key: &str, token: &str, now_ms| {
            sessions.find(&state, key, access_key, token, now_ms).map(|found| found.identity.issued_ms)
        };
        for _ in 0..2 {
            assert_eq!(find(&key, KEY, &token, 999), Ok(Some(1)), "opened, then kept");
        }
        let other = TokenKey::new(&SecretKey::new("other"));
        assert_eq!(find(&other, "ASIAAAAAAAAAAAAAAAAB", &token, 1), Err(NoCredential::InvalidToken));
        assert_eq!(find(&key, "ASIAAAAAAAAAAAAAAAAB", &token, 1), Err(NoCredential::InvalidToken));
        for bad in ["", "AAAA", "not base64!", &token[..token.len() - 4], &token.replace(&token[9..10], "!")] {
            assert_eq!(find(&key, KEY, bad, 1), Err(NoCredential::InvalidToken), "{bad}");
        }
        assert_eq!(find(&key, KEY, &token, 1000), Err(NoCredential::ExpiredToken));
        let gone = key.token(&entropy, KEY, &session("2"));
        assert_eq!(find(&key, KEY, &gone, 1), Err(NoCredential::InvalidToken), "there is no such account");
        let mut later = super::super::state::State::default();
        let mut doc = state.tenants["1"].doc.clone();
        doc.created_ms = 2;
        later.put_tenant(Tenant::new(doc));
        assert!(identity(&later, KEY, &session("1")).is_none(), "another account has its number");
        assert_eq!(key.secret(KEY).expose().len(), 40);
        assert_ne!(key.secret(KEY).expose(), other.secret(KEY).expose());
    }
}
