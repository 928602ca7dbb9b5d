//! What a policy must be to be one of a bucket, of an identity, or of the trust that a role has.

use crate::action::About;
use crate::arn::ArnPattern;
use crate::condition::Condition;
use crate::error::PolicyError;
use crate::pattern::{Pattern, Piece};
use crate::policy::Policy;
use crate::principal::Principals;
use crate::request::Context;
use crate::statement::{Effect, Named, Statement};

impl Policy {
    /// Checks that it can be the policy of a bucket.
    ///
    /// # Errors
    /// With what AWS tells the client: it must have principals, actions of S3, and resources of this bucket that each action can be about.
    pub fn check_bucket(&self, bucket: &str) -> Result<(), PolicyError> {
        self.statements.iter().try_for_each(|statement| check_of_bucket(statement, bucket))
    }

    /// Checks that it can be attached to a user, a group, a role or a session.
    ///
    /// # Errors
    /// With what AWS tells the client: it has no principals, it has resources, and the ids of its statements are unique.
    pub fn check_identity(&self) -> Result<(), PolicyError> {
        let mut sids = std::collections::HashSet::new();
        let mut named = self.statements.iter().filter_map(|statement| statement.sid.as_ref());
        if !named.all(|sid| sid.is_empty() || sids.insert(sid)) {
            return Err(PolicyError::new("Statement IDs (SID) in a single policy must be unique."));
        }
        for statement in &self.statements {
            if statement.principals.is_some() {
                return Err(PolicyError::new("Policy document should not specify a principal."));
            }
            if statement.resources.is_none() {
                return Err(PolicyError::new("Policy statement must contain resources."));
            }
        }
        Ok(())
    }

    /// Checks that it can say who may take on a role.
    ///
    /// # Errors
    /// With what AWS tells the client: it has principals, and no resources.
    pub fn check_trust(&self) -> Result<(), PolicyError> {
        for statement in &self.statements {
            if statement.resources.is_some() {
                return Err(PolicyError::new("Has prohibited field Resource"));
            }
            check_principals(statement)?;
        }
        Ok(())
    }

    /// The principals of AWS that its statements name (`*` left out), so that the caller may see whether there are such.
    pub fn principals(&self) -> impl Iterator<Item = &str> {
        let named = self.statements.iter().filter_map(|statement| statement.principals.as_ref());
        named.flat_map(|named| named.what.of_kind(crate::principal::Kind::Aws)).filter(|name| *name != "*")
    }
}

fn check_principals(statement: &Statement) -> Result<&Named<Principals>, PolicyError> {
    let principals =
        statement.principals.as_ref().ok_or_else(|| PolicyError::new("Missing required field Principal"))?;
    if principals.negated && statement.effect == Effect::Allow {
        // It would allow anonymous requests, too; AWS does not accept it any more.
        return Err(PolicyError::new("Allow with NotPrincipal is not allowed."));
    }
    Ok(principals)
}

fn check_of_bucket(statement: &Statement, bucket: &str) -> Result<(), PolicyError> {
    check_principals(statement)?;
    let resources = statement.resources.as_ref().ok_or_else(|| PolicyError::new("Missing required field Resource"))?;
    // A bare `*` names no bucket: AWS has it in policies of identities only.
    if !resources.what.iter().all(|resource| resource.source() != "*" && may_be_of(resource, bucket)) {
        return Err(PolicyError::new("Policy has invalid resource"));
    }
    if !statement.actions.what.are_of_s3() {
        return Err(PolicyError::new("Policy has invalid action"));
    }
    let may_be = |about| resources.what.iter().any(|resource| may_be_a(resource, about));
    if !statement.actions.negated && !resources.negated && !statement.actions.what.all_apply(may_be) {
        return Err(PolicyError::new("Action does not apply to any resource(s) in statement"));
    }
    if !statement.conditions.iter().all(|condition| is_known_key(&condition.key())) {
        return Err(PolicyError::new("Policy has an invalid condition key"));
    }
    let lists = |condition: &Condition| LIST_KEYS.contains(&condition.key().as_str());
    if !statement.actions.negated && statement.conditions.iter().any(lists) {
        // They say something of lists alone.
        let context = Context::default();
        let is_list = |action: &&str| statement.actions.what.matches(action, &context);
        if !LIST_ACTIONS.iter().any(is_list) {
            let message = "Conditions do not apply to combination of actions and resources in statement";
            return Err(PolicyError::new(message));
        }
    }
    Ok(())
}

/// Condition keys that only lists have, and the actions that list, all in lower case.
const LIST_KEYS: [&str; 3] = ["s3:prefix", "s3:delimiter", "s3:max-keys"];
const LIST_ACTIONS: [&str; 3] = ["s3:listbucket", "s3:listbucketversions", "s3:listbucketmultipartuploads"];

/// Condition keys of S3, in lower case; those that end with a slash are followed by a name. Source: AWS, "Actions, resources, and condition keys
/// for Amazon S3".
const S3_KEYS: &[&str] = &[
    "accessgrantsinstancearn",
    "accessgrantslocationscope",
    "accesspointnetworkorigin",
    "accesspointtag/",
    "authtype",
    "buckettag/",
    "dataaccesspointaccount",
    "dataaccesspointarn",
    "delimiter",
    "destinationregion",
    "existingjoboperation",
    "existingjobpriority",
    "existingobjecttag/",
    "if-match",
    "if-none-match",
    "inventoryaccessibleoptionalfields",
    "isreplicationpauserequest",
    "jobsuspendedcause",
    "locationconstraint",
    "max-keys",
    "object-lock-legal-hold",
    "object-lock-mode",
    "object-lock-remaining-retention-days",
    "object-lock-retain-until-date",
    "objectcreationoperation",
    "prefix",
    "requestjoboperation",
    "requestjobpriority",
    "requestobjecttag/",
    "requestobjecttagkeys",
    "resourceaccount",
    "signatureage",
    "signatureversion",
    "tlsversion",
    "versionid",
];

/// Whether a condition key, in lower case, is one that a bucket's policy may have: of those of S3, one that there is.
fn is_known_key(key: &str) -> bool {
    let Some(name) = key.strip_prefix("s3:") else { return true };
    let is_one = |known: &&str| if known.ends_with('/') { name.starts_with(*known) } else { name == *known };
    name.starts_with("x-amz-") || S3_KEYS.iter().any(is_one)
}

/// Whether a pattern may name a bucket, or an object: what holds a slash names no bucket, and what can not hold one no object.
fn may_be_a(resource: &ArnPattern, about: About) -> bool {
    let Some(pattern) = resource.resource() else { return true };
    let has_slash = |piece: &Piece| matches!(piece, Piece::Text(text) if text.contains('/'));
    let is_open = |piece: &Piece| !matches!(piece, Piece::Text(_));
    match about {
        About::Bucket => !pattern.pieces().iter().any(has_slash),
        About::Object => pattern.pieces().iter().any(|piece| has_slash(piece) || is_open(piece)),
    }
}

/// Whether a pattern may name a bucket or something in it.
fn may_be_of(resource: &ArnPattern, bucket: &str) -> bool {
    let matches = |pattern: &Pattern, text: &str| pattern.matches(text, &Context::default()).unwrap_or(true);
    resource.service().is_none_or(|service| matches(service, "s3"))
        && resource.resource().is_none_or(|pattern| begins_like(pattern.pieces(), bucket))
}

/// Whether what stands before the first slash may be the bucket's name.
fn begins_like(pieces: &[Piece], bucket: &str) -> bool {
    let mut name = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => match text.split_once('/') {
                Some((before, _)) => {
                    name.push(Piece::Text(before.to_owned()));
                    break;
                }
                None => name.push(piece.clone()),
            },
            Piece::Variable { .. } => name.push(Piece::Any),
            Piece::Any | Piece::One => name.push(piece.clone()),
        }
    }
    name.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
    Pattern::from_pieces(name).matches(bucket, &Context::default()) == Some(true)
}
