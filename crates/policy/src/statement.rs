//! One statement of a policy.

use crate::action::Actions;
use crate::arn::ArnPattern;
use crate::condition::Condition;
use crate::error::{PolicyError, shown};
use crate::json::Json;
use crate::principal::{Principals, Reach, texts};
use crate::request::Request;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Allow,
    Deny,
}

/// Something that is named, or of which all else is meant (`NotPrincipal`, `NotAction`, `NotResource`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named<T> {
    pub(crate) negated: bool,
    pub(crate) what: T,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) sid: Option<String>,
    pub(crate) effect: Effect,
    /// Of policies of resources.
    pub(crate) principals: Option<Named<Principals>>,
    pub(crate) actions: Named<Actions>,
    /// Nothing in those that are about the one thing that they belong to.
    pub(crate) resources: Option<Named<Vec<ArnPattern>>>,
    pub(crate) conditions: Vec<Condition>,
}

impl Statement {
    /// # Errors
    /// With what AWS says about it.
    pub(crate) fn parse(json: Json, variables: bool) -> Result<Self, PolicyError> {
        let Json::Object(entries) = json else { return Err(PolicyError::new("Invalid policy syntax.")) };
        let (mut sid, mut effect, mut principals, mut actions, mut resources) = (None, None, None, None, None);
        let mut conditions = Vec::new();
        for (name, value) in entries {
            let negated = name.starts_with("Not");
            match name.as_str() {
                "Sid" => sid = Some(text(value, "Sid")?),
                "Effect" => effect = Some(parse_effect(&text(value, "Effect")?)?),
                "Principal" | "NotPrincipal" => {
                    set(&mut principals, negated, Principals::parse(value)?, "Principal and NotPrincipal")?;
                }
                "Action" | "NotAction" => set(&mut actions, negated, Actions::parse(value)?, "Action and NotAction")?,
                "Resource" | "NotResource" => {
                    set(&mut resources, negated, parse_resources(value, variables)?, "Resource and NotResource")?;
                }
                "Condition" => conditions = Condition::parse_all(value, variables)?,
                unknown => return Err(PolicyError::new(format!("Unknown field {}", shown(unknown)))),
            }
        }
        let missing = |name: &str| PolicyError::new(format!("Missing required field {name}"));
        Ok(Self {
            sid,
            effect: effect.ok_or_else(|| missing("Effect"))?,
            principals,
            actions: actions.ok_or_else(|| missing("Action"))?,
            resources,
            conditions,
        })
    }

    pub(crate) fn to_json(&self) -> Json {
        let mut entries: Vec<(String, Json)> = Vec::new();
        let mut push = |name: &str, negated: bool, value: Json| {
            entries.push((if negated { format!("Not{name}") } else { name.to_owned() }, value));
        };
        if let Some(sid) = &self.sid {
            push("Sid", false, Json::Text(sid.clone()));
        }
        let effect = if self.effect == Effect::Allow { "Allow" } else { "Deny" };
        push("Effect", false, Json::Text(effect.to_owned()));
        if let Some(principals) = &self.principals {
            push("Principal", principals.negated, principals.what.to_json());
        }
        push("Action", self.actions.negated, self.actions.what.to_json());
        if let Some(resources) = &self.resources {
            let list = resources.what.iter().map(|resource| Json::Text(resource.source().to_owned()));
            push("Resource", resources.negated, Json::List(list.collect()));
        }
        if !self.conditions.is_empty() {
            push("Condition", false, Condition::to_json(&self.conditions));
        }
        Json::Object(entries)
    }

    /// How it reaches who asks; nothing when it is not about the request. `action` is the request's in lower case.
    pub(crate) fn applies(&self, request: &Request<'_>, action: &str) -> Option<Reach> {
        let reach = match &self.principals {
            None => Reach::Direct,
            Some(Named { negated: false, what }) => what.reach(&request.principal)?,
            Some(Named { negated: true, what }) if what.name(&request.principal) => return None,
            Some(Named { negated: true, .. }) => Reach::Direct,
        };
        if self.actions.what.matches(action, request.context) == self.actions.negated || !self.is_about(request) {
            return None;
        }
        // What can not be known does not allow, and does not keep from denying.
        let unknown = self.effect == Effect::Deny;
        let holds = |condition: &Condition| condition.holds(request.context).unwrap_or(unknown);
        self.conditions.iter().all(holds).then_some(reach)
    }

    pub(crate) fn mentions(&self, prefix: &str) -> bool {
        let resources = self.resources.iter().flat_map(|resources| &resources.what);
        self.conditions.iter().any(|condition| condition.mentions(prefix))
            || resources.into_iter().any(|resource| resource.mentions(prefix))
    }

    /// Whether it is about the resource of the request.
    fn is_about(&self, request: &Request<'_>) -> bool {
        let Some(resources) = &self.resources else { return true };
        let mut unknown = false;
        for pattern in &resources.what {
            match pattern.matches(request.resource, request.context) {
                Some(true) => return !resources.negated,
                Some(false) => {}
                None => unknown = true,
            }
        }
        // `NotResource` with a variable that has no value: nobody knows which resource was excepted.
        resources.negated && (!unknown || self.effect == Effect::Deny)
    }
}

fn set<T>(slot: &mut Option<Named<T>>, negated: bool, what: T, both: &str) -> Result<(), PolicyError> {
    if slot.is_some() {
        return Err(PolicyError::new(format!("A statement cannot have both {both}")));
    }
    *slot = Some(Named { negated, what });
    Ok(())
}

fn text(json: Json, name: &str) -> Result<String, PolicyError> {
    match json {
        Json::Text(text) => Ok(text),
        _ => Err(PolicyError::new(format!("Invalid {name} in policy"))),
    }
}

fn parse_effect(text: &str) -> Result<Effect, PolicyError> {
    match text {
        "Allow" => Ok(Effect::Allow),
        "Deny" => Ok(Effect::Deny),
        other => Err(PolicyError::new(format!("Invalid effect: {}", shown(other)))),
    }
}

fn parse_resources(json: Json, variables: bool) -> Result<Vec<ArnPattern>, PolicyError> {
    let invalid = || PolicyError::new("Policy has invalid resource");
    let texts = texts(json).filter(|texts| !texts.is_empty()).ok_or_else(invalid)?;
    texts.iter().map(|text| ArnPattern::parse(text, variables)?.ok_or_else(invalid)).collect()
}
