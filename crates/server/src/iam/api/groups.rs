//! Groups: create, get, list, update, delete, and who is in them.

use std::sync::Arc;

use super::super::error::IamError;
use super::super::model::{Group, Named, Policies, User};
use super::super::{Iam, ids};
use super::{Ask, Reply, entity, names, nothing, page, users};
use crate::s3::{Xml, date};

/// Most groups of an account, as on AWS.
pub(in crate::iam) const GROUPS_MAX: usize = 300;
/// Most groups that a user is in, as on AWS.
const GROUPS_OF_USER_MAX: usize = 10;
const NAME_MAX: usize = 128;

pub(super) async fn create(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("GroupName")?.to_owned();
    names::check("GroupName", &name, NAME_MAX)?;
    let path = names::path(ask.form.get("Path"))?;
    let account = ask.account().to_owned();
    entity::authorize_new::<Group>(ask, "iam:CreateGroup", &path, &name)?;
    let group = iam.change(move |iam, draft| {
        let tenant = draft.state.tenant(&account)?;
        entity::check_new::<Group>(tenant, &name, GROUPS_MAX)?;
        let named = Named {
            account,
            id: ids::entity(&*iam.entropy, "AGPA"),
            name,
            path,
            created_ms: iam.now_ms(),
            tags: Vec::new(),
        };
        let group = Group { named, policies: Policies::default() };
        draft.put_group(group.clone(), None)?;
        Ok(group)
    });
    let group = group.await?;
    Ok(Xml::fragment(|xml| xml.element("Group", |xml| write(xml, &group))))
}

pub(super) async fn get(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let (tenant, group) = entity::asked::<Group>(iam, ask, "iam:GetGroup")?;
    let members = tenant.users.iter().filter(|(_, user)| user.groups.contains(&group.named.id));
    let members = members.map(|(name, user)| (name.as_str(), user));
    let users = page(&ask.form, members, "Users", |xml, user| users::write(xml, user, false))?;
    Ok(Xml::fragment(|xml| {
        xml.element("Group", |xml| write(xml, &group));
        xml.raw(&[&users]);
    }))
}

pub(super) async fn list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    entity::list::<Group>(iam, ask, "iam:ListGroups", |xml, group| write(xml, group))
}

pub(super) async fn list_for_user(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let (tenant, user) = entity::asked::<User>(iam, ask, "iam:ListGroupsForUser")?;
    let groups = tenant.groups.iter().filter(|(_, group)| user.groups.contains(&group.named.id));
    page(&ask.form, groups.map(|(name, group)| (name.as_str(), group)), "Groups", |xml, group| write(xml, group))
}

pub(super) async fn update(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    entity::rename::<Group>(iam, ask, "iam:UpdateGroup", NAME_MAX).await
}

pub(super) async fn delete(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    entity::delete::<Group, _>(iam, ask, "iam:DeleteGroup", |group, _, tenant| {
        let has_users = tenant.users.values().any(|user| user.groups.contains(&group.named.id));
        has_users.then_some("remove users from group")
    })
    .await
}

pub(super) async fn add_user(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    member(iam, ask, "iam:AddUserToGroup", |user, group| {
        if user.groups.contains(&group) {
            return Ok(());
        }
        if user.groups.len() >= GROUPS_OF_USER_MAX {
            return Err(IamError::limit(format!("Cannot exceed quota for GroupsPerUser: {GROUPS_OF_USER_MAX}")));
        }
        user.groups.push(group);
        Ok(())
    })
    .await
}

pub(super) async fn remove_user(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    member(iam, ask, "iam:RemoveUserFromGroup", |user, group| {
        user.groups.retain(|id| *id != group);
        Ok(())
    })
    .await
}

async fn member<F>(iam: &Arc<Iam>, ask: &Ask, action: &str, change: F) -> Result<Reply, IamError>
where
    F: FnOnce(&mut User, String) -> Result<(), IamError> + Send + 'static,
{
    let user_name = ask.form.required("UserName")?.to_owned();
    let (_, group) = entity::asked::<Group>(iam, ask, action)?;
    let group_name = group.named.name.clone();
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let tenant = draft.state.tenant(&account)?;
        let group = tenant.group(&group_name)?.named.id.clone();
        let mut user = User::clone(tenant.user(&user_name)?);
        change(&mut user, group)?;
        draft.put_user(user, None)?;
        Ok(nothing())
    })
    .await
}

fn write(xml: &mut Xml, group: &Group) {
    xml.text("Path", &group.named.path);
    xml.text("GroupName", &group.named.name);
    xml.text("GroupId", &group.named.id);
    xml.text("Arn", group.named.arn("group"));
    xml.value("CreateDate", date::iso(group.named.created_ms));
}
