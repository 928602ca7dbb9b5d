//! Accounts, users, groups, roles, policies and access keys: who may ask, and what the administrators of accounts change.
//!
//! All of it is documents of the site (`model`) which are read at the start and kept in memory (`state`); requests read a state that is
//! swapped, never locked. A change is made on a copy (`draft`), stored durably document by document, and seen when it is whole; changes follow one
//! another. Temporary credentials are not stored: the session token says what they stand for (`session`).
//!
//! Whoever speaks IAM's API comes by `api`, whoever speaks STS's by `sts`, an operator by `admin`. What somebody may do with buckets and
//! objects is not decided here.

pub mod admin;
mod api;
mod builtin;
pub(crate) mod context;
mod draft;
mod error;
pub(crate) mod http;
mod ids;
pub(crate) mod model;
mod oidc;
mod quotas;
mod seal;
mod session;
mod state;
mod sts;

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use gabion_platform::{Clock, Entropy};
use gabion_policy::Context;
use gabion_store::{ConfigScope, Store, StoreError};
use serde::de::DeserializeOwned;

use crate::credentials::{
    Account, AccountName, Credential, CredentialStore, Credentials, Identity, NoCredential, SecretKey,
};

use crate::fetch::Reach;

pub(crate) use api::{Ask, Form, action_name};
use draft::Draft;
pub use error::IamError;
pub use model::Quota;
use model::{AccountDoc, PREFIX, TokenKeyDoc};
use oidc::Issuers;
use seal::Sealer;
use session::{Sessions, TokenKey};
use state::{Key, State, Tenant};

/// Documents that are read at a time when the state is made.
const PAGE_DOCUMENTS: usize = 256;
/// Most documents that are kept in memory: a site takes no more.
const DOCUMENTS_MAX: usize = 200_000;
/// What is stored beside those that are counted: the key of session tokens, and what a change that was cut off left.
const DOCUMENTS_SPARE: usize = 1000;

/// How IAM is opened.
pub struct IamOptions {
    /// Access key and secret of the deployment's root, which are not stored.
    pub root: Credentials,
    /// The account of the deployment itself; what it is called, where that was changed, is stored.
    pub first_account: Account,
    /// Seals the secrets that are stored.
    pub seal_key: Option<SecretKey>,
    /// Whether identity providers may be on this machine, on its link, or where clouds tell machines about themselves: administrators of accounts
    /// name them, and the server asks them.
    pub near_providers: bool,
}

/// Knows who may ask. See the module.
pub struct Iam {
    state: ArcSwap<State>,
    /// Held while a change is made.
    changing: tokio::sync::Mutex<()>,
    store: Store,
    /// What the root's key stands for; made anew when its account is called otherwise.
    root: ArcSwap<Credential>,
    root_access_key: String,
    first_account: String,
    sealer: Sealer,
    token_key: ArcSwapOption<TokenKey>,
    sessions: Sessions,
    issuers: Issuers,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl std::fmt::Debug for Iam {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Iam")
    }
}

impl Iam {
    /// Reads what is stored.
    ///
    /// # Errors
    /// `Unavailable`, `InvalidRequest` when there is more than fits.
    pub fn open(
        store: Store,
        options: IamOptions,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Arc<Self>, StoreError> {
        let IamOptions { root, first_account, seal_key, near_providers } = options;
        let reach = if near_providers { Reach::Any } else { Reach::Foreign };
        let sealer = Sealer::new(seal_key.as_ref(), Arc::clone(&entropy));
        let (state, token_key) = load(&store, &sealer, &first_account)?;
        let account = Arc::clone(&state.tenants[&first_account.id].account);
        let identity = Arc::new(Identity::root(account, root.access_key.clone()));
        Ok(Arc::new(Self {
            state: ArcSwap::from_pointee(state),
            changing: tokio::sync::Mutex::default(),
            store,
            root: ArcSwap::from_pointee(Credential { secret: root.secret_key, identity }),
            root_access_key: root.access_key,
            first_account: first_account.id,
            sealer,
            token_key: ArcSwapOption::new(token_key.map(Arc::new)),
            sessions: Sessions::default(),
            issuers: Issuers::new(Arc::clone(&clock), reach),
            clock,
            entropy,
        }))
    }

    /// Makes a change: all of it or, where it is refused, nothing. A client who hangs up does not stop it half way.
    async fn change<T, F>(self: &Arc<Self>, change: F) -> Result<T, IamError>
    where
        T: Send + 'static,
        F: FnOnce(&Self, &mut Draft) -> Result<T, IamError> + Send + 'static,
    {
        let this = Arc::clone(self);
        let task = tokio::spawn(async move {
            let _changing = this.changing.lock().await;
            let mut draft = Draft::new(State::clone(&this.state.load()));
            let outcome = change(&this, &mut draft)?;
            let documents = draft.state.documents();
            // With more of them the next start would be refused.
            if documents > DOCUMENTS_MAX && documents > this.state.load().documents() {
                return Err(IamError::limit(format!(
                    "A site has at most {DOCUMENTS_MAX} users, groups, roles, policies and keys."
                )));
            }
            draft.state.generation += 1;
            let Draft { state, writes, token_key } = draft;
            for (name, document) in writes {
                if let Err(error) = this.write(&name, document).await {
                    // What was written before it stands; nobody knows whether this one does.
                    this.reload();
                    return Err(error.into());
                }
            }
            this.swap(state);
            if token_key.is_some() {
                this.token_key.store(token_key);
            }
            Ok(outcome)
        });
        task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a change of users or policies failed");
            Err(IamError::failure())
        })
    }

    async fn write(&self, name: &str, document: Option<Bytes>) -> Result<(), StoreError> {
        match document {
            Some(document) => self.store.put_config(ConfigScope::Site, name, document).await,
            None => self.store.delete_config(ConfigScope::Site, name).await,
        }
    }

    /// Lets requests see another state.
    fn swap(&self, mut state: State) {
        state.find_quotas();
        if let Some(tenant) = state.tenants.get(&self.first_account) {
            let identity = Identity::root(Arc::clone(&tenant.account), self.root_access_key.clone());
            let secret = self.root.load().secret.clone();
            self.root.store(Arc::new(Credential { secret, identity: Arc::new(identity) }));
        }
        self.state.store(Arc::new(state));
    }

    /// Makes the state anew from what is stored.
    fn reload(&self) {
        let first = self.first_account();
        match load(&self.store, &self.sealer, &first) {
            Ok((mut state, _)) => {
                state.generation = self.state.load().generation + 1;
                self.swap(state);
            }
            Err(error) => tracing::error!(%error, "users and policies can not be read again: the last known ones stay"),
        }
    }

    /// What session tokens are made with; made when the first is.
    async fn token_key(self: &Arc<Self>) -> Result<Arc<TokenKey>, IamError> {
        if let Some(key) = self.token_key.load_full() {
            return Ok(key);
        }
        let made = self.change(|iam, draft| {
            if let Some(key) = iam.token_key.load_full() {
                return Ok(key);
            }
            let secret = SecretKey::new(ids::secret(&*iam.entropy));
            draft.put_token_key(&TokenKeyDoc { key: iam.sealer.seal(TOKEN_KEY_OWNER, secret.expose()) });
            let key = Arc::new(TokenKey::new(&secret));
            draft.token_key = Some(Arc::clone(&key));
            Ok(key)
        });
        made.await
    }

    /// Adds what conditions may look at in a request to IAM.
    fn describe(&self, context: &mut Context, caller: &Identity, action: &str, form: &Form) {
        let state = self.state.load();
        let tenant = state.tenants.get(&caller.account.id).map(|tenant| &**tenant);
        context::add_of_iam(context, caller, action, form, tenant);
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn is_root_key(&self, access_key: &str) -> bool {
        access_key == self.root_access_key
    }
}

/// For whom the key of session tokens is sealed.
const TOKEN_KEY_OWNER: &str = "session tokens";

impl CredentialStore for Iam {
    fn find(&self, access_key: &str, token: Option<&str>) -> Result<Credential, NoCredential> {
        if self.is_root_key(access_key) {
            return if token.is_none() {
                Ok(Credential::clone(&self.root.load()))
            } else {
                Err(NoCredential::InvalidToken)
            };
        }
        let state = self.state.load();
        if let Some(credential) = state.credential(access_key) {
            return if token.is_none() { Ok(credential) } else { Err(NoCredential::InvalidToken) };
        }
        match (self.token_key.load_full(), token) {
            (Some(key), Some(token)) if ids::is_temporary(access_key) => {
                self.sessions.find(&state, &key, access_key, token, self.now_ms())
            }
            _ => Err(NoCredential::UnknownKey),
        }
    }

    fn secret_for(&self, access_key: &str) -> Option<SecretKey> {
        if self.is_root_key(access_key) {
            return Some(self.root.load().secret.clone());
        }
        if let Some(credential) = self.state.load().credential(access_key) {
            return Some(credential.secret);
        }
        let key = self.token_key.load_full().filter(|_| ids::is_temporary(access_key))?;
        Some(key.secret(access_key))
    }

    fn first_account(&self) -> Arc<Account> {
        Arc::clone(&self.root.load().identity.account)
    }

    fn account(&self, name: AccountName<'_>) -> Option<Arc<Account>> {
        self.state.load().account(name).map(|tenant| Arc::clone(&tenant.account))
    }

    fn has_quotas(&self) -> bool {
        self.state.load().has_quotas
    }

    fn user_quota(&self, id: &str) -> Quota {
        self.state.load().limited_users.get(id).copied().unwrap_or_default()
    }

    fn quota(&self, canonical_id: &str) -> Quota {
        let state = self.state.load();
        state.account(AccountName::CanonicalId(canonical_id)).map(|tenant| tenant.doc.quota).unwrap_or_default()
    }
}

/// What is stored, and the key of session tokens if there is one.
fn load(store: &Store, sealer: &Sealer, first: &Account) -> Result<(State, Option<TokenKey>), StoreError> {
    let mut documents = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.list_site_configs(PREFIX, after.as_deref(), PAGE_DOCUMENTS)?;
        let is_last = page.len() < PAGE_DOCUMENTS;
        after = page.last().map(|(name, _)| name.clone());
        documents.extend(page);
        if documents.len() > DOCUMENTS_MAX + DOCUMENTS_SPARE {
            return Err(StoreError::InvalidRequest(format!(
                "there are more than {DOCUMENTS_MAX} users, groups, roles, policies and access keys"
            )));
        }
        if is_last {
            break;
        }
    }
    let (mut state, mut token_key) = (State::default(), None);
    let of_kind = |kind: &'static str| {
        let prefix = format!("{PREFIX}{kind}/");
        documents.iter().filter(move |(name, _)| name.starts_with(&prefix))
    };
    for doc in of_kind("account").filter_map(read::<AccountDoc>) {
        state.put_tenant(Tenant::new(doc));
    }
    let stored = state.tenants.get(&first.id).map(|tenant| tenant.doc.clone());
    state.remove_tenant(&first.id);
    state.put_tenant(Tenant::new(AccountDoc {
        id: first.id.clone(),
        canonical_id: first.canonical_id.clone(),
        display_name: stored.as_ref().map_or_else(|| first.display_name.clone(), |doc| doc.display_name.clone()),
        email: stored.as_ref().and_then(|doc| doc.email.clone()),
        created_ms: stored.as_ref().map_or(0, |doc| doc.created_ms),
        quota: stored.map(|doc| doc.quota).unwrap_or_default(),
    }));
    let mut orphans = 0;
    macro_rules! place {
        ($kind:literal, $place:ident, $account:expr, $name:expr) => {
            for doc in of_kind($kind).filter_map(read) {
                match state.tenant_mut(&$account(&doc)) {
                    Ok(tenant) => drop(tenant.$place.insert($name(&doc), Arc::new(doc))),
                    Err(_) => orphans += 1,
                }
            }
        };
    }
    place!("user", users, |doc: &model::User| doc.named.account.clone(), |doc: &model::User| doc
        .named
        .name
        .to_lowercase());
    place!("group", groups, |doc: &model::Group| doc.named.account.clone(), |doc: &model::Group| doc
        .named
        .name
        .to_lowercase());
    place!("role", roles, |doc: &model::Role| doc.named.account.clone(), |doc: &model::Role| doc
        .named
        .name
        .to_lowercase());
    place!("policy", policies, |doc: &model::ManagedPolicy| doc.named.account.clone(), |doc: &model::ManagedPolicy| {
        doc.named.name.to_lowercase()
    });
    place!("provider", providers, |doc: &model::Provider| doc.account.clone(), |doc: &model::Provider| doc
        .host()
        .to_owned());
    for doc in of_kind("key").filter_map(read::<model::KeyDoc>) {
        match sealer.open(&doc.access_key, &doc.secret) {
            Some(secret) => state.put_key(Key::new(doc, secret)),
            None => tracing::error!(
                access_key = doc.access_key,
                "the secret of an access key can not be opened: iam.key_file is not the one that it was stored with"
            ),
        }
    }
    if orphans > 0 {
        tracing::warn!(orphans, "users, groups, roles or policies belong to accounts that are not there");
    }
    if let Some(doc) = documents.iter().find(|(name, _)| *name == draft::token_key_name()).and_then(read::<TokenKeyDoc>)
    {
        match sealer.open(TOKEN_KEY_OWNER, &doc.key) {
            Some(secret) => token_key = Some(TokenKey::new(&secret)),
            None => {
                // A new one would be stored in its place, and the old sessions be lost without a word.
                let why =
                    "the key of session tokens can not be opened: iam.key_file is not the one that it was stored with";
                return Err(StoreError::InvalidRequest(why.into()));
            }
        }
    }
    state.find_quotas();
    Ok((state, token_key))
}

/// A document; one that can not be read is reported, and stands for nobody.
fn read<T: DeserializeOwned>((name, document): &(String, Bytes)) -> Option<T> {
    match serde_json::from_slice(document) {
        Ok(value) => Some(value),
        Err(error) => {
            tracing::error!(name, %error, "a document of users and policies can not be read and is passed over");
            None
        }
    }
}
