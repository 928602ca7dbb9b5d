//! All accounts with what is in them, as requests see it: made at the start from the documents, swapped for another with every change.
//!
//! Users, groups, roles and policies are shared between one state and the next, so that a change copies pointers. What an access key stands for is
//! made when it is asked for first, and kept until its account changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use gabion_policy::Policy;

use super::builtin;
use super::error::IamError;
use super::model::{AccountDoc, Group, KeyDoc, ManagedPolicy, Policies, Provider, Quota, Role, User};
use crate::credentials::{Account, AccountName, Credential, Identity, Principal, SecretKey};

/// What is under an account. Names are in lower case.
#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) doc: AccountDoc,
    pub(crate) account: Arc<Account>,
    pub(crate) users: BTreeMap<String, Arc<User>>,
    pub(crate) groups: BTreeMap<String, Arc<Group>>,
    pub(crate) roles: BTreeMap<String, Arc<Role>>,
    pub(crate) policies: BTreeMap<String, Arc<ManagedPolicy>>,
    /// By what their ARNs end with.
    pub(crate) providers: BTreeMap<String, Arc<Provider>>,
}

impl Tenant {
    pub(crate) fn new(doc: AccountDoc) -> Self {
        let account = Account {
            id: doc.id.clone(),
            canonical_id: doc.canonical_id.clone(),
            display_name: doc.display_name.clone(),
            email: doc.email.clone(),
        };
        Self {
            doc,
            account: Arc::new(account),
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            roles: BTreeMap::new(),
            policies: BTreeMap::new(),
            providers: BTreeMap::new(),
        }
    }

    pub(crate) fn user(&self, name: &str) -> Result<&Arc<User>, IamError> {
        self.users.get(&name.to_lowercase()).ok_or_else(|| IamError::no_entity("user", name))
    }

    pub(crate) fn user_by_id(&self, id: &str) -> Option<&Arc<User>> {
        self.users.values().find(|user| user.named.id == id)
    }

    pub(crate) fn group(&self, name: &str) -> Result<&Arc<Group>, IamError> {
        self.groups.get(&name.to_lowercase()).ok_or_else(|| IamError::no_entity("group", name))
    }

    pub(crate) fn group_by_id(&self, id: &str) -> Option<&Arc<Group>> {
        self.groups.values().find(|group| group.named.id == id)
    }

    pub(crate) fn role(&self, name: &str) -> Result<&Arc<Role>, IamError> {
        self.roles.get(&name.to_lowercase()).ok_or_else(|| IamError::no_entity("role", name))
    }

    pub(crate) fn role_by_id(&self, id: &str) -> Option<&Arc<Role>> {
        self.roles.values().find(|role| role.named.id == id)
    }

    pub(crate) fn policy(&self, arn: &str) -> Result<&Arc<ManagedPolicy>, IamError> {
        let found = self.policies.values().find(|policy| policy.named.arn("policy") == arn);
        found.ok_or_else(|| IamError::not_found(format!("Policy {arn} does not exist or is not attachable.")))
    }

    pub(crate) fn provider(&self, arn: &str) -> Result<&Arc<Provider>, IamError> {
        let found = self.providers.values().find(|provider| provider.arn() == arn);
        found.ok_or_else(|| IamError::not_found(format!("OpenIDConnect Provider not found for arn {arn}")))
    }

    /// The document of a managed policy that may be attached here.
    pub(crate) fn managed_document(&self, arn: &str) -> Option<&str> {
        match builtin::find(arn) {
            Some(builtin) => Some(builtin.document),
            None => self.policy(arn).ok()?.document(),
        }
    }

    /// The policies that allow, as they are evaluated. One that is not there or can not be read denies everything.
    fn compiled(&self, policies: &Policies, into: &mut Vec<Arc<Policy>>) {
        into.extend(policies.inline.values().map(|document| parsed(document)));
        into.extend(policies.attached.iter().map(|arn| self.managed(arn)));
    }

    /// See [`Tenant::compiled`].
    pub(crate) fn managed(&self, arn: &str) -> Arc<Policy> {
        self.managed_document(arn).map_or_else(deny_all, parsed)
    }

    /// A user as he asks.
    pub(crate) fn user_identity(&self, user: &User, access_key: &str) -> Identity {
        let mut policies = Vec::new();
        self.compiled(&user.policies, &mut policies);
        for id in &user.groups {
            match self.group_by_id(id) {
                Some(group) => self.compiled(&group.policies, &mut policies),
                None => policies.push(deny_all()),
            }
        }
        Identity {
            principal: Principal::User {
                name: user.named.name.clone(),
                path: user.named.path.clone(),
                id: user.named.id.clone(),
                tags: user.named.tags.clone(),
            },
            policies,
            boundary: user.policies.boundary.as_deref().map(|arn| self.managed(arn)),
            ..Identity::root(Arc::clone(&self.account), access_key)
        }
    }

    /// Somebody in a role, without what his session adds.
    pub(crate) fn role_identity(&self, role: &Role, session: &str, access_key: &str) -> Identity {
        let mut policies = Vec::new();
        self.compiled(&role.policies, &mut policies);
        Identity {
            principal: Principal::AssumedRole {
                role: role.named.name.clone(),
                path: role.named.path.clone(),
                id: role.named.id.clone(),
                session: session.to_owned(),
                tags: role.named.tags.clone(),
            },
            policies,
            boundary: role.policies.boundary.as_deref().map(|arn| self.managed(arn)),
            ..Identity::root(Arc::clone(&self.account), access_key)
        }
    }
}

/// A policy as it is evaluated; one that can not be read denies everything.
pub(crate) fn parsed(document: &str) -> Arc<Policy> {
    match Policy::parse(document.as_bytes()) {
        Ok(policy) => Arc::new(policy),
        Err(error) => {
            tracing::error!(%error, "a stored policy can not be read: whom it is attached to may do nothing");
            deny_all()
        }
    }
}

fn deny_all() -> Arc<Policy> {
    static DENY: OnceLock<Arc<Policy>> = OnceLock::new();
    const DOCUMENT: &str = r#"{"Version":"2012-10-17","Statement":{"Effect":"Deny","Action":"*","Resource":"*"}}"#;
    let parse = || Arc::new(Policy::parse(DOCUMENT.as_bytes()).expect("it is a policy"));
    Arc::clone(DENY.get_or_init(parse))
}

/// An access key.
pub(crate) struct Key {
    pub(crate) doc: KeyDoc,
    pub(crate) secret: SecretKey,
    identity: OnceLock<Option<Arc<Identity>>>,
}

impl Key {
    pub(crate) fn new(doc: KeyDoc, secret: SecretKey) -> Self {
        Self { doc, secret, identity: OnceLock::new() }
    }

    /// The same, as it stands after a change of its account.
    fn anew(&self) -> Self {
        Self::new(self.doc.clone(), self.secret.clone())
    }
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// Counts changes.
    pub(crate) generation: u64,
    /// By id.
    pub(crate) tenants: HashMap<String, Arc<Tenant>>,
    pub(crate) keys: HashMap<Arc<str>, Arc<Key>>,
    /// Accounts by their canonical ids.
    canonical: HashMap<String, String>,
    /// Whether any account or user has a quota.
    pub(crate) has_quotas: bool,
    /// Users with a quota, by their ids.
    pub(crate) limited_users: HashMap<String, Quota>,
}

impl State {
    pub(crate) fn tenant(&self, account: &str) -> Result<&Arc<Tenant>, IamError> {
        self.tenants.get(account).ok_or_else(|| IamError::no_entity("account", account))
    }

    /// Looks who has a quota.
    pub(crate) fn find_quotas(&mut self) {
        let users = self.tenants.values().flat_map(|tenant| tenant.users.values());
        let limited = users.filter(|user| !user.quota.is_unlimited());
        self.limited_users = limited.map(|user| (user.named.id.clone(), user.quota)).collect();
        let limits_account = |tenant: &Arc<Tenant>| !tenant.doc.quota.is_unlimited();
        self.has_quotas = !self.limited_users.is_empty() || self.tenants.values().any(limits_account);
    }

    /// How many documents make it up.
    pub(crate) fn documents(&self) -> usize {
        let of = |tenant: &Arc<Tenant>| {
            let Tenant { users, groups, roles, policies, providers, .. } = &**tenant;
            1 + users.len() + groups.len() + roles.len() + policies.len() + providers.len()
        };
        self.keys.len() + self.tenants.values().map(of).sum::<usize>()
    }

    /// What an access key stands for; nothing when it is not there or out of use, or its owner is gone.
    pub(crate) fn credential(&self, access_key: &str) -> Option<Credential> {
        let key = self.keys.get(access_key).filter(|key| key.doc.active)?;
        let identity = key.identity.get_or_init(|| self.identity(key).map(Arc::new)).as_ref()?;
        Some(Credential { secret: key.secret.clone(), identity: Arc::clone(identity) })
    }

    fn identity(&self, key: &Key) -> Option<Identity> {
        let tenant = self.tenants.get(&key.doc.account)?;
        let mut identity = match &key.doc.user {
            None => Identity::root(Arc::clone(&tenant.account), &*key.doc.access_key),
            Some(id) => tenant.user_identity(tenant.user_by_id(id)?, &key.doc.access_key),
        };
        identity.session_policies.extend(key.doc.policy.as_deref().map(parsed));
        Some(identity)
    }

    pub(crate) fn account(&self, name: AccountName<'_>) -> Option<&Arc<Tenant>> {
        match name {
            AccountName::Id(id) => self.tenants.get(id),
            AccountName::CanonicalId(id) => self.tenants.get(self.canonical.get(id)?),
            AccountName::Email(_) => self.tenants.values().find(|tenant| name.is_of(&tenant.account)),
        }
    }

    /// The keys of a user, or of the root, in the order of their ids.
    pub(crate) fn keys_of(&self, account: &str, user: Option<&str>) -> Vec<&Arc<Key>> {
        let is_his = |key: &&Arc<Key>| key.doc.account == account && key.doc.user.as_deref() == user;
        let mut keys: Vec<&Arc<Key>> = self.keys.values().filter(is_his).collect();
        keys.sort_by(|one, other| one.doc.access_key.cmp(&other.doc.access_key));
        keys
    }

    pub(crate) fn put_tenant(&mut self, tenant: Tenant) {
        self.canonical.insert(tenant.doc.canonical_id.clone(), tenant.doc.id.clone());
        self.tenants.insert(tenant.doc.id.clone(), Arc::new(tenant));
    }

    pub(crate) fn remove_tenant(&mut self, account: &str) {
        if let Some(tenant) = self.tenants.remove(account) {
            self.canonical.remove(&tenant.doc.canonical_id);
        }
    }

    pub(crate) fn put_key(&mut self, key: Key) {
        self.keys.insert(key.doc.access_key.as_str().into(), Arc::new(key));
    }

    /// The account, to be changed; what its keys stand for is made anew. Of all its keys, as the state before is asked meanwhile: what it finds out of a key that both had would
    /// stand in this one.
    pub(crate) fn tenant_mut(&mut self, account: &str) -> Result<&mut Tenant, IamError> {
        for key in self.keys.values_mut().filter(|key| key.doc.account == account) {
            *key = Arc::new(key.anew());
        }
        let tenant = self.tenants.get_mut(account).ok_or_else(|| IamError::no_entity("account", account))?;
        Ok(Arc::make_mut(tenant))
    }
}
