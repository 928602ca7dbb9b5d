//! Inline policies of users, groups and roles: put, get, list, delete. They go with whom they are of.

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_policy::limits::{GROUP_POLICY_BYTES_MAX, ROLE_POLICY_BYTES_MAX, USER_POLICY_BYTES_MAX};

use super::super::Iam;
use super::super::error::IamError;
use super::names::{Kind, check_document, weight};
use super::{Ask, Reply, encoded, groups, names, page, roles, tenant, users};
use crate::s3::Xml;

const NAME_MAX: usize = 128;

type Inline = BTreeMap<String, String>;

/// The name and the document of a request, checked; `max` is for all documents of the one whom it is put to.
struct New {
    name: String,
    document: String,
    max: usize,
}

impl New {
    fn of(ask: &Ask, max: usize) -> Result<Self, IamError> {
        let name = ask.form.required("PolicyName")?.to_owned();
        names::check("PolicyName", &name, NAME_MAX)?;
        let document = ask.form.required("PolicyDocument")?.to_owned();
        Ok(Self { name, document, max })
    }

    fn put(self, what: &str, inline: &mut Inline) -> Result<(), IamError> {
        let Self { name, document, max } = self;
        check_document(&document, Kind::Identity, max)?;
        inline.insert(name, document);
        if inline.values().map(|document| weight(document)).sum::<usize>() > max {
            return Err(IamError::limit(format!("Maximum policy size of {max} bytes exceeded for {what}")));
        }
        Ok(())
    }
}

fn no_policy(what: &str, name: &str) -> IamError {
    IamError::not_found(format!("The {what} policy with name {name} cannot be found."))
}

fn delete(what: &'static str, name: String) -> impl FnOnce(&mut Inline) -> Result<(), IamError> + Send + 'static {
    move |inline| match inline.remove(&name) {
        Some(_) => Ok(()),
        None => Err(no_policy(what, &name)),
    }
}

fn get(ask: &Ask, what: &str, element: &str, owner: &str, inline: &Inline) -> Result<Reply, IamError> {
    let name = ask.form.required("PolicyName")?;
    let document = inline.get(name).ok_or_else(|| no_policy(what, name))?;
    Ok(Xml::fragment(|xml| {
        xml.text(element, owner);
        xml.text("PolicyName", name);
        xml.text("PolicyDocument", encoded(document));
    }))
}

fn list(ask: &Ask, inline: &Inline) -> Result<Reply, IamError> {
    page(&ask.form, inline.keys().map(|name| (name.as_str(), name)), "PolicyNames", |xml, name| xml.escaped(name))
}

macro_rules! of {
    ($what:literal, $element:literal, $module:ident, $find:ident, $max:expr, $change:expr,
     $put:ident $put_action:literal, $get:ident $get_action:literal, $list:ident $list_action:literal, $delete:ident $delete_action:literal) => {
        pub(super) async fn $put(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let new = New::of(ask, $max)?;
            $change(iam, ask, $put_action, Box::new(move |inline: &mut Inline| new.put($what, inline))).await
        }

        pub(super) async fn $delete(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let name = ask.form.required("PolicyName")?.to_owned();
            $change(iam, ask, $delete_action, Box::new(delete($what, name))).await
        }

        pub(super) async fn $get(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let name = ask.form.required($element)?;
            let (_, tenant) = tenant(iam, ask)?;
            let found = tenant.$find(name);
            ask.authorize($get_action, &$module::arn(ask, found.as_ref().ok().map(|found| &***found), name))?;
            let found = found?;
            get(ask, $what, $element, &found.named.name, &found.policies.inline)
        }

        pub(super) async fn $list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let name = ask.form.required($element)?;
            let (_, tenant) = tenant(iam, ask)?;
            let found = tenant.$find(name);
            ask.authorize($list_action, &$module::arn(ask, found.as_ref().ok().map(|found| &***found), name))?;
            list(ask, &found?.policies.inline)
        }
    };
}

type Change = Box<dyn FnOnce(&mut Inline) -> Result<(), IamError> + Send>;

async fn change_user(iam: &Arc<Iam>, ask: &Ask, action: &str, change: Change) -> Result<Reply, IamError> {
    users::change(iam, ask, action, move |user| change(&mut user.policies.inline)).await
}

async fn change_group(iam: &Arc<Iam>, ask: &Ask, action: &str, change: Change) -> Result<Reply, IamError> {
    groups::change(iam, ask, action, move |group| change(&mut group.policies.inline)).await
}

async fn change_role(iam: &Arc<Iam>, ask: &Ask, action: &str, change: Change) -> Result<Reply, IamError> {
    roles::change(iam, ask, action, move |role, _| change(&mut role.policies.inline)).await
}

of!("user", "UserName", users, user, USER_POLICY_BYTES_MAX, change_user,
    put_user "iam:PutUserPolicy", get_user "iam:GetUserPolicy", list_user "iam:ListUserPolicies", delete_user "iam:DeleteUserPolicy");
of!("group", "GroupName", groups, group, GROUP_POLICY_BYTES_MAX, change_group,
    put_group "iam:PutGroupPolicy", get_group "iam:GetGroupPolicy", list_group "iam:ListGroupPolicies", delete_group "iam:DeleteGroupPolicy");
of!("role", "RoleName", roles, role, ROLE_POLICY_BYTES_MAX, change_role,
    put_role "iam:PutRolePolicy", get_role "iam:GetRolePolicy", list_role "iam:ListRolePolicies", delete_role "iam:DeleteRolePolicy");
