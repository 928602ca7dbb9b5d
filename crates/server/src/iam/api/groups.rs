//! Groups: create, get, list, update, delete, and who is in them.

use std::sync::Arc;

use super::super::error::IamError;
use super::super::model::{Group, Named, Policies, User};
use super::super::{Iam, ids};
use super::{Ask, Reply, names, nothing, page, tenant, users};
use crate::s3::{Xml, date};

/// Most groups of an account, as on AWS.
pub(in crate::iam) const GROUPS_MAX: usize = 300;
/// Most groups that a user is in, as on AWS.
const GROUPS_OF_USER_MAX: usize = 10;
const NAME_MAX: usize = 128;

/// The resource that a group is, or would be.
pub(super) fn arn(ask: &Ask, group: Option<&Group>, name: &str) -> String {
    match group {
        Some(group) => group.named.arn("group"),
        None => format!("arn:aws:iam::{}:group/{name}", ask.account()),
    }
}

pub(super) async fn create(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("GroupName")?.to_owned();
    names::check("GroupName", &name, NAME_MAX)?;
    let path = names::path(ask.form.get("Path"))?;
    let account = ask.account().to_owned();
    ask.authorize("iam:CreateGroup", &format!("arn:aws:iam::{account}:group{path}{name}"))?;
    let group = iam.change(move |iam, draft| {
        let tenant = draft.state.tenant(&account)?;
        if tenant.groups.contains_key(&name.to_lowercase()) {
            return Err(IamError::exists("Group", &name));
        }
        if tenant.groups.len() >= GROUPS_MAX {
            return Err(IamError::limit(format!("Cannot exceed quota for GroupsPerAccount: {GROUPS_MAX}")));
        }
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
    let name = ask.form.required("GroupName")?;
    let (_, tenant) = tenant(iam, ask)?;
    let group = tenant.group(name);
    ask.authorize("iam:GetGroup", &arn(ask, group.as_ref().ok().map(|group| &***group), name))?;
    let group = group?;
    let members = tenant.users.iter().filter(|(_, user)| user.groups.contains(&group.named.id));
    let members = members.map(|(name, user)| (name.as_str(), user));
    let users = page(&ask.form, members, "Users", |xml, user| users::write(xml, user, false))?;
    Ok(Xml::fragment(|xml| {
        xml.element("Group", |xml| write(xml, group));
        xml.raw(&[&users]);
    }))
}

pub(super) async fn list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let prefix = ask.form.get("PathPrefix").unwrap_or("/");
    ask.authorize("iam:ListGroups", &format!("arn:aws:iam::{}:group{prefix}", ask.account()))?;
    let (_, tenant) = tenant(iam, ask)?;
    let groups = tenant.groups.iter().filter(|(_, group)| group.named.path.starts_with(prefix));
    page(&ask.form, groups.map(|(name, group)| (name.as_str(), group)), "Groups", |xml, group| write(xml, group))
}

pub(super) async fn list_for_user(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("UserName")?;
    let (_, tenant) = tenant(iam, ask)?;
    let user = tenant.user(name);
    ask.authorize("iam:ListGroupsForUser", &users::arn(ask, user.as_ref().ok().map(|user| &***user), name))?;
    let user = user?;
    let groups = tenant.groups.iter().filter(|(_, group)| user.groups.contains(&group.named.id));
    page(&ask.form, groups.map(|(name, group)| (name.as_str(), group)), "Groups", |xml, group| write(xml, group))
}

pub(super) async fn update(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("GroupName")?.to_owned();
    let new_name = ask.form.get("NewGroupName").map(str::to_owned);
    if let Some(new_name) = &new_name {
        names::check("NewGroupName", new_name, NAME_MAX)?;
    }
    let new_path = ask.form.get("NewPath").map(|path| names::path(Some(path))).transpose()?;
    let (_, tenant) = tenant(iam, ask)?;
    let group = tenant.group(&name);
    ask.authorize("iam:UpdateGroup", &arn(ask, group.as_ref().ok().map(|group| &***group), &name))?;
    if let Ok(group) = group {
        let mut renamed = group.named.clone();
        renamed.name = new_name.clone().unwrap_or(renamed.name);
        renamed.path = new_path.clone().unwrap_or(renamed.path);
        ask.authorize("iam:UpdateGroup", &renamed.arn("group"))?;
    }
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let tenant = draft.state.tenant(&account)?;
        let mut group = Group::clone(tenant.group(&name)?);
        if let Some(new_name) = new_name {
            let (old, new) = (group.named.name.to_lowercase(), new_name.to_lowercase());
            if old != new && tenant.groups.contains_key(&new) {
                return Err(IamError::exists("Group", &new_name));
            }
            group.named.name = new_name;
        }
        group.named.path = new_path.unwrap_or(group.named.path);
        draft.put_group(group, Some(&name))?;
        Ok(nothing())
    })
    .await
}

pub(super) async fn delete(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("GroupName")?.to_owned();
    let (_, tenant) = tenant(iam, ask)?;
    let group = tenant.group(&name);
    ask.authorize("iam:DeleteGroup", &arn(ask, group.as_ref().ok().map(|group| &***group), &name))?;
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let tenant = draft.state.tenant(&account)?;
        let group = Arc::clone(tenant.group(&name)?);
        let conflict = |what: &str| Err(IamError::delete_conflict(format!("Cannot delete entity, must {what} first.")));
        if tenant.users.values().any(|user| user.groups.contains(&group.named.id)) {
            return conflict("remove users from group");
        }
        if !group.policies.inline.is_empty() {
            return conflict("delete policies");
        }
        if !group.policies.attached.is_empty() {
            return conflict("detach all policies");
        }
        draft.remove_group(&group.named)?;
        Ok(nothing())
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
    let group_name = ask.form.required("GroupName")?.to_owned();
    let user_name = ask.form.required("UserName")?.to_owned();
    let (_, tenant) = tenant(iam, ask)?;
    let group = tenant.group(&group_name);
    ask.authorize(action, &arn(ask, group.as_ref().ok().map(|group| &***group), &group_name))?;
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

/// Changes the group that is named.
pub(super) async fn change<F>(iam: &Arc<Iam>, ask: &Ask, action: &str, change: F) -> Result<Reply, IamError>
where
    F: FnOnce(&mut Group) -> Result<(), IamError> + Send + 'static,
{
    let name = ask.form.required("GroupName")?.to_owned();
    let (_, tenant) = tenant(iam, ask)?;
    let group = tenant.group(&name);
    ask.authorize(action, &arn(ask, group.as_ref().ok().map(|group| &***group), &name))?;
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let mut group = Group::clone(draft.state.tenant(&account)?.group(&name)?);
        change(&mut group)?;
        draft.put_group(group, None)?;
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
