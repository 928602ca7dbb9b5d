//! What conditions may look at in requests to IAM and STS.

use std::fmt::Write;

use gabion_policy::Context;

use super::api::Form;
use super::state::Tenant;
use crate::credentials::Identity;
use crate::s3::date;

/// How a request came.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) address: std::net::IpAddr,
    pub(crate) tls: bool,
    pub(crate) user_agent: Option<String>,
    pub(crate) now_ms: u64,
    pub(crate) region: String,
}

/// The keys that every request has.
pub(crate) fn context(caller: &Identity, origin: &Origin) -> Context {
    let mut context = Context::default();
    context.add("aws:SourceIp", origin.address.to_canonical().to_string());
    context.add("aws:SecureTransport", origin.tls.to_string());
    context.add("aws:CurrentTime", date::iso(origin.now_ms).to_string());
    context.add("aws:EpochTime", (origin.now_ms / 1000).to_string());
    context.add("aws:RequestedRegion", origin.region.clone());
    context.add_optional("aws:UserAgent", origin.user_agent.clone());
    if caller.is_anonymous() {
        return context;
    }
    context.add("aws:PrincipalArn", caller.principal_arn());
    context.add("aws:PrincipalAccount", caller.account.id.clone());
    context.add("aws:PrincipalType", caller.principal_type());
    context.add("aws:userid", caller.user_id());
    context.add_optional("aws:username", caller.user_name());
    context.add("aws:ViaAWSService", "false");
    context.add("aws:PrincipalIsAWSService", "false");
    if let Some(issued_ms) = caller.issued_ms {
        context.add("aws:MultiFactorAuthPresent", "false");
        context.add("aws:TokenIssueTime", date::iso(issued_ms).to_string());
    }
    let mut name = String::new();
    for (key, value) in caller.tags() {
        name.clear();
        // Writing to a String can not fail.
        let _ = write!(name, "aws:PrincipalTag/{key}");
        context.add(&name, value.clone());
    }
    for (key, value) in &caller.federated {
        context.add(key, value.clone());
    }
    context
}

/// The keys of a request to IAM beside them: what it brings, and what whoever it is about has already. Only parameters count that the action takes: others change nothing, and must not
/// decide either.
///
/// Source: AWS, "Actions, resources, and condition keys for AWS Identity and Access Management".
pub(crate) fn add_of_iam(context: &mut Context, caller: &Identity, action: &str, form: &Form, tenant: Option<&Tenant>) {
    let Some(action) = action.strip_prefix("iam:") else { return };
    if TAGGED.contains(&action) {
        // What is malformed is refused by the action.
        for (key, value) in form.tags("Tags").unwrap_or_default() {
            context.add(&format!("aws:RequestTag/{key}"), value);
            context.add("aws:TagKeys", key);
        }
    }
    if action.starts_with("Untag") {
        for key in form.list("TagKeys") {
            context.add("aws:TagKeys", key);
        }
    }
    if action.starts_with("Attach") || action.starts_with("Detach") {
        context.add_optional("iam:PolicyARN", form.get("PolicyArn"));
    }
    let entity = tenant.and_then(|tenant| match Subject::of(action)? {
        Subject::User => {
            // Where nobody is named, who asks is meant.
            let name = form.get("UserName").map(str::to_owned).or_else(|| caller.user_name().map(str::to_owned))?;
            tenant.user(&name).ok().map(|user| (&user.named, &user.policies))
        }
        Subject::Role => tenant.role(form.get("RoleName")?).ok().map(|role| (&role.named, &role.policies)),
    });
    if let Some((named, _)) = entity.filter(|_| !action.starts_with("Create") || action == "CreateAccessKey") {
        for (key, value) in &named.tags {
            context.add(&format!("iam:ResourceTag/{key}"), value.clone());
            context.add(&format!("aws:ResourceTag/{key}"), value.clone());
        }
    }
    if BOUNDED.contains(&action) {
        // One that is there already under the name is not the one that is made.
        let present = entity.filter(|_| !action.starts_with("Create"));
        let present = present.and_then(|(_, policies)| policies.boundary.as_deref());
        let asked = form.get("PermissionsBoundary").filter(|_| GIVES_BOUNDARY.contains(&action));
        context.add_optional("iam:PermissionsBoundary", asked.or(present));
    }
}

/// Of which kind it is what an action is about, if that has tags and a boundary.
enum Subject {
    User,
    Role,
}

impl Subject {
    fn of(action: &str) -> Option<Self> {
        /// About users, though their names do not say so.
        const OF_USERS: [&str; 10] = [
            "CreateAccessKey",
            "DeleteAccessKey",
            "DeleteLoginProfile",
            "GetLoginProfile",
            "ListAccessKeys",
            "ListMFADevices",
            "ListSSHPublicKeys",
            "ListServiceSpecificCredentials",
            "ListSigningCertificates",
            "UpdateAccessKey",
        ];
        /// About none, or about a group.
        const OF_OTHERS: [&str; 4] = ["AddUserToGroup", "ListRoles", "ListUsers", "RemoveUserFromGroup"];
        if OF_OTHERS.contains(&action) {
            None
        } else if action.contains("Role") {
            Some(Self::Role)
        } else if action.contains("User") || OF_USERS.contains(&action) {
            Some(Self::User)
        } else {
            None
        }
    }
}

/// Actions that take tags.
const TAGGED: [&str; 7] =
    ["CreateOpenIDConnectProvider", "CreatePolicy", "CreateRole", "CreateUser", "TagPolicy", "TagRole", "TagUser"];

/// Actions that say what boundary there is to be.
const GIVES_BOUNDARY: [&str; 4] =
    ["CreateRole", "CreateUser", "PutRolePermissionsBoundary", "PutUserPermissionsBoundary"];

/// Actions that have the key `iam:PermissionsBoundary`.
const BOUNDED: [&str; 14] = [
    "AttachRolePolicy",
    "AttachUserPolicy",
    "CreateRole",
    "CreateUser",
    "DeleteRolePermissionsBoundary",
    "DeleteRolePolicy",
    "DeleteUserPermissionsBoundary",
    "DeleteUserPolicy",
    "DetachRolePolicy",
    "DetachUserPolicy",
    "PutRolePermissionsBoundary",
    "PutRolePolicy",
    "PutUserPermissionsBoundary",
    "PutUserPolicy",
];
