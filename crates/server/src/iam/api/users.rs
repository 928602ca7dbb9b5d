//! Users: create, get, list, update, delete, tags.

use std::sync::Arc;

use super::super::error::IamError;
use super::super::model::{Named, Policies, Quota, User};
use super::super::{Iam, ids};
use super::entity::{self, change};
use super::{Ask, Reply, add_tags, names, remove_tags, tags_page, tenant, write_tags};
use crate::credentials::Principal;
use crate::s3::{Xml, date};

/// Most users of an account, as on AWS.
pub(in crate::iam) const USERS_MAX: usize = 5000;
/// Longest name.
pub(in crate::iam) const NAME_MAX: usize = 64;

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
    entity::authorize_new::<User>(ask, "iam:CreateUser", &path, &name)?;
    let boundary = ask.form.get("PermissionsBoundary").map(str::to_owned);
    let user = iam.change(move |iam, draft| {
        let mut user = new_user(iam, &account, &name, path, tags);
        let tenant = draft.state.tenant(&account)?;
        entity::check_new::<User>(tenant, &name, USERS_MAX)?;
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
    let user = entity::allowed::<User>(&tenant, ask, "iam:GetUser", name)?;
    Ok(Xml::fragment(|xml| xml.element("User", |xml| write(xml, &user, true))))
}

pub(super) async fn list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    entity::list::<User>(iam, ask, "iam:ListUsers", |xml, user| write(xml, user, false))
}

pub(super) async fn update(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    entity::rename::<User>(iam, ask, "iam:UpdateUser", NAME_MAX).await
}

pub(super) async fn delete(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    entity::delete::<User, _>(iam, ask, "iam:DeleteUser", |user, state, _| {
        let has_keys = !state.keys_of(&user.named.account, Some(&user.named.id)).is_empty();
        match has_keys {
            true => Some("delete access keys"),
            false if !user.groups.is_empty() => Some("remove users from group"),
            false => None,
        }
    })
    .await
}

pub(super) async fn list_tags(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let (_, user) = entity::asked::<User>(iam, ask, "iam:ListUserTags")?;
    Ok(tags_page(&user.named.tags))
}

pub(super) async fn tag(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let tags = ask.form.tags("Tags")?;
    change(iam, ask, "iam:TagUser", move |user: &mut User, _| add_tags(&mut user.named.tags, tags)).await
}

pub(super) async fn untag(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let keys = ask.form.list("TagKeys");
    change(iam, ask, "iam:UntagUser", move |user: &mut User, _| {
        remove_tags(&mut user.named.tags, &keys);
        Ok(())
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
