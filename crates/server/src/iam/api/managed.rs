//! Managed policies on users, groups and roles: attach, detach, list; and boundaries, which are managed policies, too.

use std::sync::Arc;

use super::super::error::IamError;
use super::super::model::{Group, Policies, Role, User};
use super::super::state::Tenant;
use super::super::{Iam, builtin};
use super::entity::{Entity, asked, change};
use super::{Ask, Reply, page};
use crate::s3::Xml;

/// Most managed policies of one user, group or role (AWS: 10, at most 20 when asked for).
const ATTACHED_MAX: usize = 20;

/// That a policy may be attached in this account.
///
/// # Errors
/// `NoSuchEntity`.
pub(in crate::iam) fn check_there(tenant: &Tenant, arn: &str) -> Result<(), IamError> {
    match tenant.managed_document(arn) {
        Some(_) => Ok(()),
        None => Err(IamError::not_found(format!("Policy {arn} does not exist or is not attachable."))),
    }
}

/// Attaches one; once is enough.
///
/// # Errors
/// `LimitExceeded`.
pub(in crate::iam) fn attach(policies: &mut Policies, arn: String) -> Result<(), IamError> {
    if policies.attached.contains(&arn) {
        return Ok(());
    }
    if policies.attached.len() >= ATTACHED_MAX {
        return Err(IamError::limit(format!("Cannot exceed quota for attached policies: {ATTACHED_MAX}")));
    }
    policies.attached.push(arn);
    Ok(())
}

/// Takes one off.
///
/// # Errors
/// `NoSuchEntity`.
pub(in crate::iam) fn detach(policies: &mut Policies, arn: &str) -> Result<(), IamError> {
    let before = policies.attached.len();
    policies.attached.retain(|attached| attached != arn);
    if policies.attached.len() == before {
        return Err(IamError::not_found(format!("Policy {arn} was not found.")));
    }
    Ok(())
}

fn list(ask: &Ask, attached: &[String]) -> Result<Reply, IamError> {
    let prefix = ask.form.get("PathPrefix").unwrap_or("/");
    let path = |arn: &str| {
        arn.split_once(":policy").and_then(|(_, path)| path.rsplit_once('/')).map(|(path, _)| format!("{path}/"))
    };
    let matching = |arn: &&String| path(arn).is_some_and(|path| path.starts_with(prefix));
    let mut arns: Vec<&str> = attached.iter().filter(matching).map(String::as_str).collect();
    arns.sort_unstable();
    page(&ask.form, arns.into_iter().map(|arn| (arn, arn)), "AttachedPolicies", |xml, arn| {
        xml.text("PolicyName", arn.rsplit('/').next().unwrap_or(arn));
        xml.text("PolicyArn", arn);
    })
}

macro_rules! of {
    ($entity:ident, $attach:ident $attach_action:literal, $detach:ident $detach_action:literal, $list:ident $list_action:literal) => {
        pub(super) async fn $attach(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let arn = ask.form.required("PolicyArn")?.to_owned();
            let attach = move |entity: &mut $entity, tenant: &Tenant| {
                check_there(tenant, &arn)?;
                attach(&mut entity.policies, arn)
            };
            change(iam, ask, $attach_action, attach).await
        }

        pub(super) async fn $detach(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let arn = ask.form.required("PolicyArn")?.to_owned();
            let detach = move |entity: &mut $entity, _: &Tenant| detach(&mut entity.policies, &arn);
            change(iam, ask, $detach_action, detach).await
        }

        pub(super) async fn $list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let (_, found) = asked::<$entity>(iam, ask, $list_action)?;
            list(ask, &found.policies.attached)
        }
    };
}

of!(User,
    attach_user "iam:AttachUserPolicy", detach_user "iam:DetachUserPolicy", list_user "iam:ListAttachedUserPolicies");
of!(Group,
    attach_group "iam:AttachGroupPolicy", detach_group "iam:DetachGroupPolicy", list_group "iam:ListAttachedGroupPolicies");
of!(Role,
    attach_role "iam:AttachRolePolicy", detach_role "iam:DetachRolePolicy", list_role "iam:ListAttachedRolePolicies");

/// Bounds the one that is named by a policy, or no more.
async fn bound<E: Entity>(iam: &Arc<Iam>, ask: &Ask, action: &str, arn: Option<String>) -> Result<Reply, IamError> {
    let bound = move |entity: &mut E, tenant: &Tenant| {
        let boundary = &mut entity.policies_mut().boundary;
        match &arn {
            None if boundary.is_none() => return Err(IamError::not_found("There is no permissions boundary.")),
            None => {}
            Some(arn) => check_there(tenant, arn)?,
        }
        *boundary = arn;
        Ok(())
    };
    change(iam, ask, action, bound).await
}

fn boundary_of(ask: &Ask) -> Result<Option<String>, IamError> {
    Ok(Some(ask.form.required("PermissionsBoundary")?.to_owned()))
}

pub(super) async fn put_user_boundary(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    bound::<User>(iam, ask, "iam:PutUserPermissionsBoundary", boundary_of(ask)?).await
}

pub(super) async fn delete_user_boundary(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    bound::<User>(iam, ask, "iam:DeleteUserPermissionsBoundary", None).await
}

pub(super) async fn put_role_boundary(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    bound::<Role>(iam, ask, "iam:PutRolePermissionsBoundary", boundary_of(ask)?).await
}

pub(super) async fn delete_role_boundary(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    bound::<Role>(iam, ask, "iam:DeleteRolePermissionsBoundary", None).await
}

/// The element of a boundary, if there is one.
pub(super) fn write_boundary(xml: &mut Xml, policies: &Policies) {
    if let Some(arn) = &policies.boundary {
        xml.element("PermissionsBoundary", |xml| {
            xml.text("PermissionsBoundaryType", "Policy");
            xml.text("PermissionsBoundaryArn", arn);
        });
    }
}

/// How many users, groups and roles a policy is attached to, and how many it bounds.
pub(in crate::iam) fn uses(tenant: &Tenant, arn: &str) -> (usize, usize) {
    let users = tenant.users.values().map(|user| &user.policies);
    let groups = tenant.groups.values().map(|group| &group.policies);
    let roles = tenant.roles.values().map(|role| &role.policies);
    users.chain(groups).chain(roles).fold((0, 0), |(attached, bounds), policies| {
        let is_attached = policies.attached.iter().any(|known| known == arn);
        (attached + usize::from(is_attached), bounds + usize::from(policies.boundary.as_deref() == Some(arn)))
    })
}

/// That a policy may be changed: it is not everybody's.
pub(super) fn own(arn: &str) -> Result<(), IamError> {
    builtin::refuse_change(arn)
}
