//! What conditions may look at in requests to IAM and STS.

use std::fmt::Write;

use gabion_policy::Context;

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
    if let Some(issued_ms) = caller.issued_ms {
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
