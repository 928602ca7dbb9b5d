//! A whole policy.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::error::{PolicyError, shown};
use crate::json::Json;
use crate::limits::BUCKET_POLICY_BYTES_MAX;
use crate::principal::Reach;
use crate::request::Request;
use crate::statement::{Effect, Statement};

/// What a policy, or all policies together, say to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A statement denies it: nothing can allow it.
    Deny,
    /// It is allowed.
    Allow,
    /// No statement is about it: it is denied unless something else allows it.
    Neutral,
}

/// What one policy says, and whom it reaches how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// See [`Decision::Deny`].
    Deny,
    /// It is allowed, to the one who asks or to his account.
    Allow(Reach),
    /// See [`Decision::Neutral`].
    Neutral,
}

/// Which language the document is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Without variables: `${…}` is text. What has no version is this.
    V2008,
    V2012,
}

const VERSIONS: [(Version, &str); 2] = [(Version::V2008, "2008-10-17"), (Version::V2012, "2012-10-17")];

/// A policy that was checked: whatever is in it is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    version: Option<Version>,
    id: Option<String>,
    pub(crate) statements: Vec<Statement>,
}

impl Policy {
    /// Reads a document.
    ///
    /// # Errors
    /// With what AWS tells the client. Nothing that is not understood is let through.
    pub fn parse(document: &[u8]) -> Result<Self, PolicyError> {
        if document.len() > BUCKET_POLICY_BYTES_MAX {
            return Err(PolicyError::new("Policy exceeds the maximum allowed document size."));
        }
        if document.trim_ascii_start().first() != Some(&b'{') {
            return Err(PolicyError::new("Policies must be valid JSON and the first byte must be '{'"));
        }
        let json: Json =
            serde_json::from_slice(document).map_err(|_| PolicyError::new("This policy contains invalid Json"))?;
        let Json::Object(entries) = json else { return Err(PolicyError::new("Invalid policy syntax.")) };
        let (mut version, mut id, mut found) = (None, None, None);
        for (name, value) in entries {
            match (name.as_str(), value) {
                ("Version", Json::Text(text)) => {
                    let known = VERSIONS.iter().find(|(_, known)| *known == text).map(|(version, _)| *version);
                    version = Some(known.ok_or_else(bad_version)?);
                }
                ("Version", _) => return Err(bad_version()),
                ("Id", Json::Text(text)) => id = Some(text),
                ("Id", _) => return Err(PolicyError::new("Invalid Id in policy")),
                ("Statement", value) => found = Some(value),
                (unknown, _) => return Err(PolicyError::new(format!("Unknown field {}", shown(unknown)))),
            }
        }
        let found = match found {
            None => return Err(PolicyError::new("Missing required field Statement")),
            Some(Json::List(list)) if list.is_empty() => {
                return Err(PolicyError::new("Could not parse the policy: Statement is empty!"));
            }
            Some(Json::List(list)) => list,
            Some(one) => vec![one],
        };
        let variables = version == Some(Version::V2012);
        let statements: Vec<Statement> =
            found.into_iter().map(|statement| Statement::parse(statement, variables)).collect::<Result<_, _>>()?;
        Ok(Self { version, id, statements })
    }

    /// What it says to a request.
    #[must_use]
    pub fn evaluate(&self, request: &Request<'_>) -> Decision {
        match self.outcome(request) {
            Outcome::Deny => Decision::Deny,
            Outcome::Allow(_) => Decision::Allow,
            Outcome::Neutral => Decision::Neutral,
        }
    }

    /// What it says to a request, and how far it reaches. An explicit deny wins over all that allow; the order of statements does not matter.
    /// It denies when policies were asked for more than a request may take.
    #[must_use]
    pub fn outcome(&self, request: &Request<'_>) -> Outcome {
        let action = request.action.to_lowercase();
        let mut allowed: Option<Reach> = None;
        for statement in &self.statements {
            let reach = statement.applies(request, &action);
            if request.context.is_spent() {
                return Outcome::Deny;
            }
            match (reach, statement.effect) {
                (None, _) => {}
                (Some(_), Effect::Deny) => return Outcome::Deny,
                (Some(reach), Effect::Allow) => allowed = allowed.max(Some(reach)),
            }
        }
        allowed.map_or(Outcome::Neutral, Outcome::Allow)
    }

    /// Whether a condition or a variable looks at a key that begins so, in lower case.
    #[must_use]
    pub fn mentions(&self, prefix: &str) -> bool {
        self.statements.iter().any(|statement| statement.mentions(prefix))
    }

    /// The document again: the same statements with the same texts, lists where one text could stand alone.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut entries = Vec::new();
        if let Some(version) = self.version {
            let name = VERSIONS.iter().find(|(known, _)| *known == version).map_or("", |(_, name)| *name);
            entries.push(("Version".to_owned(), Json::Text(name.to_owned())));
        }
        if let Some(id) = &self.id {
            entries.push(("Id".to_owned(), Json::Text(id.clone())));
        }
        let statements = self.statements.iter().map(Statement::to_json).collect();
        entries.push(("Statement".to_owned(), Json::List(statements)));
        serde_json::to_string(&Json::Object(entries)).expect("texts in lists and objects can be written")
    }
}

fn bad_version() -> PolicyError {
    PolicyError::new("The policy must contain a valid version string")
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => serializer.serialize_unit(),
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Number(text) | Json::Text(text) => serializer.serialize_str(text),
            Json::List(list) => {
                let mut items = serializer.serialize_seq(Some(list.len()))?;
                for item in list {
                    items.serialize_element(item)?;
                }
                items.end()
            }
            Json::Object(object) => {
                let mut entries = serializer.serialize_map(Some(object.len()))?;
                for (name, value) in object {
                    entries.serialize_entry(name, value)?;
                }
                entries.end()
            }
        }
    }
}

#[cfg(test)]
mod tests;
