//! What users, groups and roles have in common: each has a name in its account and an ARN, policies, and actions that find it by the one and are allowed
//! by the other.
//!
//! Who is not allowed an action is told nothing of what there is: authorisation comes before everything that could be found out.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::Iam;
use super::super::draft::Draft;
use super::super::error::IamError;
use super::super::model::{Group, Named, Policies, Role, User};
use super::super::state::{State, Tenant};
use super::{Ask, Reply, names, nothing, page, tenant};
use crate::s3::Xml;

/// A kind of them.
pub(super) trait Entity: Clone + Send + Sync + 'static {
    /// As ARNs call it.
    const KIND: &'static str;
    /// The parameter that names one.
    const NAME: &'static str;
    /// As errors and answers call it.
    const TITLE: &'static str;

    fn all(tenant: &Tenant) -> &BTreeMap<String, Arc<Self>>;
    fn named(&self) -> &Named;
    fn named_mut(&mut self) -> &mut Named;
    fn policies(&self) -> &Policies;
    fn policies_mut(&mut self) -> &mut Policies;
    /// `old` is the name that it had until now, if it had another.
    fn put(self, draft: &mut Draft, old: Option<&str>) -> Result<(), IamError>;
    fn remove(&self, draft: &mut Draft) -> Result<(), IamError>;
}

macro_rules! entity {
    ($entity:ty, $kind:literal, $name:literal, $title:literal, $all:ident, $put:ident, $remove:ident) => {
        impl Entity for $entity {
            const KIND: &'static str = $kind;
            const NAME: &'static str = $name;
            const TITLE: &'static str = $title;

            fn all(tenant: &Tenant) -> &BTreeMap<String, Arc<Self>> {
                &tenant.$all
            }

            fn named(&self) -> &Named {
                &self.named
            }

            fn named_mut(&mut self) -> &mut Named {
                &mut self.named
            }

            fn policies(&self) -> &Policies {
                &self.policies
            }

            fn policies_mut(&mut self) -> &mut Policies {
                &mut self.policies
            }

            fn put(self, draft: &mut Draft, old: Option<&str>) -> Result<(), IamError> {
                draft.$put(self, old)
            }

            fn remove(&self, draft: &mut Draft) -> Result<(), IamError> {
                draft.$remove(&self.named)
            }
        }
    };
}

entity!(User, "user", "UserName", "User", users, put_user, remove_user);
entity!(Group, "group", "GroupName", "Group", groups, put_group, remove_group);
entity!(Role, "role", "RoleName", "Role", roles, put_role, remove_role);

/// The one with this name.
fn find<'a, E: Entity>(tenant: &'a Tenant, name: &str) -> Result<&'a Arc<E>, IamError> {
    E::all(tenant).get(&name.to_lowercase()).ok_or_else(|| IamError::no_entity(E::KIND, name))
}

/// The one that was found `before`, as it is now: another one that got its name since was not judged.
fn again<'a, E: Entity>(tenant: &'a Tenant, before: &Named) -> Result<&'a Arc<E>, IamError> {
    let now = find::<E>(tenant, &before.name)?;
    if now.named().id == before.id { Ok(now) } else { Err(IamError::no_entity(E::KIND, &before.name)) }
}

/// The one with this name, for who may do this with it.
pub(super) fn allowed<E: Entity>(tenant: &Tenant, ask: &Ask, action: &str, name: &str) -> Result<Arc<E>, IamError> {
    let found = find::<E>(tenant, name);
    let arn = match &found {
        Ok(found) => found.named().arn(E::KIND),
        Err(_) => format!("arn:aws:iam::{}:{}/{name}", ask.account(), E::KIND),
    };
    ask.authorize(action, &arn)?;
    found.cloned()
}

/// The one that the request names, for who may do this with it.
pub(super) fn asked<E: Entity>(iam: &Iam, ask: &Ask, action: &str) -> Result<(Arc<Tenant>, Arc<E>), IamError> {
    let (_, tenant) = tenant(iam, ask)?;
    let found = allowed(&tenant, ask, action, ask.form.required(E::NAME)?)?;
    Ok((tenant, found))
}

/// The resource that one with this name would be, for who may make it.
pub(super) fn authorize_new<E: Entity>(ask: &Ask, action: &str, path: &str, name: &str) -> Result<(), IamError> {
    ask.authorize(action, &format!("arn:aws:iam::{}:{}{path}{name}", ask.account(), E::KIND))
}

/// Whether there is room for another one, with this name.
pub(super) fn check_new<E: Entity>(tenant: &Tenant, name: &str, most: usize) -> Result<(), IamError> {
    let all = E::all(tenant);
    if all.contains_key(&name.to_lowercase()) {
        return Err(IamError::exists(E::TITLE, name));
    }
    if all.len() >= most {
        return Err(IamError::limit(format!("Cannot exceed quota for {}sPerAccount: {most}", E::TITLE)));
    }
    Ok(())
}

/// A page of all whose paths begin as it is asked for.
pub(super) fn list<E: Entity>(
    iam: &Iam,
    ask: &Ask,
    action: &str,
    write: impl FnMut(&mut Xml, &Arc<E>),
) -> Result<Reply, IamError> {
    let prefix = ask.form.get("PathPrefix").unwrap_or("/");
    authorize_new::<E>(ask, action, prefix, "")?;
    let (_, tenant) = tenant(iam, ask)?;
    let all = E::all(&tenant).iter().filter(|(_, entity)| entity.named().path.starts_with(prefix));
    page(&ask.form, all.map(|(name, entity)| (name.as_str(), entity)), &format!("{}s", E::TITLE), write)
}

/// Changes the one that is named.
pub(super) async fn change<E, F>(iam: &Arc<Iam>, ask: &Ask, action: &str, change: F) -> Result<Reply, IamError>
where
    E: Entity,
    F: FnOnce(&mut E, &Tenant) -> Result<(), IamError> + Send + 'static,
{
    let (_, found) = asked::<E>(iam, ask, action)?;
    let (account, before) = (ask.account().to_owned(), found.named().clone());
    iam.change(move |_, draft| {
        let tenant = draft.state.tenant(&account)?;
        let mut entity = E::clone(again(tenant, &before)?);
        change(&mut entity, tenant)?;
        entity.put(draft, None)?;
        Ok(nothing())
    })
    .await
}

/// Gives the one that is named another name or path.
pub(super) async fn rename<E: Entity>(
    iam: &Arc<Iam>,
    ask: &Ask,
    action: &str,
    name_max: usize,
) -> Result<Reply, IamError> {
    let parameter = format!("New{}", E::NAME);
    let new_name = ask.form.get(&parameter).map(str::to_owned);
    if let Some(new_name) = &new_name {
        names::check(&parameter, new_name, name_max)?;
    }
    let new_path = ask.form.get("NewPath").map(|path| names::path(Some(path))).transpose()?;
    let (_, found) = asked::<E>(iam, ask, action)?;
    // AWS wants the right to do so on both names.
    let mut renamed = found.named().clone();
    renamed.name = new_name.clone().unwrap_or(renamed.name);
    renamed.path = new_path.clone().unwrap_or(renamed.path);
    ask.authorize(action, &renamed.arn(E::KIND))?;
    let (account, before) = (ask.account().to_owned(), found.named().clone());
    iam.change(move |_, draft| {
        let tenant = draft.state.tenant(&account)?;
        let mut entity = E::clone(again(tenant, &before)?);
        if let Some(new_name) = new_name {
            let (old, new) = (before.name.to_lowercase(), new_name.to_lowercase());
            if old != new && E::all(tenant).contains_key(&new) {
                return Err(IamError::exists(E::TITLE, &new_name));
            }
            entity.named_mut().name = new_name;
        }
        if let Some(new_path) = new_path {
            entity.named_mut().path = new_path;
        }
        entity.put(draft, Some(&before.name))?;
        Ok(nothing())
    })
    .await
}

/// Takes away the one that is named, if it has no policies and nothing else is `left` to be done before.
pub(super) async fn delete<E, F>(iam: &Arc<Iam>, ask: &Ask, action: &str, left: F) -> Result<Reply, IamError>
where
    E: Entity,
    F: FnOnce(&E, &State, &Tenant) -> Option<&'static str> + Send + 'static,
{
    let (_, found) = asked::<E>(iam, ask, action)?;
    let (account, before) = (ask.account().to_owned(), found.named().clone());
    iam.change(move |_, draft| {
        let tenant = draft.state.tenant(&account)?;
        let entity = Arc::clone(again::<E>(tenant, &before)?);
        let policies = entity.policies();
        let left = match left(&entity, &draft.state, tenant) {
            Some(what) => Some(what),
            None if !policies.inline.is_empty() => Some("delete policies"),
            None if !policies.attached.is_empty() => Some("detach all policies"),
            None => None,
        };
        if let Some(what) = left {
            return Err(IamError::delete_conflict(format!("Cannot delete entity, must {what} first.")));
        }
        entity.remove(draft)?;
        Ok(nothing())
    })
    .await
}
