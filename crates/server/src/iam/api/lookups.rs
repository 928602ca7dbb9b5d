//! What tools ask for before they delete or change something: who uses a policy, when a key was used, and lists of what nobody has here (passwords, second
//! factors, certificates, instance profiles), which are empty so that their deletions go on.

use std::sync::Arc;

use super::super::error::IamError;
use super::super::model::{Named, Policies, Role, User};
use super::super::{Iam, builtin};
use super::{Ask, Reply, entity, tenant};
use crate::s3::Xml;

/// A kind of those that a policy may be attached to.
struct Users<'a> {
    filter: &'static str,
    list: &'static str,
    name: &'static str,
    id: &'static str,
    all: Vec<(&'a str, &'a str, &'a Policies)>,
}

pub(super) async fn entities_for_policy(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let arn = ask.form.required("PolicyArn")?;
    ask.authorize("iam:ListEntitiesForPolicy", arn)?;
    let (_, tenant) = tenant(iam, ask)?;
    if builtin::find(arn).is_none() {
        tenant.policy(arn)?;
    }
    let bounds = match ask.form.get("PolicyUsageFilter") {
        None | Some("PermissionsPolicy") => false,
        Some("PermissionsBoundary") => true,
        Some(_) => return Err(IamError::validation("PolicyUsageFilter is PermissionsPolicy or PermissionsBoundary.")),
    };
    let filter = ask.form.get("EntityFilter");
    if filter
        .is_some_and(|filter| !["User", "Role", "Group", "LocalManagedPolicy", "AWSManagedPolicy"].contains(&filter))
    {
        return Err(IamError::validation("EntityFilter is User, Role, Group, LocalManagedPolicy or AWSManagedPolicy."));
    }
    let groups = tenant.groups.values().map(|group| (&group.named, &group.policies));
    let users = tenant.users.values().map(|user| (&user.named, &user.policies));
    let roles = tenant.roles.values().map(|role| (&role.named, &role.policies));
    let kinds = [
        Users {
            filter: "Group",
            list: "PolicyGroups",
            name: "GroupName",
            id: "GroupId",
            all: groups.map(of).collect(),
        },
        Users { filter: "User", list: "PolicyUsers", name: "UserName", id: "UserId", all: users.map(of).collect() },
        Users { filter: "Role", list: "PolicyRoles", name: "RoleName", id: "RoleId", all: roles.map(of).collect() },
    ];
    let uses = |policies: &Policies| match bounds {
        true => policies.boundary.as_deref() == Some(arn),
        false => policies.attached.iter().any(|known| known == arn),
    };
    Ok(Xml::fragment(|xml| {
        for kind in &kinds {
            let wanted = filter.is_none_or(|filter| filter == kind.filter);
            xml.element(kind.list, |xml| {
                for (name, id, _) in kind.all.iter().filter(|(_, _, policies)| wanted && uses(policies)) {
                    xml.element("member", |xml| {
                        xml.text(kind.name, name);
                        xml.text(kind.id, id);
                    });
                }
            });
        }
        xml.value("IsTruncated", false);
    }))
}

fn of<'a>((named, policies): (&'a Named, &'a Policies)) -> (&'a str, &'a str, &'a Policies) {
    (&named.name, &named.id, policies)
}

/// When a key was used is not written down: it is as of one that never was.
pub(super) async fn key_last_used(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let access_key = ask.form.required("AccessKeyId")?;
    let (state, tenant) = tenant(iam, ask)?;
    let key = state.keys.get(access_key).filter(|key| key.doc.account == ask.account());
    let user = key.and_then(|key| key.doc.user.as_deref()).and_then(|id| tenant.user_by_id(id));
    let arn = user.map_or_else(|| tenant.account.root_arn(), |user| user.named.arn("user"));
    ask.authorize("iam:GetAccessKeyLastUsed", &arn)?;
    if key.is_none() {
        return Err(IamError::not_found(format!("The Access Key with id {access_key} cannot be found.")));
    }
    Ok(Xml::fragment(|xml| {
        xml.optional("UserName", user.map(|user| &user.named.name));
        xml.element("AccessKeyLastUsed", |xml| {
            xml.text("Region", "N/A");
            xml.text("ServiceName", "N/A");
        });
    }))
}

/// A list of something that nobody has.
fn none(list: &str) -> Reply {
    Xml::fragment(|xml| {
        xml.element(list, |_| {});
        xml.value("IsTruncated", false);
    })
}

/// Of the user that is named, or of whoever asks.
fn none_of_user(iam: &Iam, ask: &Ask, action: &str, list: &str) -> Result<Reply, IamError> {
    let (_, tenant) = tenant(iam, ask)?;
    match ask.form.get("UserName") {
        Some(name) => entity::allowed::<User>(&tenant, ask, action, name).map(drop)?,
        None => ask.authorize(action, &ask.caller.arn())?,
    }
    Ok(none(list))
}

pub(super) async fn instance_profiles(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    entity::asked::<Role>(iam, ask, "iam:ListInstanceProfilesForRole")?;
    Ok(none("InstanceProfiles"))
}

pub(super) async fn aliases(_: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    ask.authorize("iam:ListAccountAliases", "*")?;
    Ok(none("AccountAliases"))
}

pub(super) async fn second_factors(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    none_of_user(iam, ask, "iam:ListMFADevices", "MFADevices")
}

pub(super) async fn ssh_keys(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    none_of_user(iam, ask, "iam:ListSSHPublicKeys", "SSHPublicKeys")
}

pub(super) async fn certificates(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    none_of_user(iam, ask, "iam:ListSigningCertificates", "Certificates")
}

pub(super) async fn service_credentials(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    none_of_user(iam, ask, "iam:ListServiceSpecificCredentials", "ServiceSpecificCredentials")
}

async fn no_password(iam: &Arc<Iam>, ask: &Ask, action: &str) -> Result<Reply, IamError> {
    let (_, user) = entity::asked::<User>(iam, ask, action)?;
    Err(IamError::not_found(format!("Login Profile for User {} cannot be found.", user.named.name)))
}

pub(super) async fn password(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    no_password(iam, ask, "iam:GetLoginProfile").await
}

pub(super) async fn delete_password(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    no_password(iam, ask, "iam:DeleteLoginProfile").await
}

pub(super) async fn password_policy(_: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    ask.authorize("iam:GetAccountPasswordPolicy", "*")?;
    Err(IamError::not_found(format!("The Password Policy with domain name {} cannot be found.", ask.account())))
}
