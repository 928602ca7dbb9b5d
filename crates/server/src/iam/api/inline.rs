//! Inline policies of users, groups and roles: put, get, list, delete. They go with whom they are of.

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_policy::limits::{GROUP_POLICY_BYTES_MAX, ROLE_POLICY_BYTES_MAX, USER_POLICY_BYTES_MAX};

use super::super::Iam;
use super::super::error::IamError;
use super::super::model::{Group, Role, User};
use super::super::state::Tenant;
use super::entity::{Entity, asked, change};
use super::names::{Kind, check_document, weight};
use super::{Ask, Reply, encoded, names, page};
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

fn delete(what: &str, name: &str, inline: &mut Inline) -> Result<(), IamError> {
    match inline.remove(name) {
        Some(_) => Ok(()),
        None => Err(no_policy(what, name)),
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
    ($entity:ident, $what:literal, $max:expr,
     $put:ident $put_action:literal, $get:ident $get_action:literal, $list:ident $list_action:literal, $delete:ident $delete_action:literal) => {
        pub(super) async fn $put(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let new = New::of(ask, $max)?;
            let put = move |entity: &mut $entity, _: &Tenant| new.put($what, &mut entity.policies.inline);
            change(iam, ask, $put_action, put).await
        }

        pub(super) async fn $delete(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let name = ask.form.required("PolicyName")?.to_owned();
            let delete = move |entity: &mut $entity, _: &Tenant| delete($what, &name, &mut entity.policies.inline);
            change(iam, ask, $delete_action, delete).await
        }

        pub(super) async fn $get(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let (_, found) = asked::<$entity>(iam, ask, $get_action)?;
            get(ask, $what, $entity::NAME, &found.named.name, &found.policies.inline)
        }

        pub(super) async fn $list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let (_, found) = asked::<$entity>(iam, ask, $list_action)?;
            list(ask, &found.policies.inline)
        }
    };
}

of!(User, "user", USER_POLICY_BYTES_MAX,
    put_user "iam:PutUserPolicy", get_user "iam:GetUserPolicy", list_user "iam:ListUserPolicies", delete_user "iam:DeleteUserPolicy");
of!(Group, "group", GROUP_POLICY_BYTES_MAX,
    put_group "iam:PutGroupPolicy", get_group "iam:GetGroupPolicy", list_group "iam:ListGroupPolicies", delete_group "iam:DeleteGroupPolicy");
of!(Role, "role", ROLE_POLICY_BYTES_MAX,
    put_role "iam:PutRolePolicy", get_role "iam:GetRolePolicy", list_role "iam:ListRolePolicies", delete_role "iam:DeleteRolePolicy");
