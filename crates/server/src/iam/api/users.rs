//! Users: create, get, list, update, delete, tags.

use std::sync::Arc;

use super::super::error::IamError;
use super::super::model::{Named, Policies, Quota, User};
use super::super::{Iam, ids};
use super::{Ask, Reply, add_tags, names, nothing, page, remove_tags, tags_page, tenant, write_tags};
use crate::credentials::Principal;
use crate::s3::{Xml, date};

/// Most users of an account, as on AWS.
pub(in crate::iam) const USERS_MAX: usize = 5000;
/// Longest name.
pub(in crate::iam) const NAME_MAX: usize = 64;

/// The resource that a user is, or will be.
pub(super) fn arn(ask: &Ask, user: Option<&User>, name: &str) -> String {
    match user {
        Some(user) => user.named.arn("user"),
        None => format!("arn:aws:iam::{}:user/{name}", ask.account()),
    }
}

/// Makes a user that is not there yet.
pub(in crate::iam) fn new_user(
    iam: &Iam,
    account: &str,
    name: &str,
    path: String,
    tags: crate::credentials::Tags,
) -> User {
    User {
        quota: Quota::default(),
        named: Named {
            account: account.to_owned(),
            id: ids::entity(&*iam.entropy, "AIDA"),
            name: name.to_owned(),
            path,
            created_ms: iam.now_ms(),
            tags,
        },
        policies: Policies::default(),
        groups: Vec::new(),
    }
}

pub(super) async fn create(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("UserName")?.to_owned();
    names::check("UserName", &name, NAME_MAX)?;
    let path = names::path(ask.form.get("Path"))?;
    let tags = ask.form.tags("Tags")?;
    let account = ask.account().to_owned();
    ask.authorize("iam:CreateUser", &format!("arn:aws:iam::{account}:user{path}{name}"))?;
    let boundary = ask.form.get("PermissionsBoundary").map(str::to_owned);
    let user = iam.change(move |iam, draft| {
        let mut user = new_user(iam, &account, &name, path, tags);
        let tenant = draft.state.tenant(&account)?;
        if tenant.users.contains_key(&name.to_lowercase()) {
            return Err(IamError::exists("User", &name));
        }
        if tenant.users.len() >= USERS_MAX {
            return Err(IamError::limit(format!("Cannot exceed quota for UsersPerAccount: {USERS_MAX}")));
        }
        if let Some(arn) = &boundary {
            super::managed::check_there(tenant, arn)?;
        }
        user.policies.boundary = boundary;
        draft.put_user(user.clone(), None)?;
        Ok(user)
    });
    let user = user.await?;
    Ok(Xml::fragment(|xml| xml.element("User", |xml| write(xml, &user, true))))
}

pub(super) async fn get(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let (_, tenant) = tenant(iam, ask)?;
    let name = match (ask.form.get("UserName"), &ask.caller.principal) {
        (Some(name), _) => name,
        (None, Principal::User { name, .. }) => name,
        (None, Principal::Root) => {
            return Ok(Xml::fragment(|xml| {
                xml.element("User", |xml| {
                    xml.text("UserId", &tenant.doc.id);
                    xml.text("Path", "/");
                    xml.text("UserName", &tenant.doc.display_name);
                    xml.text("Arn", tenant.account.root_arn());
                    xml.value("CreateDate", date::iso(tenant.doc.created_ms));
                });
            }));
        }
        (None, _) => {
            return Err(IamError::validation("Must specify userName when calling with non-User credentials"));
        }
    };
    let user = tenant.user(name);
    ask.authorize("iam:GetUser", &arn(ask, user.as_ref().ok().map(|user| &***user), name))?;
    let user = user?;
    Ok(Xml::fragment(|xml| xml.element("User", |xml| write(xml, user, true))))
}

pub(super) async fn list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let prefix = ask.form.get("PathPrefix").unwrap_or("/");
    ask.authorize("iam:ListUsers", &format!("arn:aws:iam::{}:user{prefix}", ask.account()))?;
    let (_, tenant) = tenant(iam, ask)?;
    let users = tenant.users.iter().filter(|(_, user)| user.named.path.starts_with(prefix));
    page(&ask.form, users.map(|(name, user)| (name.as_str(), user)), "Users", |xml, user| write(xml, user, false))
}

pub(super) async fn update(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("UserName")?.to_owned();
    let new_name = ask.form.get("NewUserName").map(str::to_owned);
    if let Some(new_name) = &new_name {
        names::check("NewUserName", new_name, NAME_MAX)?;
    }
    let new_path = ask.form.get("NewPath").map(|path| names::path(Some(path))).transpose()?;
    let (_, tenant) = tenant(iam, ask)?;
    let user = tenant.user(&name);
    ask.authorize("iam:UpdateUser", &arn(ask, user.as_ref().ok().map(|user| &***user), &name))?;
    if let Ok(user) = user {
        // AWS wants the right to do so on both names.
        let mut renamed = user.named.clone();
        renamed.name = new_name.clone().unwrap_or(renamed.name);
        renamed.path = new_path.clone().unwrap_or(renamed.path);
        ask.authorize("iam:UpdateUser", &renamed.arn("user"))?;
    }
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let tenant = draft.state.tenant(&account)?;
        let mut user = User::clone(tenant.user(&name)?);
        if let Some(new_name) = new_name {
            let (old, new) = (user.named.name.to_lowercase(), new_name.to_lowercase());
            if old != new && tenant.users.contains_key(&new) {
                return Err(IamError::exists("User", &new_name));
            }
            user.named.name = new_name;
        }
        user.named.path = new_path.unwrap_or(user.named.path);
        draft.put_user(user, Some(&name))?;
        Ok(nothing())
    })
    .await
}

pub(super) async fn delete(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("UserName")?.to_owned();
    let (_, tenant) = tenant(iam, ask)?;
    let user = tenant.user(&name);
    ask.authorize("iam:DeleteUser", &arn(ask, user.as_ref().ok().map(|user| &***user), &name))?;
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let user = Arc::clone(draft.state.tenant(&account)?.user(&name)?);
        let conflict = |what: &str| Err(IamError::delete_conflict(format!("Cannot delete entity, must {what} first.")));
        if !draft.state.keys_of(&account, Some(&user.named.id)).is_empty() {
            return conflict("delete access keys");
        }
        if !user.policies.inline.is_empty() {
            return conflict("delete policies");
        }
        if !user.policies.attached.is_empty() {
            return conflict("detach all policies");
        }
        if !user.groups.is_empty() {
            return conflict("remove users from group");
        }
        draft.remove_user(&user.named)?;
        Ok(nothing())
    })
    .await
}

pub(super) async fn list_tags(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("UserName")?;
    let (_, tenant) = tenant(iam, ask)?;
    let user = tenant.user(name);
    ask.authorize("iam:ListUserTags", &arn(ask, user.as_ref().ok().map(|user| &***user), name))?;
    Ok(tags_page(&user?.named.tags))
}

pub(super) async fn tag(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let tags = ask.form.tags("Tags")?;
    change(iam, ask, "iam:TagUser", move |user| add_tags(&mut user.named.tags, tags)).await
}

pub(super) async fn untag(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let keys = ask.form.list("TagKeys");
    change(iam, ask, "iam:UntagUser", move |user| {
        remove_tags(&mut user.named.tags, &keys);
        Ok(())
    })
    .await
}

/// Changes the user that is named.
pub(super) async fn change<F>(iam: &Arc<Iam>, ask: &Ask, action: &str, change: F) -> Result<Reply, IamError>
where
    F: FnOnce(&mut User) -> Result<(), IamError> + Send + 'static,
{
    let name = ask.form.required("UserName")?.to_owned();
    let (_, tenant) = tenant(iam, ask)?;
    let user = tenant.user(&name);
    ask.authorize(action, &arn(ask, user.as_ref().ok().map(|user| &***user), &name))?;
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let mut user = User::clone(draft.state.tenant(&account)?.user(&name)?);
        change(&mut user)?;
        draft.put_user(user, None)?;
        Ok(nothing())
    })
    .await
}

/// A user's elements.
pub(super) fn write(xml: &mut Xml, user: &User, tags: bool) {
    xml.text("Path", &user.named.path);
    xml.text("UserName", &user.named.name);
    xml.text("UserId", &user.named.id);
    xml.text("Arn", user.named.arn("user"));
    xml.value("CreateDate", date::iso(user.named.created_ms));
    super::managed::write_boundary(xml, &user.policies);
    if tags {
        write_tags(xml, &user.named.tags);
    }
}
