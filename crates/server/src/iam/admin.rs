//! What an operator does over the admin port: accounts, and whatever an account's administrator could do in his.
//!
//! No policy is asked: whoever has the admin token may do everything. Requests and answers are JSON; a secret is shown when it is made, and never
//! again.

use std::sync::Arc;

use gabion_store::ListBuckets;
use gabion_types::limits::BUCKETS_MAX;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{
    Kind, attach, check, check_document, check_room, check_there, detach, new_key, new_policy, new_user, path,
};
use super::error::IamError;
use super::model::{AccountDoc, Group, KeyDoc, Policies, Quota, Role, User};
use super::state::{Key, State, Tenant};
use super::{Iam, builtin, ids};
use crate::auth::identity::ACCOUNT_ID_DIGITS;
use crate::credentials::{AccountName, SecretKey};

/// Most accounts of a site.
const ACCOUNTS_MAX: usize = 10_000;
/// Longest canonical id that is taken over from elsewhere; ours have as many characters.
const CANONICAL_ID_MAX: usize = 64;
/// Longest name that people call an account by, and longest address.
const TEXT_MAX: usize = 256;
const POLICY_BYTES_MAX: usize = gabion_policy::limits::MANAGED_POLICY_BYTES_MAX;

/// What an operator asks for. Which of the fields count depends on the action; without an account it is the first one.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// Of an account that is there: its id, canonical id or address.
    account: Option<String>,
    id: Option<String>,
    canonical_id: Option<String>,
    display_name: Option<String>,
    email: Option<String>,
    pub(super) user: Option<String>,
    group: Option<String>,
    role: Option<String>,
    name: Option<String>,
    path: Option<String>,
    access_key: Option<String>,
    secret_key: Option<String>,
    /// A name or an ARN; of a service account its document.
    policy: Option<String>,
    document: Option<String>,
    description: Option<String>,
    pub(super) bucket: Option<String>,
    bytes: Option<u64>,
    objects: Option<u64>,
    /// With all that belongs to it.
    force: bool,
}

impl Request {
    pub(super) fn quota(&self) -> Quota {
        Quota { bytes: self.bytes, objects: self.objects }
    }

    pub(super) fn tenant<'a>(&self, iam: &Iam, state: &'a State) -> Result<&'a Arc<Tenant>, IamError> {
        match self.account.as_deref() {
            None => state.tenant(&iam.first_account),
            Some(name) => {
                let ways = [AccountName::Id(name), AccountName::CanonicalId(name), AccountName::Email(name)];
                let found = ways.into_iter().find_map(|way| state.account(way));
                found.ok_or_else(|| IamError::no_entity("account", name))
            }
        }
    }

    /// An access key, of which there is one by its name; where an account is named, one of that account.
    fn key(&self, iam: &Iam, state: &State, access_key: &str) -> Result<Arc<Key>, IamError> {
        let account = self.account.is_some().then(|| self.tenant(iam, state)).transpose()?;
        let key = state.keys.get(access_key).filter(|key| account.is_none_or(|it| it.doc.id == key.doc.account));
        key.cloned().ok_or_else(|| IamError::no_entity("access key", access_key))
    }

    fn needed<'a>(value: &'a Option<String>, what: &str) -> Result<&'a str, IamError> {
        value.as_deref().filter(|value| !value.is_empty()).ok_or_else(|| IamError::missing(what))
    }

    /// Whose keys or policies are meant: nothing for the account itself.
    fn user_id(&self, tenant: &Tenant) -> Result<Option<String>, IamError> {
        self.user.as_deref().map(|name| Ok(tenant.user(name)?.named.id.clone())).transpose()
    }

    /// The ARN of the policy that is named.
    fn policy_arn(&self, tenant: &Tenant) -> Result<String, IamError> {
        let policy = Self::needed(&self.policy, "policy")?;
        if policy.starts_with("arn:") {
            return Ok(policy.to_owned());
        }
        match tenant.policies.get(&policy.to_lowercase()) {
            Some(own) => Ok(own.named.arn("policy")),
            None => Ok(format!("{}{policy}", builtin::ARN_PREFIX)),
        }
    }
}

impl Iam {
    /// Does what an operator asks for.
    ///
    /// # Errors
    /// With what he is told.
    pub async fn administer(self: &Arc<Self>, action: &str, request: Request) -> Result<Value, IamError> {
        let outcome = match action {
            "account/create" => self.account_create(request).await,
            "account/list" => self.account_list(),
            "account/show" => self.account_show(&request).await,
            "account/update" => self.account_update(request).await,
            "account/delete" => self.account_delete(request).await,
            "account/quota" => self.account_quota(request).await,
            "quota/set" => {
                let quota = request.quota();
                self.quota_set(request, quota).await
            }
            "quota/clear" => self.quota_set(request, Quota::default()).await,
            "quota/show" => self.quota_show(&request),
            "user/create" => self.user_create(request).await,
            "user/list" => self.user_list(&request),
            "user/show" => self.user_show(&request),
            "user/delete" => self.user_delete(request).await,
            "key/create" => self.key_create(request).await,
            "key/list" => self.key_list(&request),
            "key/enable" => self.key_switch(request, true).await,
            "key/disable" => self.key_switch(request, false).await,
            "key/delete" => self.key_delete(request).await,
            "policy/create" => self.policy_create(request).await,
            "policy/list" => self.policy_list(&request),
            "policy/show" => self.policy_show(&request),
            "policy/delete" => self.policy_delete(request).await,
            "policy/attach" => self.policy_attach(request, true).await,
            "policy/detach" => self.policy_attach(request, false).await,
            _ => return Err(IamError::sender("InvalidAction", format!("{action} is no action"))),
        };
        if outcome.is_ok() && !action.ends_with("list") && !action.ends_with("show") {
            tracing::info!(action, "users and policies were changed over the admin port");
        }
        outcome
    }

    async fn account_create(self: &Arc<Self>, request: Request) -> Result<Value, IamError> {
        let quota = request.quota();
        let id = request.id.unwrap_or_else(|| ids::account(&*self.entropy));
        if id.len() != ACCOUNT_ID_DIGITS || !id.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(IamError::validation("The id of an account has 12 digits."));
        }
        let canonical_id = request.canonical_id.unwrap_or_else(|| ids::canonical(&*self.entropy));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !(1..=CANONICAL_ID_MAX).contains(&canonical_id.len()) || !canonical_id.bytes().all(plain) {
            return Err(IamError::validation("A canonical id has up to 64 letters, digits, '-' or '_'."));
        }
        let display_name = request.display_name.unwrap_or_else(|| id.clone());
        let email = request.email.filter(|email| !email.is_empty());
        check_names(&display_name, email.as_deref())?;
        let doc = AccountDoc { id, canonical_id, display_name, email, created_ms: self.now_ms(), quota };
        let made = doc.clone();
        self.change(move |_, draft| {
            let state = &draft.state;
            if state.tenants.len() >= ACCOUNTS_MAX {
                return Err(IamError::limit(format!("There may be at most {ACCOUNTS_MAX} accounts.")));
            }
            let taken = [
                state.account(AccountName::Id(&doc.id)).map(|_| &doc.id),
                state.account(AccountName::CanonicalId(&doc.canonical_id)).map(|_| &doc.canonical_id),
                doc.email.as_ref().filter(|email| state.account(AccountName::Email(email)).is_some()),
            ];
            if let Some(name) = taken.into_iter().flatten().next() {
                return Err(IamError::exists("An account", name));
            }
            draft.put_account(doc);
            Ok(())
        })
        .await?;
        Ok(account_json(&made))
    }

    /// Changes what it is called; what is not given stays, an empty address goes.
    async fn account_update(self: &Arc<Self>, request: Request) -> Result<Value, IamError> {
        self.change(move |iam, draft| {
            let mut doc = request.tenant(iam, &draft.state)?.doc.clone();
            doc.display_name = request.display_name.unwrap_or(doc.display_name);
            doc.email = match request.email {
                Some(email) => Some(email).filter(|email| !email.is_empty()),
                None => doc.email,
            };
            check_names(&doc.display_name, doc.email.as_deref())?;
            let others = doc.email.as_ref().and_then(|email| draft.state.account(AccountName::Email(email)));
            if others.is_some_and(|other| other.doc.id != doc.id) {
                return Err(IamError::exists("An account", doc.email.as_deref().unwrap_or_default()));
            }
            let shown = account_json(&doc);
            draft.put_account(doc);
            Ok(shown)
        })
        .await
    }

    fn account_list(&self) -> Result<Value, IamError> {
        let state = self.state.load();
        let mut accounts: Vec<&AccountDoc> = state.tenants.values().map(|tenant| &tenant.doc).collect();
        accounts.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(json!({ "accounts": accounts.into_iter().map(account_json).collect::<Vec<_>>() }))
    }

    async fn account_show(&self, request: &Request) -> Result<Value, IamError> {
        let state = self.state.load_full();
        let tenant = request.tenant(self, &state)?;
        let mut shown = account_json(&tenant.doc);
        shown["users"] = json!(tenant.users.len());
        shown["groups"] = json!(tenant.groups.len());
        shown["roles"] = json!(tenant.roles.len());
        shown["policies"] = json!(tenant.policies.len());
        shown["access_keys"] = json!(state.keys.values().filter(|key| key.doc.account == tenant.doc.id).count());
        shown["buckets"] = json!(self.buckets(&tenant.doc.canonical_id).await?);
        Ok(shown)
    }

    /// How many buckets an account has.
    async fn buckets(&self, canonical_id: &str) -> Result<usize, IamError> {
        let owner = Some(canonical_id.to_owned());
        let all = ListBuckets { prefix: None, after: None, max: BUCKETS_MAX, owner };
        Ok(self.store.list_buckets(all).await?.buckets.len())
    }

    async fn account_delete(self: &Arc<Self>, request: Request) -> Result<Value, IamError> {
        let state = self.state.load_full();
        let tenant = request.tenant(self, &state)?;
        if request.account.is_none() || tenant.doc.id == self.first_account {
            return Err(IamError::validation("The account of the deployment itself stays."));
        }
        if self.buckets(&tenant.doc.canonical_id).await? > 0 {
            return Err(IamError::delete_conflict("The account has buckets: delete them first."));
        }
        let (id, force) = (tenant.doc.id.clone(), request.force);
        self.change(move |_, draft| {
            let tenant = Arc::clone(draft.state.tenant(&id)?);
            let keys: Vec<String> = draft.state.keys.values().filter(|key| key.doc.account == id).map(|key| key.doc.access_key.clone()).collect();
            let empty = keys.is_empty() && tenant.users.is_empty() && tenant.groups.is_empty() && tenant.roles.is_empty();
            if !(force || empty && tenant.policies.is_empty() && tenant.providers.is_empty()) {
                return Err(IamError::delete_conflict(
                    "The account has users, groups, roles, policies or access keys: delete them first, or all of them with --force.",
                ));
            }
            // First what lets somebody in.
            keys.iter().for_each(|key| draft.remove_key(key));
            for user in tenant.users.values() {
                draft.remove_user(&user.named)?;
            }
            for role in tenant.roles.values() {
                draft.remove_role(&role.named)?;
            }
            for group in tenant.groups.values() {
                draft.remove_group(&group.named)?;
            }
            for policy in tenant.policies.values() {
                draft.remove_policy(&policy.named)?;
            }
            for provider in tenant.providers.values() {
                draft.remove_provider(provider)?;
            }
            draft.remove_account(&id);
            Ok(json!({ "deleted": id }))
        })
        .await
    }

    async fn user_create(self: &Arc<Self>, request: Request) -> Result<Value, IamError> {
        let name = Request::needed(&request.name, "name")?.to_owned();
        check("name", &name, 64)?;
        let path = path(request.path.as_deref())?;
        self.change(move |iam, draft| {
            let tenant = request.tenant(iam, &draft.state)?;
            if tenant.users.contains_key(&name.to_lowercase()) {
                return Err(IamError::exists("User", &name));
            }
            let user = new_user(iam, &tenant.doc.id, &name, path, Vec::new());
            let shown = user_json(tenant, &draft.state, &user);
            draft.put_user(user, None)?;
            Ok(shown)
        })
        .await
    }

    fn user_list(&self, request: &Request) -> Result<Value, IamError> {
        let state = self.state.load();
        let tenant = request.tenant(self, &state)?;
        let users: Vec<Value> = tenant.users.values().map(|user| user_json(tenant, &state, user)).collect();
        Ok(json!({ "account": tenant.doc.id, "users": users }))
    }

    fn user_show(&self, request: &Request) -> Result<Value, IamError> {
        let state = self.state.load();
        let tenant = request.tenant(self, &state)?;
        Ok(user_json(tenant, &state, tenant.user(Request::needed(&request.name, "name")?)?))
    }

    async fn user_delete(self: &Arc<Self>, request: Request) -> Result<Value, IamError> {
        let name = Request::needed(&request.name, "name")?.to_owned();
        self.change(move |iam, draft| {
            let user = Arc::clone(request.tenant(iam, &draft.state)?.user(&name)?);
            let keys = draft.state.keys_of(&user.named.account, Some(&user.named.id));
            let keys: Vec<String> = keys.iter().map(|key| key.doc.access_key.clone()).collect();
            if !request.force && !keys.is_empty() {
                return Err(IamError::delete_conflict(
                    "The user has access keys: delete them first, or all with --force.",
                ));
            }
            keys.iter().for_each(|key| draft.remove_key(key));
            draft.remove_user(&user.named)?;
            Ok(json!({ "deleted": user.named.name }))
        })
        .await
    }

    async fn key_create(self: &Arc<Self>, request: Request) -> Result<Value, IamError> {
        if let Some(document) = &request.policy {
            check_document(document, Kind::Identity, POLICY_BYTES_MAX)?;
        }
        let given = match (&request.access_key, &request.secret_key) {
            (None, None) => None,
            (Some(access_key), Some(secret_key)) => {
                check_pair(access_key, secret_key)?;
                Some((access_key.clone(), SecretKey::new(secret_key.as_str())))
            }
            _ => return Err(IamError::validation("Give an access key and its secret key, or neither.")),
        };
        self.change(move |iam, draft| {
            let tenant = request.tenant(iam, &draft.state)?;
            let user = request.user_id(tenant)?;
            let account = tenant.doc.id.clone();
            if request.policy.is_none() {
                check_room(&draft.state, &account, user.as_deref())?;
            }
            let (mut doc, mut secret) = new_key(iam, &account, user);
            if let Some((access_key, given)) = given {
                if draft.state.keys.contains_key(access_key.as_str()) || iam.is_root_key(&access_key) {
                    return Err(IamError::exists("An access key", &access_key));
                }
                doc.secret = iam.sealer.seal(&access_key, given.expose());
                doc.access_key = access_key;
                secret = given;
            }
            doc.policy = request.policy;
            doc.description = request.description.unwrap_or_default();
            let mut shown = key_json(&doc, request.user.as_deref());
            shown["secret_key"] = json!(secret.expose());
            draft.put_key(doc, secret);
            Ok(shown)
        })
        .await
    }

    fn key_list(&self, request: &Request) -> Result<Value, IamError> {
        let state = self.state.load();
        let tenant = request.tenant(self, &state)?;
        let wanted = request.user_id(tenant)?;
        let is_meant =
            |key: &&Arc<Key>| key.doc.account == tenant.doc.id && (request.user.is_none() || key.doc.user == wanted);
        let mut keys: Vec<&Arc<Key>> = state.keys.values().filter(is_meant).collect();
        keys.sort_by(|one, other| one.doc.access_key.cmp(&other.doc.access_key));
        let keys: Vec<Value> = keys.into_iter().map(|key| key_json(&key.doc, user_name(tenant, &key.doc))).collect();
        Ok(json!({ "account": tenant.doc.id, "access_keys": keys }))
    }

    async fn key_switch(self: &Arc<Self>, request: Request, active: bool) -> Result<Value, IamError> {
        let access_key = Request::needed(&request.access_key, "access_key")?.to_owned();
        self.change(move |iam, draft| {
            let key = request.key(iam, &draft.state, &access_key)?;
            let doc = KeyDoc { active, ..key.doc.clone() };
            let shown = key_json(&doc, user_name(draft.state.tenant(&doc.account)?, &doc));
            draft.put_key(doc, key.secret.clone());
            Ok(shown)
        })
        .await
    }

    async fn key_delete(self: &Arc<Self>, request: Request) -> Result<Value, IamError> {
        let access_key = Request::needed(&request.access_key, "access_key")?.to_owned();
        self.change(move |iam, draft| {
            request.key(iam, &draft.state, &access_key)?;
            draft.remove_key(&access_key);
            Ok(json!({ "deleted": access_key }))
        })
        .await
    }

    async fn policy_create(self: &Arc<Self>, request: Request) -> Result<Value, IamError> {
        let name = Request::needed(&request.name, "name")?.to_owned();
        check("name", &name, 128)?;
        let path = path(request.path.as_deref())?;
        let document = Request::needed(&request.document, "document")?.to_owned();
        check_document(&document, Kind::Identity, POLICY_BYTES_MAX)?;
        self.change(move |iam, draft| {
            let tenant = request.tenant(iam, &draft.state)?;
            if tenant.policies.contains_key(&name.to_lowercase()) {
                return Err(IamError::exists("A policy", &name));
            }
            let policy = new_policy(iam, &tenant.doc.id, &name, path, document);
            let shown = json!({ "name": name, "arn": policy.named.arn("policy") });
            draft.put_policy(policy)?;
            Ok(shown)
        })
        .await
    }

    fn policy_list(&self, request: &Request) -> Result<Value, IamError> {
        let state = self.state.load();
        let tenant = request.tenant(self, &state)?;
        let own = tenant.policies.values().map(|policy| (policy.named.name.clone(), policy.named.arn("policy")));
        let everybodys = builtin::ALL
            .iter()
            .map(|policy| (policy.name.to_owned(), format!("{}{}", builtin::ARN_PREFIX, policy.name)));
        let all: Vec<Value> = own.chain(everybodys).map(|(name, arn)| json!({ "name": name, "arn": arn })).collect();
        Ok(json!({ "account": tenant.doc.id, "policies": all }))
    }

    fn policy_show(&self, request: &Request) -> Result<Value, IamError> {
        let state = self.state.load();
        let tenant = request.tenant(self, &state)?;
        let arn = request.policy_arn(tenant)?;
        check_there(tenant, &arn)?;
        Ok(json!({ "arn": arn, "document": tenant.managed_document(&arn) }))
    }

    async fn policy_delete(self: &Arc<Self>, request: Request) -> Result<Value, IamError> {
        self.change(move |iam, draft| {
            let tenant = Arc::clone(request.tenant(iam, &draft.state)?);
            let arn = request.policy_arn(&tenant)?;
            builtin::refuse_change(&arn)?;
            let policy = tenant.policy(&arn)?;
            if super::api::uses(&tenant, &arn) != (0, 0) {
                return Err(IamError::delete_conflict("The policy is attached to somebody: detach it first."));
            }
            draft.remove_policy(&policy.named)?;
            Ok(json!({ "deleted": arn }))
        })
        .await
    }

    async fn policy_attach(self: &Arc<Self>, request: Request, on: bool) -> Result<Value, IamError> {
        self.change(move |iam, draft| {
            let tenant = Arc::clone(request.tenant(iam, &draft.state)?);
            let arn = request.policy_arn(&tenant)?;
            if on {
                check_there(&tenant, &arn)?;
            }
            let change =
                |policies: &mut Policies| if on { attach(policies, arn.clone()) } else { detach(policies, &arn) };
            match (&request.user, &request.group, &request.role) {
                (Some(name), None, None) => {
                    let mut user = User::clone(tenant.user(name)?);
                    change(&mut user.policies)?;
                    draft.put_user(user, None)?;
                }
                (None, Some(name), None) => {
                    let mut group = Group::clone(tenant.group(name)?);
                    change(&mut group.policies)?;
                    draft.put_group(group, None)?;
                }
                (None, None, Some(name)) => {
                    let mut role = Role::clone(tenant.role(name)?);
                    change(&mut role.policies)?;
                    draft.put_role(role, None)?;
                }
                _ => return Err(IamError::validation("Name one user, one group or one role.")),
            }
            Ok(json!({ "arn": arn, "attached": on }))
        })
        .await
    }
}

fn check_names(display_name: &str, email: Option<&str>) -> Result<(), IamError> {
    let is_address = |email: &str| email.len() <= TEXT_MAX && email.contains('@');
    if (1..=TEXT_MAX).contains(&display_name.len()) && email.is_none_or(is_address) {
        return Ok(());
    }
    Err(IamError::validation("A display name has 1 to 256 bytes; so has an address, and an '@'."))
}

/// What clients can put into a signature's credential, and long enough to be a secret.
fn check_pair(access_key: &str, secret_key: &str) -> Result<(), IamError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(3..=128).contains(&access_key.len()) || !access_key.bytes().all(plain) {
        return Err(IamError::validation("An access key has 3 to 128 letters, digits, '-', '_' or '.'."));
    }
    if !(8..=256).contains(&secret_key.len()) || !secret_key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(IamError::validation("A secret key has 8 to 256 printable ASCII characters without spaces."));
    }
    Ok(())
}

fn account_json(doc: &AccountDoc) -> Value {
    json!({
        "id": doc.id,
        "canonical_id": doc.canonical_id,
        "display_name": doc.display_name,
        "email": doc.email,
        "quota": doc.quota,
    })
}

fn user_json(tenant: &Tenant, state: &State, user: &User) -> Value {
    let groups = user.groups.iter().filter_map(|id| tenant.group_by_id(id)).map(|group| group.named.name.clone());
    let keys = state.keys_of(&tenant.doc.id, Some(&user.named.id));
    json!({
        "account": tenant.doc.id,
        "name": user.named.name,
        "id": user.named.id,
        "arn": user.named.arn("user"),
        "groups": groups.collect::<Vec<_>>(),
        "inline_policies": user.policies.inline.keys().collect::<Vec<_>>(),
        "attached_policies": user.policies.attached,
        "quota": user.quota,
        "access_keys": keys.iter().map(|key| key.doc.access_key.clone()).collect::<Vec<_>>(),
    })
}

/// What the user is called whose key it is; nothing for the account's own.
fn user_name<'a>(tenant: &'a Tenant, doc: &KeyDoc) -> Option<&'a str> {
    tenant.user_by_id(doc.user.as_deref()?).map(|user| user.named.name.as_str())
}

fn key_json(doc: &KeyDoc, user: Option<&str>) -> Value {
    json!({
        "access_key": doc.access_key,
        "account": doc.account,
        "user": user,
        "active": doc.active,
        "service_account": doc.policy.is_some(),
        "description": doc.description,
    })
}
