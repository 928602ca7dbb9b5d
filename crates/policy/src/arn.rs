//! Names of resources and principals: `arn:partition:service:region:account:resource`.

use crate::error::PolicyError;
use crate::pattern::{Marks, Pattern, Piece, paid_for};
use crate::request::Context;

/// Number of segments; the last may hold colons.
const SEGMENTS: usize = 6;

/// What an ARN must look like: segment by segment, so that a wildcard never reaches from the service into the name of a key that somebody
/// else has chosen. A last segment of a shorter pattern that ends with `*` stands for all that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArnPattern {
    source: String,
    segments: Vec<Pattern>,
}

impl ArnPattern {
    /// # Errors
    /// For a variable that is none; and for what can be no ARN.
    pub(crate) fn parse(text: &str, variables: bool) -> Result<Option<Self>, PolicyError> {
        let pattern = Pattern::parse(text, Marks { wildcards: true, variables })?;
        let segments = segments(&pattern);
        let ends_open = segments.last().is_some_and(|last| last.pieces().last() == Some(&Piece::Any));
        let begins_well = pattern.is_any()
            || segments.len() > 1 && segments.first().is_some_and(|first| !first.is_fixed() || is_arn(first));
        let is_arn = begins_well && (segments.len() == SEGMENTS || ends_open);
        Ok(is_arn.then(|| Self { source: text.to_owned(), segments }))
    }

    /// As it was written.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Whether it stands for one ARN alone.
    pub(crate) fn is_fixed(&self) -> bool {
        self.segments.iter().all(Pattern::is_fixed)
    }

    /// Whether `arn` looks like it; nothing when it has a variable that the request gives no value.
    pub(crate) fn matches(&self, arn: &str, context: &Context) -> Option<bool> {
        context.spend(paid_for(arn.len()))?;
        let parts: Vec<&str> = arn.splitn(self.segments.len(), ':').collect();
        let mut all = parts.len() == self.segments.len();
        for (segment, part) in self.segments.iter().zip(parts) {
            all &= segment.matches(part, context)?;
        }
        Some(all)
    }

    pub(crate) fn mentions(&self, prefix: &str) -> bool {
        self.segments.iter().any(|segment| segment.mentions(prefix))
    }

    /// The pattern of the last segment, of those that have all six.
    pub(crate) fn resource(&self) -> Option<&Pattern> {
        self.segments.get(SEGMENTS - 1)
    }

    /// The pattern of the service.
    pub(crate) fn service(&self) -> Option<&Pattern> {
        self.segments.get(2)
    }
}

fn is_arn(first: &Pattern) -> bool {
    matches!(first.pieces(), [Piece::Text(text)] if text == "arn")
}

/// The pattern cut at its colons; those within variables are none.
fn segments(pattern: &Pattern) -> Vec<Pattern> {
    let mut segments: Vec<Vec<Piece>> = vec![Vec::new()];
    let push = |segments: &mut Vec<Vec<Piece>>, piece: Piece| {
        if let Some(last) = segments.last_mut() {
            last.push(piece);
        }
    };
    for piece in pattern.pieces() {
        let Piece::Text(text) = piece else {
            push(&mut segments, piece.clone());
            continue;
        };
        let parts = text.splitn(SEGMENTS + 1 - segments.len(), ':');
        for (index, part) in parts.enumerate() {
            if index > 0 {
                segments.push(Vec::new());
            }
            if !part.is_empty() {
                push(&mut segments, Piece::Text(part.to_owned()));
            }
        }
    }
    segments.into_iter().map(Pattern::from_pieces).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arns_match_by_segment() {
        let mut context = Context::default();
        context.add("aws:username", "a:b");
        let table = [
            ("*", "arn:aws:s3:::b/k", Some(true)),
            ("arn:aws:s3:::b/*", "arn:aws:s3:::b/k:1", Some(true)),
            ("arn:aws:s3:::b/*x", "arn:aws:s3:::b/k:1x", Some(true)),
            ("arn:aws:s3:::b", "arn:aws:s3:::b/k", Some(false)),
            ("arn:aws:*:::b/*", "arn:aws:s3:::other/:::b/k", Some(false)),
            ("arn:aws:s3*", "arn:aws:s3:::b/k", Some(true)),
            ("arn:aws:iam*", "arn:aws:s3:::b/k", Some(false)),
            ("arn:aws:s3:::${aws:username}/*", "arn:aws:s3:::a:b/k", Some(true)),
            ("arn:aws:s3:::${aws:userid}/*", "arn:aws:s3:::a:b/k", None),
            ("arn:aws:s3:::${aws:userid, 'x:y'}", "arn:aws:s3:::x:y", Some(true)),
            ("arn:*:s3:*:*:b?", "arn:aws:s3:::bb", Some(true)),
            ("arn:aws:s3:::B", "arn:aws:s3:::b", Some(false)),
        ];
        for (pattern, arn, expected) in table {
            let pattern = ArnPattern::parse(pattern, true).unwrap().unwrap();
            assert_eq!(pattern.matches(arn, &context), expected, "{} {arn}", pattern.source());
        }
        for none in ["", "b", "arn", "arn:aws:s3:::", "arn:aws:s3", "b/*", "urn:aws:s3:::b"] {
            let expected = none == "arn:aws:s3:::";
            assert_eq!(ArnPattern::parse(none, true).unwrap().is_some(), expected, "{none}");
        }
    }
}
