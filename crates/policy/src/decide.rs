//! All policies that one request is under, put together.
//!
//! Source: AWS, "Policy evaluation logic" and "Cross-account policy evaluation logic".

use std::sync::Arc;

use crate::policy::{Decision, Outcome, Policy};
use crate::principal::Reach;
use crate::request::{Principal, Request};

/// What says something about a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layers<'a> {
    /// Policies of who asks: a user's and those of his groups, or a role's.
    pub identity: &'a [Arc<Policy>],
    /// What they can allow at most.
    pub boundary: Option<&'a Policy>,
    /// What a session can be allowed at most; none restrict nothing. Each of them must allow it.
    pub session: &'a [Arc<Policy>],
    /// The policy of the resource.
    pub resource: Option<&'a Policy>,
    /// What else the resource allows, by an ACL.
    pub granted: Option<Reach>,
    /// The account that the resource belongs to; nothing when there is no resource of an account.
    pub owner: Option<&'a str>,
}

/// Decides. [`Decision::Neutral`] is a refusal, too, one that another layer could have changed.
#[must_use]
pub fn decide(layers: &Layers<'_>, request: &Request<'_>) -> Decision {
    let resource = layers.resource.map_or(Outcome::Neutral, |policy| policy.outcome(request));
    let identity = all_of(layers.identity, request);
    let boundary = layers.boundary.map_or(Decision::Allow, |policy| policy.evaluate(request));
    let session = layers.session.iter().map(|policy| policy.evaluate(request));
    let session = session.fold(Decision::Allow, |all, one| match (all, one) {
        (Decision::Deny, _) | (_, Decision::Deny) => Decision::Deny,
        (Decision::Allow, Decision::Allow) => Decision::Allow,
        _ => Decision::Neutral,
    });
    if resource == Outcome::Deny || [identity, boundary, session].contains(&Decision::Deny) {
        return Decision::Deny;
    }
    let granted = match resource {
        Outcome::Allow(reach) => layers.granted.max(Some(reach)),
        Outcome::Deny | Outcome::Neutral => layers.granted,
    };
    let limited = boundary == Decision::Allow && session == Decision::Allow;
    // An account's root user may do everything that the account may.
    let root = matches!(request.principal, Principal::Root { .. });
    let itself = limited && (root || identity == Decision::Allow);
    let allowed = match request.principal.account() {
        // Who has no account is under no policies of his own.
        None => granted == Some(Reach::Direct),
        Some(account) if layers.owner.is_none_or(|owner| owner == account) => match granted {
            // A session that is named itself is given what it is given; the policy of a key narrows whoever has the key.
            Some(Reach::Direct) => session == Decision::Allow || matches!(request.principal, Principal::Session { .. }),
            Some(Reach::Role) => limited,
            Some(Reach::Account) | None => itself,
        },
        // Both accounts must allow it.
        Some(_) => granted.is_some() && itself,
    };
    if allowed { Decision::Allow } else { Decision::Neutral }
}

fn all_of(policies: &[Arc<Policy>], request: &Request<'_>) -> Decision {
    let mut all = Decision::Neutral;
    for policy in policies {
        match policy.evaluate(request) {
            Decision::Deny => return Decision::Deny,
            Decision::Allow => all = Decision::Allow,
            Decision::Neutral => {}
        }
    }
    all
}

#[cfg(test)]
mod tests;
