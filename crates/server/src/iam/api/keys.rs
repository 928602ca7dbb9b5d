//! Access keys of users and of the root: create, list, switch off, delete. A secret is shown once.

use std::sync::Arc;

use super::super::error::IamError;
use super::super::model::{KeyDoc, User};
use super::super::state::{State, Tenant};
use super::super::{Iam, ids};
use super::{Ask, Reply, entity, nothing, page, tenant};
use crate::credentials::{Principal, SecretKey};
use crate::s3::{Xml, date};

/// Most access keys of a user, as on AWS; service accounts do not count.
pub(in crate::iam) const KEYS_OF_USER_MAX: usize = 2;
/// Most access keys of an account's root.
pub(in crate::iam) const KEYS_OF_ROOT_MAX: usize = 100;

/// Whose keys are meant: the one who is named, or the one who asks.
struct Whose {
    /// Nothing: the root of the account.
    user_id: Option<String>,
    name: String,
}

/// Finds whose keys are meant, after who asks was found to be allowed that.
fn whose(tenant: &Tenant, ask: &Ask, action: &str) -> Result<Whose, IamError> {
    let name = match (ask.form.get("UserName"), &ask.caller.principal) {
        (Some(name), _) => name,
        (None, Principal::User { name, .. }) => name.as_str(),
        (None, Principal::Root) => {
            let arn = tenant.account.root_arn();
            ask.authorize(action, &arn)?;
            return Ok(Whose { user_id: None, name: String::new() });
        }
        (None, _) => {
            return Err(IamError::validation("Must specify userName when calling with non-User credentials"));
        }
    };
    let user = entity::allowed::<User>(tenant, ask, action, name)?;
    Ok(Whose { user_id: Some(user.named.id.clone()), name: user.named.name.clone() })
}

/// How many keys the owner may have at most, and has.
pub(in crate::iam) fn check_room(state: &State, account: &str, user: Option<&str>) -> Result<(), IamError> {
    let most = if user.is_some() { KEYS_OF_USER_MAX } else { KEYS_OF_ROOT_MAX };
    let lasting = state.keys_of(account, user).iter().filter(|key| key.doc.policy.is_none()).count();
    if lasting >= most {
        return Err(IamError::limit(format!("Cannot exceed quota for AccessKeysPerUser: {most}")));
    }
    Ok(())
}

/// A new key with its secret.
pub(in crate::iam) fn new_key(iam: &Iam, account: &str, user: Option<String>) -> (KeyDoc, SecretKey) {
    let (access_key, secret) = (ids::access_key(&*iam.entropy), ids::secret(&*iam.entropy));
    let doc = KeyDoc {
        secret: iam.sealer.seal(&access_key, &secret),
        access_key,
        account: account.to_owned(),
        user,
        active: true,
        created_ms: iam.now_ms(),
        policy: None,
        description: String::new(),
    };
    (doc, SecretKey::new(secret))
}

pub(super) async fn create(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let (_, tenant) = tenant(iam, ask)?;
    let Whose { user_id, name } = whose(&tenant, ask, "iam:CreateAccessKey")?;
    let account = ask.account().to_owned();
    let made = iam.change(move |iam, draft| {
        if let Some(id) = &user_id {
            let there = draft.state.tenant(&account)?.user_by_id(id).is_some();
            there.then_some(()).ok_or_else(|| IamError::no_entity("user", id))?;
        }
        check_room(&draft.state, &account, user_id.as_deref())?;
        let (doc, secret) = new_key(iam, &account, user_id);
        draft.put_key(doc.clone(), secret.clone());
        Ok((doc, secret))
    });
    let (doc, secret) = made.await?;
    Ok(Xml::fragment(|xml| {
        xml.element("AccessKey", |xml| {
            xml.text("UserName", &name);
            xml.text("AccessKeyId", &doc.access_key);
            xml.text("Status", "Active");
            xml.text("SecretAccessKey", secret.expose());
            xml.value("CreateDate", date::iso(doc.created_ms));
        });
    }))
}

pub(super) async fn list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let (state, tenant) = tenant(iam, ask)?;
    let Whose { user_id, name } = whose(&tenant, ask, "iam:ListAccessKeys")?;
    let keys = state.keys_of(ask.account(), user_id.as_deref());
    let keys = keys.iter().map(|key| (key.doc.access_key.as_str(), &key.doc));
    page(&ask.form, keys, "AccessKeyMetadata", |xml, key| {
        xml.text("UserName", &name);
        xml.text("AccessKeyId", &key.access_key);
        xml.text("Status", status(key));
        xml.value("CreateDate", date::iso(key.created_ms));
    })
}

fn status(key: &KeyDoc) -> &'static str {
    if key.active { "Active" } else { "Inactive" }
}

pub(super) async fn update(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let active = match ask.form.required("Status")? {
        "Active" => true,
        "Inactive" => false,
        _ => return Err(IamError::validation("Status must be Active or Inactive.")),
    };
    let (_, tenant) = tenant(iam, ask)?;
    let Whose { user_id, .. } = whose(&tenant, ask, "iam:UpdateAccessKey")?;
    let access_key = ask.form.required("AccessKeyId")?.to_owned();
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let key = find(&draft.state, &account, user_id.as_deref(), &access_key)?;
        let doc = KeyDoc { active, ..key.doc.clone() };
        let secret = key.secret.clone();
        draft.put_key(doc, secret);
        Ok(nothing())
    })
    .await
}

pub(super) async fn delete(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let (_, tenant) = tenant(iam, ask)?;
    let Whose { user_id, .. } = whose(&tenant, ask, "iam:DeleteAccessKey")?;
    let access_key = ask.form.required("AccessKeyId")?.to_owned();
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        find(&draft.state, &account, user_id.as_deref(), &access_key)?;
        draft.remove_key(&access_key);
        Ok(nothing())
    })
    .await
}

fn find<'a>(
    state: &'a State,
    account: &str,
    user: Option<&str>,
    access_key: &str,
) -> Result<&'a Arc<super::super::state::Key>, IamError> {
    let found = state.keys.get(access_key);
    let his = found.filter(|key| key.doc.account == account && key.doc.user.as_deref() == user);
    his.ok_or_else(|| IamError::not_found(format!("The Access Key with id {access_key} cannot be found.")))
}
