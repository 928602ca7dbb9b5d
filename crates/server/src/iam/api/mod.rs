//! IAM's API: actions by name, parameters from a form, answers in XML.
//!
//! Who asks was verified before ([`crate::auth::sigv4`]). Each action says what it does with which resource, and is refused unless the policies of who
//! asks allow that; all it can reach is in his own account.
//!
//! Source: AWS, "IAM API Reference".

mod account;
mod entity;
mod form;
mod groups;
mod inline;
mod keys;
mod lookups;
mod managed;
mod names;
mod policies;
mod providers;
mod roles;
mod users;

use std::sync::Arc;

use gabion_policy::{Context, Decision, Layers, decide};

use super::error::IamError;
use super::state::{State, Tenant};
use super::{Iam, sts};
use crate::credentials::Identity;
use crate::s3::Xml;

pub(crate) use form::Form;
pub(in crate::iam) use form::TAGS_MAX;
pub(in crate::iam) use keys::{check_room, new_key};
pub(in crate::iam) use managed::{attach, check_there, detach, uses};
pub(in crate::iam) use names::{Kind, check, check_document, path};
pub(in crate::iam) use policies::new_policy;
pub(in crate::iam) use users::new_user;

/// What an action answers with: the elements within its result.
pub(crate) type Reply = String;

/// A request whose sender is known, or who need not be.
pub(crate) struct Ask {
    /// What is asked for.
    pub(crate) form: Form,
    /// Who asks.
    pub(crate) caller: Arc<Identity>,
    /// What conditions may look at.
    pub(crate) context: Context,
}

impl Ask {
    /// The account in which things are done.
    pub(crate) fn account(&self) -> &str {
        &self.caller.account.id
    }

    /// Refuses what the policies of who asks do not allow.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(crate) fn authorize(&self, action: &str, resource: &str) -> Result<(), IamError> {
        let names = Names::of(&self.caller);
        let request = gabion_policy::Request { principal: names.principal(), action, resource, context: &self.context };
        let layers = Layers {
            identity: &self.caller.policies,
            boundary: self.caller.boundary.as_deref(),
            session: &self.caller.session_policies,
            owner: Some(self.account()),
            ..Layers::default()
        };
        match decide(&layers, &request) {
            Decision::Allow => Ok(()),
            Decision::Deny | Decision::Neutral => Err(IamError::denied(&self.caller.arn(), action, resource)),
        }
    }
}

impl Ask {
    /// Refuses only what a policy of who asks denies.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(crate) fn not_denied(&self, action: &str, resource: &str) -> Result<(), IamError> {
        let names = Names::of(&self.caller);
        let request = gabion_policy::Request { principal: names.principal(), action, resource, context: &self.context };
        let policies = self.caller.policies.iter().chain(&self.caller.session_policies).chain(&self.caller.boundary);
        for policy in policies {
            if policy.evaluate(&request) == Decision::Deny {
                return Err(IamError::denied(&self.caller.arn(), action, resource));
            }
        }
        Ok(())
    }
}

/// The names of an identity, as policies see them.
pub(crate) struct Names<'a> {
    identity: &'a Identity,
    arn: String,
    principal_arn: String,
}

impl<'a> Names<'a> {
    pub(crate) fn of(identity: &'a Identity) -> Self {
        Self { identity, arn: identity.arn(), principal_arn: identity.principal_arn() }
    }

    pub(crate) fn principal(&self) -> gabion_policy::Principal<'_> {
        use crate::credentials::Principal;
        let account = self.identity.account.id.as_str();
        let canonical_id = self.identity.account.canonical_id.as_str();
        match &self.identity.principal {
            Principal::Anonymous => gabion_policy::Principal::Anonymous,
            Principal::Root => gabion_policy::Principal::Root { account, canonical_id },
            Principal::User { id, .. } => gabion_policy::Principal::User { account, canonical_id, arn: &self.arn, id },
            Principal::AssumedRole { id, .. } => gabion_policy::Principal::Session {
                account,
                canonical_id,
                role_arn: &self.principal_arn,
                arn: &self.arn,
                id,
            },
        }
    }
}

/// The state as it is now, and the account of who asks.
fn tenant(iam: &Iam, ask: &Ask) -> Result<(Arc<State>, Arc<Tenant>), IamError> {
    let state = iam.state.load_full();
    let tenant = Arc::clone(state.tenant(ask.account())?);
    Ok((state, tenant))
}

macro_rules! actions {
    ($($service:ident { $($name:ident => $run:path,)* })*) => {
        /// The name of an action that there is, with its service before it.
        pub(crate) fn action_name(service: &str, action: &str) -> Option<&'static str> {
            match (service, action) {
                $($((stringify!($service), stringify!($name)) => {
                    Some(concat!(stringify!($service), ":", stringify!($name)))
                })*)*
                _ => None,
            }
        }

        impl Iam {
            /// Does what is asked for, by its name with its service before it.
            ///
            /// # Errors
            /// With what the client is told.
            pub(crate) async fn run(self: &Arc<Self>, action: &str, ask: &Ask) -> Result<Reply, IamError> {
                match action {
                    $($(concat!(stringify!($service), ":", stringify!($name)) => Box::pin($run(self, ask)).await,)*)*
                    _ => Err(IamError::sender("InvalidAction", "Could not find operation")),
                }
            }
        }
    };
}

actions! {
    iam {
        AddClientIDToOpenIDConnectProvider => providers::add_client,
        AddUserToGroup => groups::add_user,
        AttachGroupPolicy => managed::attach_group,
        AttachRolePolicy => managed::attach_role,
        AttachUserPolicy => managed::attach_user,
        CreateAccessKey => keys::create,
        CreateGroup => groups::create,
        CreateOpenIDConnectProvider => providers::create,
        CreatePolicy => policies::create,
        CreatePolicyVersion => policies::create_version,
        CreateRole => roles::create,
        CreateUser => users::create,
        DeleteAccessKey => keys::delete,
        DeleteGroup => groups::delete,
        DeleteGroupPolicy => inline::delete_group,
        DeleteLoginProfile => lookups::delete_password,
        DeleteOpenIDConnectProvider => providers::delete,
        DeletePolicy => policies::delete,
        DeletePolicyVersion => policies::delete_version,
        DeleteRole => roles::delete,
        DeleteRolePermissionsBoundary => managed::delete_role_boundary,
        DeleteRolePolicy => inline::delete_role,
        DeleteUser => users::delete,
        DeleteUserPermissionsBoundary => managed::delete_user_boundary,
        DeleteUserPolicy => inline::delete_user,
        DetachGroupPolicy => managed::detach_group,
        DetachRolePolicy => managed::detach_role,
        DetachUserPolicy => managed::detach_user,
        GetAccessKeyLastUsed => lookups::key_last_used,
        GetAccountPasswordPolicy => lookups::password_policy,
        GetAccountSummary => account::summary,
        GetGroup => groups::get,
        GetGroupPolicy => inline::get_group,
        GetLoginProfile => lookups::password,
        GetOpenIDConnectProvider => providers::get,
        GetPolicy => policies::get,
        GetPolicyVersion => policies::get_version,
        GetRole => roles::get,
        GetRolePolicy => inline::get_role,
        GetUser => users::get,
        GetUserPolicy => inline::get_user,
        ListAccessKeys => keys::list,
        ListAccountAliases => lookups::aliases,
        ListAttachedGroupPolicies => managed::list_group,
        ListAttachedRolePolicies => managed::list_role,
        ListAttachedUserPolicies => managed::list_user,
        ListEntitiesForPolicy => lookups::entities_for_policy,
        ListGroupPolicies => inline::list_group,
        ListGroups => groups::list,
        ListGroupsForUser => groups::list_for_user,
        ListInstanceProfilesForRole => lookups::instance_profiles,
        ListMFADevices => lookups::second_factors,
        ListOpenIDConnectProviders => providers::list,
        ListPolicies => policies::list,
        ListPolicyTags => policies::list_tags,
        ListPolicyVersions => policies::list_versions,
        ListRolePolicies => inline::list_role,
        ListRoleTags => roles::list_tags,
        ListRoles => roles::list,
        ListSSHPublicKeys => lookups::ssh_keys,
        ListServiceSpecificCredentials => lookups::service_credentials,
        ListSigningCertificates => lookups::certificates,
        ListUserPolicies => inline::list_user,
        ListUserTags => users::list_tags,
        ListUsers => users::list,
        PutGroupPolicy => inline::put_group,
        PutRolePermissionsBoundary => managed::put_role_boundary,
        PutRolePolicy => inline::put_role,
        PutUserPermissionsBoundary => managed::put_user_boundary,
        PutUserPolicy => inline::put_user,
        RemoveClientIDFromOpenIDConnectProvider => providers::remove_client,
        RemoveUserFromGroup => groups::remove_user,
        SetDefaultPolicyVersion => policies::set_default,
        TagPolicy => policies::tag,
        TagRole => roles::tag,
        TagUser => users::tag,
        UntagPolicy => policies::untag,
        UntagRole => roles::untag,
        UntagUser => users::untag,
        UpdateAccessKey => keys::update,
        UpdateAssumeRolePolicy => roles::update_trust,
        UpdateGroup => groups::update,
        UpdateOpenIDConnectProviderThumbprint => providers::update_thumbprints,
        UpdateRole => roles::update,
        UpdateRoleDescription => roles::update_description,
        UpdateUser => users::update,
    }
    sts {
        AssumeRole => sts::assume_role,
        AssumeRoleWithWebIdentity => sts::assume_role_with_web_identity,
        GetAccessKeyInfo => sts::access_key_info,
        GetCallerIdentity => sts::caller_identity,
        GetSessionToken => sts::session_token,
    }
}

/// No elements.
fn nothing() -> Reply {
    String::new()
}

/// A page of a list: as many as are asked for behind the marker, written one by one, and where the next page begins.
fn page<'a, T>(
    form: &Form,
    all: impl Iterator<Item = (&'a str, T)>,
    list: &str,
    mut write: impl FnMut(&mut Xml, T),
) -> Result<Reply, IamError> {
    let max = form.number("MaxItems", 1, 1000)?.unwrap_or(100) as usize;
    let marker = form.get("Marker");
    let mut left = all.skip_while(|(name, _)| marker.is_some_and(|marker| *name <= marker));
    let mut last = None;
    Ok(Xml::fragment(|xml| {
        xml.element(list, |xml| {
            for (name, entry) in left.by_ref().take(max) {
                xml.element("member", |xml| write(xml, entry));
                last = Some(name);
            }
        });
        let truncated = left.next().is_some();
        xml.value("IsTruncated", truncated);
        xml.optional("Marker", last.filter(|_| truncated));
    }))
}

/// Tags, in their element.
fn write_tags(xml: &mut Xml, tags: &[(String, String)]) {
    if tags.is_empty() {
        return;
    }
    xml.element("Tags", |xml| members_of_tags(xml, tags));
}

fn members_of_tags(xml: &mut Xml, tags: &[(String, String)]) {
    for (key, value) in tags {
        xml.element("member", |xml| {
            xml.text("Key", key);
            xml.text("Value", value);
        });
    }
}

/// All tags of somebody, in one page.
fn tags_page(tags: &[(String, String)]) -> Reply {
    Xml::fragment(|xml| {
        xml.element("Tags", |xml| members_of_tags(xml, tags));
        xml.value("IsTruncated", false);
    })
}

/// Adds tags, or gives those that are there other values.
fn add_tags(tags: &mut Vec<(String, String)>, more: Vec<(String, String)>) -> Result<(), IamError> {
    for (key, value) in more {
        match tags.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(&key)) {
            Some(tag) => *tag = (key, value),
            None => tags.push((key, value)),
        }
    }
    if tags.len() > form::TAGS_MAX {
        return Err(IamError::limit(format!("There may be at most {} tags.", form::TAGS_MAX)));
    }
    Ok(())
}

fn remove_tags(tags: &mut Vec<(String, String)>, keys: &[String]) {
    tags.retain(|(key, _)| !keys.iter().any(|gone| gone.eq_ignore_ascii_case(key)));
}

/// A document as IAM answers with it: encoded as in a URL (RFC 3986).
fn encoded(document: &str) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(document, UNRESERVED).to_string()
}
