//! GetAccountSummary: how much there is, and may be.

use std::sync::Arc;

use gabion_policy::limits::{
    GROUP_POLICY_BYTES_MAX, MANAGED_POLICY_BYTES_MAX, ROLE_POLICY_BYTES_MAX, USER_POLICY_BYTES_MAX,
};

use super::super::Iam;
use super::super::error::IamError;
use super::{Ask, Reply, groups, keys, policies, roles, tenant, users};
use crate::s3::Xml;

pub(super) async fn summary(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    ask.authorize("iam:GetAccountSummary", "*")?;
    let (state, tenant) = tenant(iam, ask)?;
    let root_keys = state.keys_of(ask.account(), None).len();
    let entries = [
        ("AccessKeysPerUserQuota", keys::KEYS_OF_USER_MAX),
        ("AccountAccessKeysPresent", root_keys),
        ("AccountMFAEnabled", 0),
        ("GroupPolicySizeQuota", GROUP_POLICY_BYTES_MAX),
        ("Groups", tenant.groups.len()),
        ("GroupsQuota", groups::GROUPS_MAX),
        ("Policies", tenant.policies.len()),
        ("PoliciesQuota", policies::POLICIES_MAX),
        ("PolicySizeQuota", MANAGED_POLICY_BYTES_MAX),
        ("Providers", tenant.providers.len()),
        ("RolePolicySizeQuota", ROLE_POLICY_BYTES_MAX),
        ("Roles", tenant.roles.len()),
        ("RolesQuota", roles::ROLES_MAX),
        ("UserPolicySizeQuota", USER_POLICY_BYTES_MAX),
        ("Users", tenant.users.len()),
        ("UsersQuota", users::USERS_MAX),
    ];
    Ok(Xml::fragment(|xml| {
        xml.element("SummaryMap", |xml| {
            for (key, value) in entries {
                xml.element("entry", |xml| {
                    xml.text("key", key);
                    xml.value("value", value);
                });
            }
        });
    }))
}
