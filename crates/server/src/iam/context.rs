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

/// The keys of a request to IAM beside them: what it brings, and what whoever it is about has already.
///
/// Source: AWS, "Actions, resources, and condition keys for AWS Identity and Access Management".
pub(crate) fn add_of_iam(context: &mut Context, action: &str, form: &Form, tenant: Option<&Tenant>) {
    let Some(action) = action.strip_prefix("iam:") else { return };
    // What is malformed is refused by the action.
    for (key, value) in form.tags("Tags").unwrap_or_default() {
        context.add(&format!("aws:RequestTag/{key}"), value);
        context.add("aws:TagKeys", key);
    }
    for key in form.list("TagKeys") {
        context.add("aws:TagKeys", key);
    }
    if action.starts_with("Attach") || action.starts_with("Detach") {
        context.add_optional("iam:PolicyARN", form.get("PolicyArn"));
    }
    let is_of_group = form.get("GroupName").is_some();
    let named = |name| form.get(name).filter(|_| !is_of_group);
    let user = tenant.zip(named("UserName")).and_then(|(tenant, name)| tenant.user(name).ok());
    let role = tenant.zip(named("RoleName")).and_then(|(tenant, name)| tenant.role(name).ok());
    let entity = user.map(|user| (&user.named, &user.policies)).or(role.map(|role| (&role.named, &role.policies)));
    if let Some((named, _)) = entity.filter(|_| !action.starts_with("Create") || action == "CreateAccessKey") {
        for (key, value) in &named.tags {
            context.add(&format!("iam:ResourceTag/{key}"), value.clone());
            context.add(&format!("aws:ResourceTag/{key}"), value.clone());
        }
    }
    if BOUNDED.contains(&action) {
        let present = entity.and_then(|(_, policies)| policies.boundary.as_deref());
        context.add_optional("iam:PermissionsBoundary", form.get("PermissionsBoundary").or(present));
    }
}

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
