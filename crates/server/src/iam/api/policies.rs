//! Managed policies: create, get, list, delete, with up to five versions of which one counts.

use std::sync::Arc;

use gabion_policy::limits::MANAGED_POLICY_BYTES_MAX;

use super::super::error::IamError;
use super::super::model::{ManagedPolicy, Named, PolicyVersion};
use super::super::state::Tenant;
use super::super::{Iam, builtin, ids};
use super::managed::{own, uses};
use super::names::{Kind, check_document};
use super::{Ask, Reply, add_tags, encoded, names, nothing, page, remove_tags, roles, tags_page, tenant, write_tags};
use crate::s3::{Xml, date};

/// Most managed policies of an account, as on AWS.
pub(in crate::iam) const POLICIES_MAX: usize = 1500;
const NAME_MAX: usize = 128;
/// Most versions of a policy.
const VERSIONS_MAX: usize = 5;

pub(super) async fn create(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let name = ask.form.required("PolicyName")?.to_owned();
    names::check("PolicyName", &name, NAME_MAX)?;
    let path = names::path(ask.form.get("Path"))?;
    let document = ask.form.required("PolicyDocument")?.to_owned();
    let description = roles::description(ask)?.unwrap_or_default();
    let tags = ask.form.tags("Tags")?;
    let account = ask.account().to_owned();
    ask.authorize("iam:CreatePolicy", &format!("arn:aws:iam::{account}:policy{path}{name}"))?;
    check_document(&document, Kind::Identity, MANAGED_POLICY_BYTES_MAX)?;
    let policy = iam.change(move |iam, draft| {
        let mut policy = new_policy(iam, &account, &name, path, document);
        policy.description = description;
        policy.named.tags = tags;
        let tenant = draft.state.tenant(&account)?;
        if tenant.policies.contains_key(&name.to_lowercase()) {
            return Err(IamError::exists("A policy", &name));
        }
        if tenant.policies.len() >= POLICIES_MAX {
            return Err(IamError::limit(format!("Cannot exceed quota for PoliciesPerAccount: {POLICIES_MAX}")));
        }
        draft.put_policy(policy.clone())?;
        Ok(policy)
    });
    let policy = policy.await?;
    Ok(Xml::fragment(|xml| xml.element("Policy", |xml| write(xml, &policy, (0, 0)))))
}

/// Makes a policy that is not there yet.
pub(in crate::iam) fn new_policy(
    iam: &Iam,
    account: &str,
    name: &str,
    path: String,
    document: String,
) -> ManagedPolicy {
    let now_ms = iam.now_ms();
    let named = Named {
        account: account.to_owned(),
        id: ids::entity(&*iam.entropy, "ANPA"),
        name: name.to_owned(),
        path,
        created_ms: now_ms,
        tags: Vec::new(),
    };
    let version = PolicyVersion { number: 1, document, created_ms: now_ms };
    ManagedPolicy { named, description: String::new(), updated_ms: now_ms, default_version: 1, versions: vec![version] }
}

pub(super) async fn get(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let arn = ask.form.required("PolicyArn")?;
    ask.authorize("iam:GetPolicy", arn)?;
    let (_, tenant) = tenant(iam, ask)?;
    if let Some(builtin) = builtin::find(arn) {
        return Ok(Xml::fragment(|xml| xml.element("Policy", |xml| write_builtin(xml, builtin, uses(&tenant, arn)))));
    }
    let policy = tenant.policy(arn)?;
    Ok(Xml::fragment(|xml| {
        xml.element("Policy", |xml| {
            write(xml, policy, uses(&tenant, arn));
            if !policy.description.is_empty() {
                xml.text("Description", &policy.description);
            }
        });
    }))
}

pub(super) async fn list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let prefix = ask.form.get("PathPrefix").unwrap_or("/");
    ask.authorize("iam:ListPolicies", &format!("arn:aws:iam::{}:policy{prefix}", ask.account()))?;
    let (local, aws) = match ask.form.get("Scope") {
        None | Some("All") => (true, true),
        Some("Local") => (true, false),
        Some("AWS") => (false, true),
        Some(_) => return Err(IamError::validation("Scope must be All, AWS or Local.")),
    };
    let attached_only = ask.form.get("OnlyAttached") == Some("true");
    let (_, tenant) = tenant(iam, ask)?;
    enum Entry<'a> {
        Own(&'a ManagedPolicy),
        Everybodys(&'static builtin::Builtin),
    }
    // Markers are names; those of everybody stand before an account's own of the same name.
    let own = tenant.policies.iter().filter(|(_, policy)| local && policy.named.path.starts_with(prefix));
    let own = own.map(|(name, policy)| (name.clone(), policy.named.arn("policy"), Entry::Own(policy)));
    let everybodys = builtin::ALL.iter().filter(|_| aws && prefix == "/");
    let everybodys = everybodys.map(|entry| {
        (format!("aws:{}", entry.name), format!("{}{}", builtin::ARN_PREFIX, entry.name), Entry::Everybodys(entry))
    });
    let mut all: Vec<_> = own.chain(everybodys).map(|(name, arn, entry)| (name, uses(&tenant, &arn), entry)).collect();
    all.retain(|(_, (attached, _), _)| !attached_only || *attached > 0);
    all.sort_by(|one, other| one.0.cmp(&other.0));
    let all = all.iter().map(|(name, uses, entry)| (name.as_str(), (uses, entry)));
    page(&ask.form, all, "Policies", |xml, (uses, entry)| match entry {
        Entry::Own(policy) => write(xml, policy, *uses),
        Entry::Everybodys(entry) => write_builtin(xml, entry, *uses),
    })
}

pub(super) async fn delete(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let arn = ask.form.required("PolicyArn")?.to_owned();
    ask.authorize("iam:DeletePolicy", &arn)?;
    own(&arn)?;
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let tenant = draft.state.tenant(&account)?;
        let policy = Arc::clone(tenant.policy(&arn)?);
        if uses(tenant, &arn) != (0, 0) {
            return Err(IamError::delete_conflict("Cannot delete a policy attached to entities."));
        }
        if policy.versions.len() > 1 {
            let message = "This policy has more than one version. Before you delete a policy, you must delete the policy's versions. \
                The default version is deleted with the policy.";
            return Err(IamError::delete_conflict(message));
        }
        draft.remove_policy(&policy.named)?;
        Ok(nothing())
    })
    .await
}

pub(super) async fn create_version(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let document = ask.form.required("PolicyDocument")?.to_owned();
    let default = ask.form.get("SetAsDefault") == Some("true");
    let made = change(iam, ask, "iam:CreatePolicyVersion", move |policy, now_ms| {
        check_document(&document, Kind::Identity, MANAGED_POLICY_BYTES_MAX)?;
        if policy.versions.len() >= VERSIONS_MAX {
            return Err(IamError::limit(
                "A managed policy can have up to 5 versions. Before you create a new version, you must delete an existing version.",
            ));
        }
        let number = policy.versions.last().map_or(1, |last| last.number + 1);
        policy.versions.push(PolicyVersion { number, document, created_ms: now_ms });
        policy.updated_ms = now_ms;
        if default {
            policy.default_version = number;
        }
        Ok(())
    });
    let policy = made.await?;
    let newest = policy.versions.last().ok_or_else(IamError::failure)?;
    Ok(Xml::fragment(|xml| xml.element("PolicyVersion", |xml| write_version(xml, newest, &policy, false))))
}

pub(super) async fn get_version(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let arn = ask.form.required("PolicyArn")?;
    ask.authorize("iam:GetPolicyVersion", arn)?;
    let version = ask.form.required("VersionId")?;
    let (_, tenant) = tenant(iam, ask)?;
    if let Some(builtin) = builtin::find(arn) {
        check_only(version)?;
        return Ok(Xml::fragment(|xml| {
            xml.element("PolicyVersion", |xml| {
                xml.text("Document", encoded(builtin.document));
                write_only(xml);
            });
        }));
    }
    let policy = tenant.policy(arn)?;
    let found = find(policy, version)?;
    Ok(Xml::fragment(|xml| xml.element("PolicyVersion", |xml| write_version(xml, found, policy, true))))
}

/// The policies of everybody have one version.
fn check_only(version: &str) -> Result<(), IamError> {
    if version == "v1" { Ok(()) } else { Err(no_version(version)) }
}

fn write_only(xml: &mut Xml) {
    xml.text("VersionId", "v1");
    xml.value("IsDefaultVersion", true);
    xml.value("CreateDate", date::iso(0));
}

pub(super) async fn list_versions(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let arn = ask.form.required("PolicyArn")?;
    ask.authorize("iam:ListPolicyVersions", arn)?;
    let (_, tenant) = tenant(iam, ask)?;
    if builtin::find(arn).is_some() {
        return page(&ask.form, std::iter::once(("v1", ())), "Versions", |xml, ()| write_only(xml));
    }
    let policy = tenant.policy(arn)?;
    let named: Vec<(String, &PolicyVersion)> =
        policy.versions.iter().map(|version| (format!("v{:09}", version.number), version)).collect();
    let all = named.iter().map(|(name, version)| (name.as_str(), *version));
    page(&ask.form, all, "Versions", |xml, version| write_version(xml, version, policy, false))
}

pub(super) async fn set_default(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let version = ask.form.required("VersionId")?.to_owned();
    change(iam, ask, "iam:SetDefaultPolicyVersion", move |policy, _| {
        policy.default_version = find(policy, &version)?.number;
        Ok(())
    })
    .await?;
    Ok(nothing())
}

pub(super) async fn delete_version(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let version = ask.form.required("VersionId")?.to_owned();
    change(iam, ask, "iam:DeletePolicyVersion", move |policy, _| {
        let number = find(policy, &version)?.number;
        if number == policy.default_version {
            return Err(IamError::delete_conflict("Cannot delete the default version of a policy."));
        }
        policy.versions.retain(|version| version.number != number);
        Ok(())
    })
    .await?;
    Ok(nothing())
}

pub(super) async fn list_tags(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let arn = ask.form.required("PolicyArn")?;
    ask.authorize("iam:ListPolicyTags", arn)?;
    let (_, tenant) = tenant(iam, ask)?;
    if builtin::find(arn).is_some() {
        return Ok(tags_page(&[]));
    }
    Ok(tags_page(&tenant.policy(arn)?.named.tags))
}

pub(super) async fn tag(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let tags = ask.form.tags("Tags")?;
    change(iam, ask, "iam:TagPolicy", move |policy, _| add_tags(&mut policy.named.tags, tags)).await?;
    Ok(nothing())
}

pub(super) async fn untag(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let keys = ask.form.list("TagKeys");
    change(iam, ask, "iam:UntagPolicy", move |policy, _| {
        remove_tags(&mut policy.named.tags, &keys);
        Ok(())
    })
    .await?;
    Ok(nothing())
}

/// Changes the policy that is named.
async fn change<F>(iam: &Arc<Iam>, ask: &Ask, action: &str, change: F) -> Result<ManagedPolicy, IamError>
where
    F: FnOnce(&mut ManagedPolicy, u64) -> Result<(), IamError> + Send + 'static,
{
    let arn = ask.form.required("PolicyArn")?.to_owned();
    ask.authorize(action, &arn)?;
    own(&arn)?;
    let account = ask.account().to_owned();
    iam.change(move |iam, draft| {
        let tenant: &Tenant = draft.state.tenant(&account)?;
        let mut policy = ManagedPolicy::clone(tenant.policy(&arn)?);
        change(&mut policy, iam.now_ms())?;
        draft.put_policy(policy.clone())?;
        Ok(policy)
    })
    .await
}

fn find<'a>(policy: &'a ManagedPolicy, version: &str) -> Result<&'a PolicyVersion, IamError> {
    let number = version.strip_prefix('v').and_then(|number| number.parse().ok());
    let found = policy.versions.iter().find(|version| Some(version.number) == number);
    found.ok_or_else(|| no_version(version))
}

fn no_version(version: &str) -> IamError {
    IamError::not_found(format!("Policy version {version} does not exist."))
}

fn write(xml: &mut Xml, policy: &ManagedPolicy, (attached, bounds): (usize, usize)) {
    xml.text("PolicyName", &policy.named.name);
    xml.text("PolicyId", &policy.named.id);
    xml.text("Arn", policy.named.arn("policy"));
    xml.text("Path", &policy.named.path);
    xml.value("DefaultVersionId", format_args!("v{}", policy.default_version));
    xml.value("AttachmentCount", attached);
    xml.value("PermissionsBoundaryUsageCount", bounds);
    xml.value("IsAttachable", true);
    xml.value("CreateDate", date::iso(policy.named.created_ms));
    xml.value("UpdateDate", date::iso(policy.updated_ms));
    write_tags(xml, &policy.named.tags);
}

fn write_builtin(xml: &mut Xml, builtin: &builtin::Builtin, (attached, bounds): (usize, usize)) {
    xml.text("PolicyName", builtin.name);
    xml.text("PolicyId", builtin.id);
    xml.text("Arn", format!("{}{}", builtin::ARN_PREFIX, builtin.name));
    xml.text("Path", "/");
    xml.text("DefaultVersionId", "v1");
    xml.value("AttachmentCount", attached);
    xml.value("PermissionsBoundaryUsageCount", bounds);
    xml.value("IsAttachable", true);
    xml.text("Description", builtin.description);
    xml.value("CreateDate", date::iso(0));
    xml.value("UpdateDate", date::iso(0));
}

fn write_version(xml: &mut Xml, version: &PolicyVersion, policy: &ManagedPolicy, whole: bool) {
    if whole {
        xml.text("Document", encoded(&version.document));
    }
    xml.value("VersionId", format_args!("v{}", version.number));
    xml.value("IsDefaultVersion", version.number == policy.default_version);
    xml.value("CreateDate", date::iso(version.created_ms));
}
