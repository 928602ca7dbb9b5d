//! A change under way: the state as it will be, and the documents that make it so.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::error::IamError;
use super::model::{AccountDoc, Group, KeyDoc, ManagedPolicy, Named, PREFIX, Provider, Role, TokenKeyDoc, User};
use super::session::TokenKey;
use super::state::{Key, State, Tenant};
use crate::credentials::SecretKey;

/// See the module.
pub(crate) struct Draft {
    pub(crate) state: State,
    /// Names, and the documents that are to stand there; nothing: they go. Written in this order.
    pub(super) writes: Vec<(String, Option<Bytes>)>,
    /// What session tokens are made with from now on.
    pub(super) token_key: Option<Arc<TokenKey>>,
}

impl Draft {
    pub(super) fn new(state: State) -> Self {
        Self { state, writes: Vec::new(), token_key: None }
    }

    fn write(&mut self, name: String, document: &impl Serialize) {
        let json = serde_json::to_vec(document).expect("documents have only texts, numbers, lists and maps");
        self.writes.push((name, Some(json.into())));
    }

    fn erase(&mut self, name: String) {
        self.writes.push((name, None));
    }

    pub(crate) fn put_account(&mut self, doc: AccountDoc) {
        self.write(account_name(&doc.id), &doc);
        let tenant = match self.state.tenants.get(&doc.id) {
            Some(old) => {
                let account = Tenant::new(doc.clone()).account;
                Tenant { doc, account, ..(**old).clone() }
            }
            None => Tenant::new(doc),
        };
        let id = tenant.doc.id.clone();
        self.state.remove_tenant(&id);
        self.state.put_tenant(tenant);
        // Whoever belongs to it is called by its new names.
        let known = self.state.tenant_mut(&id);
        debug_assert!(known.is_ok(), "it was just put there");
    }

    pub(crate) fn remove_account(&mut self, id: &str) {
        self.erase(account_name(id));
        self.state.remove_tenant(id);
    }

    /// `old` is the name that it had until now, if it had another.
    pub(crate) fn put_user(&mut self, user: User, old: Option<&str>) -> Result<(), IamError> {
        self.write(entity_name("user", &user.named), &user);
        let users = &mut self.state.tenant_mut(&user.named.account)?.users;
        old.map(|old| users.remove(&old.to_lowercase()));
        users.insert(user.named.name.to_lowercase(), user.into());
        Ok(())
    }

    pub(crate) fn remove_user(&mut self, named: &Named) -> Result<(), IamError> {
        self.erase(entity_name("user", named));
        self.state.tenant_mut(&named.account)?.users.remove(&named.name.to_lowercase());
        Ok(())
    }

    /// See [`Draft::put_user`].
    pub(crate) fn put_group(&mut self, group: Group, old: Option<&str>) -> Result<(), IamError> {
        self.write(entity_name("group", &group.named), &group);
        let groups = &mut self.state.tenant_mut(&group.named.account)?.groups;
        old.map(|old| groups.remove(&old.to_lowercase()));
        groups.insert(group.named.name.to_lowercase(), group.into());
        Ok(())
    }

    pub(crate) fn remove_group(&mut self, named: &Named) -> Result<(), IamError> {
        self.erase(entity_name("group", named));
        self.state.tenant_mut(&named.account)?.groups.remove(&named.name.to_lowercase());
        Ok(())
    }

    /// See [`Draft::put_user`].
    pub(crate) fn put_role(&mut self, role: Role, old: Option<&str>) -> Result<(), IamError> {
        self.write(entity_name("role", &role.named), &role);
        let roles = &mut self.state.tenant_mut(&role.named.account)?.roles;
        old.map(|old| roles.remove(&old.to_lowercase()));
        roles.insert(role.named.name.to_lowercase(), role.into());
        Ok(())
    }

    pub(crate) fn remove_role(&mut self, named: &Named) -> Result<(), IamError> {
        self.erase(entity_name("role", named));
        self.state.tenant_mut(&named.account)?.roles.remove(&named.name.to_lowercase());
        Ok(())
    }

    pub(crate) fn put_policy(&mut self, policy: ManagedPolicy) -> Result<(), IamError> {
        self.write(entity_name("policy", &policy.named), &policy);
        let policies = &mut self.state.tenant_mut(&policy.named.account)?.policies;
        policies.insert(policy.named.name.to_lowercase(), policy.into());
        Ok(())
    }

    pub(crate) fn remove_policy(&mut self, named: &Named) -> Result<(), IamError> {
        self.erase(entity_name("policy", named));
        self.state.tenant_mut(&named.account)?.policies.remove(&named.name.to_lowercase());
        Ok(())
    }

    pub(crate) fn put_provider(&mut self, provider: Provider) -> Result<(), IamError> {
        self.write(provider_name(&provider), &provider);
        let providers = &mut self.state.tenant_mut(&provider.account)?.providers;
        providers.insert(provider.host().to_owned(), provider.into());
        Ok(())
    }

    pub(crate) fn remove_provider(&mut self, provider: &Provider) -> Result<(), IamError> {
        self.erase(provider_name(provider));
        self.state.tenant_mut(&provider.account)?.providers.remove(provider.host());
        Ok(())
    }

    pub(crate) fn put_key(&mut self, doc: KeyDoc, secret: SecretKey) {
        self.write(key_name(&doc.access_key), &doc);
        self.state.put_key(Key::new(doc, secret));
    }

    pub(crate) fn remove_key(&mut self, access_key: &str) {
        self.erase(key_name(access_key));
        self.state.keys.remove(access_key);
    }

    pub(super) fn put_token_key(&mut self, doc: &TokenKeyDoc) {
        self.write(token_key_name(), doc);
    }
}

fn account_name(id: &str) -> String {
    format!("{PREFIX}account/{id}")
}

fn entity_name(kind: &str, named: &Named) -> String {
    format!("{PREFIX}{kind}/{}/{}", named.account, named.id)
}

fn key_name(access_key: &str) -> String {
    format!("{PREFIX}key/{access_key}")
}

/// URLs may be longer than names of documents.
fn provider_name(provider: &Provider) -> String {
    format!("{PREFIX}provider/{}/{}", provider.account, hex::encode(&Sha256::digest(provider.host())[..16]))
}

pub(super) fn token_key_name() -> String {
    format!("{PREFIX}token-key")
}
