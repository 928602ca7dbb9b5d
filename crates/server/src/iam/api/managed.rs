//! Managed policies on users, groups and roles: attach, detach, list; and boundaries, which are managed policies, too.

use std::sync::Arc;

use super::super::error::IamError;
use super::super::model::Policies;
use super::super::state::Tenant;
use super::super::{Iam, builtin};
use super::{Ask, Reply, groups, page, roles, tenant, users};
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

/// What a change does to whoever is named.
type Change = Box<dyn FnOnce(&mut Policies) -> Result<(), IamError> + Send>;

async fn change_user(iam: &Arc<Iam>, ask: &Ask, action: &str, change: Change) -> Result<Reply, IamError> {
    users::change(iam, ask, action, move |user| change(&mut user.policies)).await
}

async fn change_group(iam: &Arc<Iam>, ask: &Ask, action: &str, change: Change) -> Result<Reply, IamError> {
    groups::change(iam, ask, action, move |group| change(&mut group.policies)).await
}

async fn change_role(iam: &Arc<Iam>, ask: &Ask, action: &str, change: Change) -> Result<Reply, IamError> {
    roles::change(iam, ask, action, move |role, _| change(&mut role.policies)).await
}

/// The policy of a request, which is there now. Were it deleted at this moment, it would deny everything; DeletePolicy looks for those it is attached to.
fn policy_of(iam: &Arc<Iam>, ask: &Ask, parameter: &str) -> Result<String, IamError> {
    let arn = ask.form.required(parameter)?;
    let (_, tenant) = tenant(iam, ask)?;
    check_there(&tenant, arn)?;
    Ok(arn.to_owned())
}

macro_rules! of {
    ($element:literal, $module:ident, $find:ident, $change:ident,
     $attach:ident $attach_action:literal, $detach:ident $detach_action:literal, $list:ident $list_action:literal) => {
        pub(super) async fn $attach(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let arn = policy_of(iam, ask, "PolicyArn")?;
            $change(iam, ask, $attach_action, Box::new(move |policies| attach(policies, arn))).await
        }

        pub(super) async fn $detach(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let arn = ask.form.required("PolicyArn")?.to_owned();
            $change(iam, ask, $detach_action, Box::new(move |policies| detach(policies, &arn))).await
        }

        pub(super) async fn $list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
            let name = ask.form.required($element)?;
            let (_, tenant) = tenant(iam, ask)?;
            let found = tenant.$find(name);
            ask.authorize($list_action, &$module::arn(ask, found.as_ref().ok().map(|found| &***found), name))?;
            list(ask, &found?.policies.attached)
        }
    };
}

of!("UserName", users, user, change_user,
    attach_user "iam:AttachUserPolicy", detach_user "iam:DetachUserPolicy", list_user "iam:ListAttachedUserPolicies");
of!("GroupName", groups, group, change_group,
    attach_group "iam:AttachGroupPolicy", detach_group "iam:DetachGroupPolicy", list_group "iam:ListAttachedGroupPolicies");
of!("RoleName", roles, role, change_role,
    attach_role "iam:AttachRolePolicy", detach_role "iam:DetachRolePolicy", list_role "iam:ListAttachedRolePolicies");

fn bounded(arn: Option<String>) -> Change {
    Box::new(move |policies| match (&arn, &policies.boundary) {
        (None, None) => Err(IamError::not_found("There is no permissions boundary.")),
        _ => {
            policies.boundary = arn;
            Ok(())
        }
    })
}

pub(super) async fn put_user_boundary(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let arn = policy_of(iam, ask, "PermissionsBoundary")?;
    change_user(iam, ask, "iam:PutUserPermissionsBoundary", bounded(Some(arn))).await
}

pub(super) async fn delete_user_boundary(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    change_user(iam, ask, "iam:DeleteUserPermissionsBoundary", bounded(None)).await
}

pub(super) async fn put_role_boundary(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let arn = policy_of(iam, ask, "PermissionsBoundary")?;
    change_role(iam, ask, "iam:PutRolePermissionsBoundary", bounded(Some(arn))).await
}

pub(super) async fn delete_role_boundary(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    change_role(iam, ask, "iam:DeleteRolePermissionsBoundary", bounded(None)).await
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
