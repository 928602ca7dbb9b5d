//! Roles: create, get, list, update, delete, tags, and who may take them on.

use std::sync::Arc;

use gabion_policy::limits::TRUST_POLICY_BYTES_MAX;

use super::super::error::IamError;
use super::super::model::{Named, Policies, Role};
use super::super::{Iam, ids};
use super::entity::{self, change};
use super::names::Kind;
use super::{Ask, Reply, add_tags, encoded, names, remove_tags, tags_page, tenant, write_tags};
use crate::s3::{Xml, date};

/// Most roles of an account, as on AWS.
pub(in crate::iam) const ROLES_MAX: usize = 1000;
const NAME_MAX: usize = 64;
/// Longest session of a role that says nothing, in seconds.
const SESSION_S: u64 = 3600;
const SESSION_S_MAX: u64 = 43_200;
/// Longest description, in characters.
pub(super) const DESCRIPTION_MAX: usize = 1000;

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
    entity::authorize_new::<Role>(ask, "iam:CreateRole", &path, &name)?;
    names::check_document(&trust, Kind::Trust, TRUST_POLICY_BYTES_MAX)?;
    let role = iam.change(move |iam, draft| {
        let tenant = draft.state.tenant(&account)?;
        entity::check_new::<Role>(tenant, &name, ROLES_MAX)?;
        if let Some(arn) = &boundary {
            super::managed::check_there(tenant, arn)?;
        }
        let named =
            Named { account, id: ids::entity(&*iam.entropy, "AROA"), name, path, created_ms: iam.now_ms(), tags };
        let policies = Policies { boundary, ..Policies::default() };
        let role = Role { named, policies, description, max_session_s, trust };
        draft.put_role(role.clone(), None)?;
        Ok(role)
    });
    let role = role.await?;
    Ok(Xml::fragment(|xml| xml.element("Role", |xml| write(xml, &role))))
}

pub(super) async fn get(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let (_, role) = entity::asked::<Role>(iam, ask, "iam:GetRole")?;
    Ok(Xml::fragment(|xml| xml.element("Role", |xml| write_whole(xml, &role))))
}

pub(super) async fn list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    entity::list::<Role>(iam, ask, "iam:ListRoles", |xml, role| {
        write(xml, role);
        write_limits(xml, role);
    })
}

pub(super) async fn update(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let description = description(ask)?;
    let max_session_s = ask.form.number("MaxSessionDuration", SESSION_S, SESSION_S_MAX)?;
    change(iam, ask, "iam:UpdateRole", move |role: &mut Role, _| {
        role.description = description.unwrap_or_default();
        role.max_session_s = max_session_s.unwrap_or(SESSION_S);
        Ok(())
    })
    .await
}

pub(super) async fn update_description(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let description = description(ask)?.unwrap_or_default();
    change(iam, ask, "iam:UpdateRoleDescription", move |role: &mut Role, _| {
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
    change(iam, ask, "iam:UpdateAssumeRolePolicy", move |role: &mut Role, _| {
        names::check_document(&trust, Kind::Trust, TRUST_POLICY_BYTES_MAX)?;
        role.trust = trust;
        Ok(())
    })
    .await
}

pub(super) async fn delete(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    entity::delete::<Role, _>(iam, ask, "iam:DeleteRole", |_, _, _| None).await
}

pub(super) async fn list_tags(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let (_, role) = entity::asked::<Role>(iam, ask, "iam:ListRoleTags")?;
    Ok(tags_page(&role.named.tags))
}

pub(super) async fn tag(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let tags = ask.form.tags("Tags")?;
    change(iam, ask, "iam:TagRole", move |role: &mut Role, _| add_tags(&mut role.named.tags, tags)).await
}

pub(super) async fn untag(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let keys = ask.form.list("TagKeys");
    change(iam, ask, "iam:UntagRole", move |role: &mut Role, _| {
        remove_tags(&mut role.named.tags, &keys);
        Ok(())
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
