//! STS: temporary credentials for users, for those who may take on a role, and for those whom an identity provider vouches for.
//!
//! Source: AWS, "STS API Reference". Unlike on AWS, a trust policy that names a user of another account by his ARN suffices, as it does within one account;
//! what his own policies deny stays denied.

use std::sync::Arc;

use gabion_policy::limits::SESSION_POLICY_BYTES_MAX;
use gabion_policy::{Context, Decision, Layers, Policy, decide};

use super::api::{Ask, Kind, Names, Reply, check_document};
use super::error::IamError;
use super::model::Role;
use super::session::{Session, Subject};
use super::state::{State, Tenant};
use super::{Iam, ids};
use crate::credentials::{Principal, Tags};
use crate::s3::{Xml, date};

/// Shortest session, in seconds.
const SESSION_S_MIN: u64 = 900;
/// Length of a session of a role that nothing is said about.
const ROLE_SESSION_S: u64 = 3600;
/// Longest session that is taken on out of another.
const CHAINED_SESSION_S_MAX: u64 = 3600;
/// Length of a user's own session that nothing is said about, and the longest.
const OWN_SESSION_S: u64 = 43_200;
const OWN_SESSION_S_MAX: u64 = 129_600;
/// The same for a root.
const ROOT_SESSION_S_MAX: u64 = 3600;
/// Most managed policies that narrow a session.
const POLICY_ARNS_MAX: usize = 10;

pub(super) async fn caller_identity(_: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    // Whoever can sign may know who he is: AWS asks no policy either.
    let caller = &ask.caller;
    Ok(Xml::fragment(|xml| {
        xml.text("Arn", caller.arn());
        xml.text("UserId", caller.user_id());
        xml.text("Account", &caller.account.id);
    }))
}

pub(super) async fn access_key_info(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let access_key = ask.form.required("AccessKeyId")?;
    ask.authorize("sts:GetAccessKeyInfo", "*")?;
    let state = iam.state.load();
    // Only of one's own account: others are not to be probed.
    let owner = match state.keys.get(access_key) {
        Some(key) => Some(&key.doc.account),
        None => iam.is_root_key(access_key).then_some(&iam.first_account),
    };
    if owner.is_none_or(|owner| owner != ask.account()) {
        return Err(IamError::validation("The access key is not known."));
    }
    Ok(Xml::fragment(|xml| xml.text("Account", ask.account())))
}

pub(super) async fn session_token(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let caller = &ask.caller;
    if caller.issued_ms.is_some() {
        return Err(IamError::forbidden("AccessDenied", "Cannot call GetSessionToken with session credentials"));
    }
    let (subject, most_s) = match &caller.principal {
        Principal::Root => (Subject::Root, ROOT_SESSION_S_MAX),
        Principal::User { id, .. } => (Subject::User(id.clone()), OWN_SESSION_S_MAX),
        Principal::Anonymous | Principal::AssumedRole { .. } => {
            return Err(IamError::forbidden("AccessDenied", "Cannot call GetSessionToken with these credentials"));
        }
    };
    // AWS lets everybody who is not denied it, and so do we.
    ask.not_denied("sts:GetSessionToken", "*")?;
    let wanted_s = ask.form.number("DurationSeconds", SESSION_S_MIN, OWN_SESSION_S_MAX)?.unwrap_or(OWN_SESSION_S);
    let now_ms = iam.now_ms();
    let policy = match iam.state.load().keys.get(caller.access_key.as_str()) {
        Some(key) => key.doc.policy.clone(),
        // It was deleted just now, and what narrowed it with it.
        None if !caller.session_policies.is_empty() => {
            return Err(IamError::forbidden("AccessDenied", "Cannot call GetSessionToken with these credentials"));
        }
        None => None,
    };
    let session = Session {
        account: ask.account().to_owned(),
        subject,
        name: String::new(),
        // What narrows a service account narrows its sessions.
        policy,
        policy_arns: Vec::new(),
        tags: Tags::new(),
        federated: Tags::new(),
        issued_ms: now_ms,
        expires_ms: now_ms + wanted_s.min(most_s) * 1000,
    };
    let credentials = issue(iam, &session).await?;
    Ok(Xml::fragment(|xml| xml.raw(&[&credentials])))
}

pub(super) async fn assume_role(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let arn = ask.form.required("RoleArn")?;
    let wish = Wish::of(ask)?;
    let caller = &ask.caller;
    let denied = || IamError::denied(&caller.arn(), "sts:AssumeRole", arn);
    match &caller.principal {
        Principal::Root => {
            return Err(IamError::forbidden("AccessDenied", "Roles may not be assumed by root accounts."));
        }
        Principal::Anonymous => return Err(denied()),
        Principal::User { .. } | Principal::AssumedRole { .. } => {}
    }
    let state = iam.state.load_full();
    // Whether there is such a role is told only to those who may take it on.
    let (tenant, role) = role(&state, arn).ok_or_else(denied)?;
    let trust = Policy::parse(role.trust.as_bytes()).map_err(|_| denied())?;
    let mut context = ask.context.clone();
    wish.describe(&mut context);
    add_role_tags(&mut context, role);
    context.add_optional("sts:ExternalId", ask.form.get("ExternalId"));
    let names = Names::of(caller);
    let allowed = |action: &str| {
        let layers = Layers {
            identity: &caller.policies,
            boundary: caller.boundary.as_deref(),
            session: &caller.session_policies,
            resource: Some(&trust),
            ..Layers::default()
        };
        let request = gabion_policy::Request { principal: names.principal(), action, resource: arn, context: &context };
        decide(&layers, &request) == Decision::Allow
    };
    if !allowed("sts:AssumeRole") || !wish.tags.is_empty() && !allowed("sts:TagSession") {
        return Err(denied());
    }
    let chained = caller.issued_ms.is_some();
    let most_s = if chained { CHAINED_SESSION_S_MAX.min(role.max_session_s) } else { role.max_session_s };
    wish.grant(iam, tenant, role, most_s, Tags::new(), &[]).await
}

pub(super) async fn assume_role_with_web_identity(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let arn = ask.form.required("RoleArn")?;
    let token = ask.form.required("WebIdentityToken")?;
    let wish = Wish::of(ask)?;
    let denied = || IamError::forbidden("AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity");
    let state = iam.state.load_full();
    let issuer = super::oidc::issuer_of(token)?;
    let unknown = || {
        let message = "No OpenIDConnect provider found in your account for the issuer of the token";
        IamError::sender("InvalidIdentityToken", message)
    };
    // Who can not be known is not told which roles there are.
    let (tenant, role) = role(&state, arn).ok_or_else(unknown)?;
    let provider = tenant.providers.get(super::model::host_of(&issuer));
    let provider = provider.filter(|provider| provider.url.trim_end_matches('/') == issuer.trim_end_matches('/'));
    let provider = provider.ok_or_else(unknown)?;
    let claims = iam.issuers.verify(token, provider).await?;
    let trust = Policy::parse(role.trust.as_bytes()).map_err(|_| denied())?;
    let mut context = ask.context.clone();
    // Tags come with the token alone: what anybody can write into the form says nothing.
    let wish = Wish { tags: Tags::new(), ..wish };
    wish.describe(&mut context);
    add_role_tags(&mut context, role);
    let federated = claims.condition_keys(provider.host());
    for (key, value) in &federated {
        context.add(key, value.clone());
    }
    let arn_of_provider = provider.arn();
    let mut tags = claims.session_tags();
    for (key, value) in &tags {
        context.add(&format!("aws:RequestTag/{key}"), value.clone());
        context.add("aws:TagKeys", key.clone());
    }
    // A trust policy may name the provider by its ARN or by its host.
    let allowed = |action: &str| {
        let of = |provider: &str| {
            let principal = gabion_policy::Principal::Federated { provider };
            trust.evaluate(&gabion_policy::Request { principal, action, resource: arn, context: &context })
        };
        let (by_arn, by_host) = (of(&arn_of_provider), of(provider.host()));
        by_arn != Decision::Deny && by_host != Decision::Deny && [by_arn, by_host].contains(&Decision::Allow)
    };
    if !allowed("sts:AssumeRoleWithWebIdentity") || !tags.is_empty() && !allowed("sts:TagSession") {
        return Err(denied());
    }
    tags.truncate(super::api::TAGS_MAX);
    let shown = [
        ("SubjectFromWebIdentityToken", claims.subject.clone()),
        ("Audience", claims.audience.clone()),
        ("Provider", provider.url.clone()),
    ];
    let wish = Wish { tags, ..wish };
    wish.grant(iam, tenant, role, role.max_session_s, federated, &shown).await
}

/// The role with this ARN, wherever it is.
fn role<'a>(state: &'a State, arn: &str) -> Option<(&'a Arc<Tenant>, &'a Arc<Role>)> {
    let (account, resource) = arn.strip_prefix("arn:aws:iam::")?.split_once(':')?;
    let name = resource.strip_prefix("role/")?.rsplit('/').next()?;
    let tenant = state.tenants.get(account)?;
    let role = tenant.role(name).ok()?;
    (role.named.arn("role") == arn).then_some((tenant, role))
}

fn add_role_tags(context: &mut Context, role: &Role) {
    for (key, value) in &role.named.tags {
        context.add(&format!("iam:ResourceTag/{key}"), value.clone());
        context.add(&format!("aws:ResourceTag/{key}"), value.clone());
    }
}

/// What somebody wants of a session.
struct Wish {
    name: String,
    seconds: Option<u64>,
    policy: Option<String>,
    policy_arns: Vec<String>,
    tags: Tags,
}

impl Wish {
    fn of(ask: &Ask) -> Result<Self, IamError> {
        let name = ask.form.required("RoleSessionName")?.to_owned();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
        if !(2..=64).contains(&name.len()) || !name.bytes().all(plain) {
            return Err(IamError::validation("RoleSessionName must have 2 to 64 letters, digits or _+=,.@-"));
        }
        let policy = ask.form.get("Policy").map(str::to_owned);
        if let Some(policy) = &policy {
            check_document(policy, Kind::Identity, SESSION_POLICY_BYTES_MAX).map_err(|error| match error.code {
                "LimitExceeded" => IamError::sender("PackedPolicyTooLarge", "The session policy is too large."),
                _ => error,
            })?;
        }
        let arn = |at: usize| ask.form.get(&format!("PolicyArns.member.{at}.arn")).map(str::to_owned);
        let policy_arns: Vec<String> = (1..=POLICY_ARNS_MAX + 1).map_while(arn).collect();
        if policy_arns.len() > POLICY_ARNS_MAX {
            return Err(IamError::validation(format!("There may be at most {POLICY_ARNS_MAX} PolicyArns.")));
        }
        let seconds = ask.form.number("DurationSeconds", SESSION_S_MIN, OWN_SESSION_S)?;
        Ok(Self { name, seconds, policy, policy_arns, tags: ask.form.tags("Tags")? })
    }

    /// What conditions may look at in it.
    fn describe(&self, context: &mut Context) {
        context.add("sts:RoleSessionName", self.name.clone());
        for (key, value) in &self.tags {
            context.add(&format!("aws:RequestTag/{key}"), value.clone());
            context.add("aws:TagKeys", key.clone());
        }
    }

    /// Gives the credentials.
    async fn grant(
        self,
        iam: &Arc<Iam>,
        tenant: &Tenant,
        role: &Role,
        most_s: u64,
        federated: Tags,
        shown: &[(&str, String)],
    ) -> Result<Reply, IamError> {
        let seconds = self.seconds.unwrap_or_else(|| ROLE_SESSION_S.min(most_s));
        if seconds > most_s {
            return Err(IamError::validation(
                "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.",
            ));
        }
        for arn in &self.policy_arns {
            super::api::check_there(tenant, arn)?;
        }
        let now_ms = iam.now_ms();
        let session = Session {
            account: tenant.doc.id.clone(),
            subject: Subject::Role(role.named.id.clone()),
            name: self.name,
            policy: self.policy,
            policy_arns: self.policy_arns,
            tags: self.tags,
            federated,
            issued_ms: now_ms,
            expires_ms: now_ms + seconds * 1000,
        };
        let credentials = issue(iam, &session).await?;
        Ok(Xml::fragment(|xml| {
            xml.raw(&[&credentials]);
            xml.element("AssumedRoleUser", |xml| {
                xml.text("AssumedRoleId", format!("{}:{}", role.named.id, session.name));
                xml.text(
                    "Arn",
                    format!("arn:aws:sts::{}:assumed-role/{}/{}", session.account, role.named.name, session.name),
                );
            });
            for (name, text) in shown {
                xml.text(name, text);
            }
            if session.policy.is_some() {
                xml.value("PackedPolicySize", packed_percent(&session));
            }
        }))
    }
}

/// How much of what fits a session's policy takes, in percent.
fn packed_percent(session: &Session) -> usize {
    session.policy.as_ref().map_or(0, |policy| (policy.len() * 100 / SESSION_POLICY_BYTES_MAX).clamp(1, 100))
}

/// Makes an access key with its secret and its token, as the element that shows them.
async fn issue(iam: &Arc<Iam>, session: &Session) -> Result<String, IamError> {
    let key = iam.token_key().await?;
    let access_key = ids::temporary(&*iam.entropy);
    let secret = key.secret(&access_key);
    let token = key.token(&*iam.entropy, &access_key, session);
    Ok(Xml::fragment(|xml| {
        xml.element("Credentials", |xml| {
            xml.text("AccessKeyId", &access_key);
            xml.text("SecretAccessKey", secret.expose());
            xml.text("SessionToken", &token);
            xml.value("Expiration", date::iso(session.expires_ms));
        });
    }))
}
