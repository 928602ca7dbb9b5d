//! Roles: create, get, list, update, delete, tags, and who may take them on.

use std::sync::Arc;

use gabion_policy::limits::TRUST_POLICY_BYTES_MAX;

use super::super::error::IamError;
use super::super::model::{Named, Policies, Role};
use super::super::state::Tenant;
use super::super::{Iam, ids};
use super::names::Kind;
use super::{Ask, Reply, add_tags, encoded, names, nothing, page, remove_tags, tags_page, tenant, write_tags};
use crate::s3::{Xml, date};

/// Most roles of an account, as on AWS.
pub(in crate::iam) const ROLES_MAX: usize = 1000;
const NAME_MAX: usize = 64;
/// Longest session of a role that says nothing, in seconds.
const SESSION_S: u64 = 3600;
const SESSION_S_MAX: u64 = 43_200;
/// Longest description, in characters.
pub(super) const DESCRIPTION_MAX: usize = 1000;

/// The resource that a role is, or would be.
pub(super) fn arn(ask: &Ask, role: Option<&Role>, name: &str) -> String {
    match role {
        Some(role) => role.named.arn("role"),
        None => format!("arn:aws:iam::{}:role/{name}", ask.account()),
    }
}

/// A description that is short enough.
pub(super) fn description(ask: &Ask) -> Result<Option<String>, IamError> {
    match ask.form.present("Description") {
        Some(text) if text.chars().count() > DESCRIPTION_MAX => {
            Err(IamError::validation(format!("Description must have at most {DESCRIPTION_MAX} characters.")))
        }
        text => Ok(text.map(str::to_owned)),
    }
}

pub(super) async fn create(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("RoleName")?.to_owned();
    names::check("RoleName", &name, NAME_MAX)?;
    let path = names::path(ask.form.get("Path"))?;
    let trust = ask.form.required("AssumeRolePolicyDocument")?.to_owned();
    let description = description(ask)?.unwrap_or_default();
    let max_session_s = ask.form.number("MaxSessionDuration", SESSION_S, SESSION_S_MAX)?.unwrap_or(SESSION_S);
    let tags = ask.form.tags("Tags")?;
    let boundary = ask.form.get("PermissionsBoundary").map(str::to_owned);
    let account = ask.account().to_owned();
    ask.authorize("iam:CreateRole", &format!("arn:aws:iam::{account}:role{path}{name}"))?;
    names::check_document(&trust, Kind::Trust, TRUST_POLICY_BYTES_MAX)?;
    let role = iam.change(move |iam, draft| {
        let tenant = draft.state.tenant(&account)?;
        if tenant.roles.contains_key(&name.to_lowercase()) {
            return Err(IamError::exists("Role", &name));
        }
        if tenant.roles.len() >= ROLES_MAX {
            return Err(IamError::limit(format!("Cannot exceed quota for RolesPerAccount: {ROLES_MAX}")));
        }
        if let Some(arn) = &boundary {
            super::managed::check_there(tenant, arn)?;
        }
        let named =
            Named { account, id: ids::entity(&*iam.entropy, "AROA"), name, path, created_ms: iam.now_ms(), tags };
        let policies = Policies { boundary, ..Policies::default() };
        let role = Role { named, policies, description, max_session_s, trust };
        draft.put_role(role.clone())?;
        Ok(role)
    });
    let role = role.await?;
    Ok(Xml::fragment(|xml| xml.element("Role", |xml| write(xml, &role))))
}

pub(super) async fn get(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("RoleName")?;
    let (_, tenant) = tenant(iam, ask)?;
    let role = tenant.role(name);
    ask.authorize("iam:GetRole", &arn(ask, role.as_ref().ok().map(|role| &***role), name))?;
    let role = role?;
    Ok(Xml::fragment(|xml| xml.element("Role", |xml| write_whole(xml, role))))
}

pub(super) async fn list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let prefix = ask.form.get("PathPrefix").unwrap_or("/");
    ask.authorize("iam:ListRoles", &format!("arn:aws:iam::{}:role{prefix}", ask.account()))?;
    let (_, tenant) = tenant(iam, ask)?;
    let roles = tenant.roles.iter().filter(|(_, role)| role.named.path.starts_with(prefix));
    page(&ask.form, roles.map(|(name, role)| (name.as_str(), role)), "Roles", |xml, role| {
        write(xml, role);
        write_limits(xml, role);
    })
}

pub(super) async fn update(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let description = description(ask)?;
    let max_session_s = ask.form.number("MaxSessionDuration", SESSION_S, SESSION_S_MAX)?;
    change(iam, ask, "iam:UpdateRole", move |role, _| {
        role.description = description.unwrap_or_default();
        role.max_session_s = max_session_s.unwrap_or(SESSION_S);
        Ok(())
    })
    .await
}

pub(super) async fn update_description(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let description = description(ask)?.unwrap_or_default();
    change(iam, ask, "iam:UpdateRoleDescription", move |role, _| {
        role.description = description;
        Ok(())
    })
    .await?;
    let (_, tenant) = tenant(iam, ask)?;
    let role = tenant.role(ask.form.required("RoleName")?)?;
    Ok(Xml::fragment(|xml| xml.element("Role", |xml| write_whole(xml, role))))
}

pub(super) async fn update_trust(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let trust = ask.form.required("PolicyDocument")?.to_owned();
    change(iam, ask, "iam:UpdateAssumeRolePolicy", move |role, _| {
        names::check_document(&trust, Kind::Trust, TRUST_POLICY_BYTES_MAX)?;
        role.trust = trust;
        Ok(())
    })
    .await
}

pub(super) async fn delete(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("RoleName")?.to_owned();
    let (_, tenant) = tenant(iam, ask)?;
    let role = tenant.role(&name);
    ask.authorize("iam:DeleteRole", &arn(ask, role.as_ref().ok().map(|role| &***role), &name))?;
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let role = Arc::clone(draft.state.tenant(&account)?.role(&name)?);
        let conflict = |what: &str| Err(IamError::delete_conflict(format!("Cannot delete entity, must {what} first.")));
        if !role.policies.inline.is_empty() {
            return conflict("delete policies");
        }
        if !role.policies.attached.is_empty() {
            return conflict("detach all policies");
        }
        draft.remove_role(&role.named)?;
        Ok(nothing())
    })
    .await
}

pub(super) async fn list_tags(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("RoleName")?;
    let (_, tenant) = tenant(iam, ask)?;
    let role = tenant.role(name);
    ask.authorize("iam:ListRoleTags", &arn(ask, role.as_ref().ok().map(|role| &***role), name))?;
    Ok(tags_page(&role?.named.tags))
}

pub(super) async fn tag(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let tags = ask.form.tags("Tags")?;
    change(iam, ask, "iam:TagRole", move |role, _| add_tags(&mut role.named.tags, tags)).await
}

pub(super) async fn untag(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let keys = ask.form.list("TagKeys");
    change(iam, ask, "iam:UntagRole", move |role, _| {
        remove_tags(&mut role.named.tags, &keys);
        Ok(())
    })
    .await
}

/// Changes the role that is named.
pub(super) async fn change<F>(iam: &Arc<Iam>, ask: &Ask, action: &str, change: F) -> Result<Reply, IamError>
where
    F: FnOnce(&mut Role, &Tenant) -> Result<(), IamError> + Send + 'static,
{
    let name = ask.form.required("RoleName")?.to_owned();
    let (_, tenant) = tenant(iam, ask)?;
    let role = tenant.role(&name);
    ask.authorize(action, &arn(ask, role.as_ref().ok().map(|role| &***role), &name))?;
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let tenant = draft.state.tenant(&account)?;
        let mut role = Role::clone(tenant.role(&name)?);
        change(&mut role, tenant)?;
        draft.put_role(role)?;
        Ok(nothing())
    })
    .await
}

/// What CreateRole answers with.
fn write(xml: &mut Xml, role: &Role) {
    xml.text("Path", &role.named.path);
    xml.text("RoleName", &role.named.name);
    xml.text("RoleId", &role.named.id);
    xml.text("Arn", role.named.arn("role"));
    xml.value("CreateDate", date::iso(role.named.created_ms));
    xml.text("AssumeRolePolicyDocument", encoded(&role.trust));
    super::managed::write_boundary(xml, &role.policies);
    write_tags(xml, &role.named.tags);
}

fn write_limits(xml: &mut Xml, role: &Role) {
    if !role.description.is_empty() {
        xml.text("Description", &role.description);
    }
    xml.value("MaxSessionDuration", role.max_session_s);
}

fn write_whole(xml: &mut Xml, role: &Role) {
    write(xml, role);
    write_limits(xml, role);
}
