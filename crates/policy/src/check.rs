//! What a policy must be to be one of a bucket, of an identity, or of the trust that a role has.

use crate::arn::ArnPattern;
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
    /// With what AWS tells the client: it must have principals, actions of S3, and resources of this bucket. Unlike on AWS an action may
    /// stand with a resource that it is never about: that says nothing.
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
    if !resources.what.iter().all(|resource| may_be_of(resource, bucket)) {
        return Err(PolicyError::new("Policy has invalid resource"));
    }
    if !statement.actions.what.are_of_s3() {
        return Err(PolicyError::new("Policy has invalid action"));
    }
    Ok(())
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
