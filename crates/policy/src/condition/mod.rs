//! The element `Condition`: when a statement holds.

mod date;
mod network;
mod operator;

use crate::arn::ArnPattern;
use crate::error::{PolicyError, shown};
use crate::json::Json;
use crate::pattern::{LOOKUP_STEPS, Marks, Pattern, paid_for};
use crate::request::Context;

use network::Network;
pub(crate) use operator::{Kind, Quantifier};
use operator::{Operator, number};

/// One key of one operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) operator: Operator,
    /// As it was written.
    key: String,
    pub(crate) values: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    source: String,
    pub(crate) read: Read,
}

/// What a value was read as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Pattern(Pattern),
    Arn(ArnPattern),
    Network(Network),
}

impl Condition {
    /// # Errors
    /// For operators, keys and values that are none.
    pub(crate) fn parse_all(json: Json, variables: bool) -> Result<Vec<Self>, PolicyError> {
        let syntax = || PolicyError::new("Invalid policy syntax.");
        let Json::Object(operators) = json else { return Err(syntax()) };
        let mut conditions = Vec::new();
        for (name, keys) in operators {
            let operator = Operator::parse(&name)
                .ok_or_else(|| PolicyError::new(format!("Invalid Condition type : {}", shown(&name))))?;
            let Json::Object(keys) = keys else { return Err(syntax()) };
            for (key, values) in keys {
                if !is_key(&key) {
                    return Err(PolicyError::new("Policy has an invalid condition key"));
                }
                let values = match values {
                    Json::List(list) => list,
                    one => vec![one],
                };
                let values = values.into_iter().map(|value| {
                    let source = scalar(value).ok_or_else(syntax)?;
                    Ok(Value { read: read(&operator, &source, variables)?, source })
                });
                conditions.push(Self { operator, key, values: values.collect::<Result<_, PolicyError>>()? });
            }
        }
        Ok(conditions)
    }

    /// The element again.
    pub(crate) fn to_json(conditions: &[Self]) -> Json {
        let mut operators: Vec<(String, Vec<(String, Json)>)> = Vec::new();
        for condition in conditions {
            let name = condition.operator.to_string();
            let values = condition.values.iter().map(|value| Json::Text(value.source.clone())).collect();
            let entry = (condition.key.clone(), Json::List(values));
            match operators.iter_mut().find(|(present, _)| *present == name) {
                Some((_, keys)) => keys.push(entry),
                None => operators.push((name, vec![entry])),
            }
        }
        Json::Object(operators.into_iter().map(|(name, keys)| (name, Json::Object(keys))).collect())
    }

    /// The key, in lower case.
    pub(crate) fn key(&self) -> String {
        self.key.to_lowercase()
    }

    pub(crate) fn mentions(&self, prefix: &str) -> bool {
        let reads = |value: &Value| match &value.read {
            Read::Pattern(pattern) => pattern.mentions(prefix),
            Read::Arn(arn) => arn.mentions(prefix),
            Read::Network(_) => false,
        };
        self.key().starts_with(prefix) || self.values.iter().any(reads)
    }

    /// Whether it holds; nothing when that depends on a variable that has no value.
    pub(crate) fn holds(&self, context: &Context) -> Option<bool> {
        context.spend(LOOKUP_STEPS)?;
        let present = context.get(&self.key);
        if self.operator.kind == Kind::Null {
            let absent = if present.is_none() { "true" } else { "false" };
            return Some(self.values.iter().any(|value| value.source.eq_ignore_ascii_case(absent)));
        }
        let Some(texts) = present else {
            let all = self.operator.quantifier == Some(Quantifier::All);
            let any = self.operator.quantifier == Some(Quantifier::Any);
            return Some(self.operator.if_exists || all || self.operator.negated && !any);
        };
        let one = |text: &String| self.holds_for(text, context);
        match self.operator.quantifier {
            Some(Quantifier::All) => all(texts.iter().map(one)),
            Some(Quantifier::Any) => any(texts.iter().map(one)),
            // Of several values none may be one that is excepted; one that is wanted is enough.
            None if self.operator.negated => all(texts.iter().map(one)),
            None => any(texts.iter().map(one)),
        }
    }

    fn holds_for(&self, text: &str, context: &Context) -> Option<bool> {
        let mut unknown = false;
        for value in &self.values {
            match self.compare(&value.read, text, context) {
                Some(true) => return Some(!self.operator.negated),
                Some(false) => {}
                None => unknown = true,
            }
        }
        match self.operator.negated {
            true if unknown => None,
            negated => Some(negated),
        }
    }

    /// Whether a text is as a value wants it, the operator's `Not` left aside.
    fn compare(&self, value: &Read, text: &str, context: &Context) -> Option<bool> {
        let pattern = match value {
            Read::Network(network) => return Some(network.contains(text)),
            Read::Arn(arn) => return arn.matches(text, context),
            Read::Pattern(pattern) => pattern,
        };
        context.spend(paid_for(text.len()))?;
        Some(match self.operator.kind {
            Kind::Equals | Kind::Like | Kind::Binary => pattern.matches(text, context)?,
            Kind::EqualsIgnoringCase | Kind::Bool => {
                context.spend(text.len())?;
                pattern.expanded(context)?.to_lowercase() == text.to_lowercase()
            }
            Kind::Number(order) => match (number(text), number(&pattern.expanded(context)?)) {
                (Some(text), Some(wanted)) => text.partial_cmp(&wanted).is_some_and(|found| order.is(found)),
                _ => false,
            },
            Kind::Date(order) => match (date::milliseconds(text), date::milliseconds(&pattern.expanded(context)?)) {
                (Some(text), Some(wanted)) => order.is(text.cmp(&wanted)),
                _ => false,
            },
            // Read as what they are, and answered above.
            Kind::Ip | Kind::Arn | Kind::ArnLike | Kind::Null => false,
        })
    }
}

/// Whether one holds; unknown when only those could that are unknown.
fn any(outcomes: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut unknown = false;
    for outcome in outcomes {
        match outcome {
            Some(true) => return Some(true),
            Some(false) => {}
            None => unknown = true,
        }
    }
    (!unknown).then_some(false)
}

/// Whether all hold; unknown when none fails but those could that are unknown.
fn all(outcomes: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    any(outcomes.map(|outcome| outcome.map(|holds| !holds))).map(|fails| !fails)
}

/// Keys are `service:name`, or what an identity provider says: `provider.example/path:claim`.
fn is_key(key: &str) -> bool {
    let parts = key.split_once(':');
    parts.is_some_and(|(service, name)| !service.is_empty() && !name.is_empty()) && !key.contains(['*', '?', '$'])
}

fn scalar(json: Json) -> Option<String> {
    match json {
        Json::Text(text) | Json::Number(text) => Some(text),
        Json::Bool(value) => Some(value.to_string()),
        Json::Null | Json::List(_) | Json::Object(_) => None,
    }
}

fn read(operator: &Operator, source: &str, variables: bool) -> Result<Read, PolicyError> {
    let invalid = || PolicyError::new(format!("Invalid value in a {} condition: {}", operator.family(), shown(source)));
    let is_read = |valid: bool, read: Read| if valid { Ok(read) } else { Err(invalid()) };
    let wildcards = operator.kind == Kind::Like;
    let pattern = || Pattern::parse(source, Marks { wildcards, variables });
    match operator.kind {
        Kind::Ip => Network::parse(source).map(Read::Network).ok_or_else(invalid),
        Kind::Arn | Kind::ArnLike => ArnPattern::parse(source, variables)?.map(Read::Arn).ok_or_else(invalid),
        Kind::Equals | Kind::EqualsIgnoringCase | Kind::Like => Ok(Read::Pattern(pattern()?)),
        Kind::Number(_) | Kind::Date(_) => {
            let pattern = pattern()?;
            let is_one = |text: &str| match operator.kind {
                Kind::Number(_) => number(text).is_some(),
                _ => date::milliseconds(text).is_some(),
            };
            is_read(!pattern.is_fixed() || is_one(source), Read::Pattern(pattern))
        }
        Kind::Bool | Kind::Null => {
            let pattern = pattern()?;
            let is_bool = source.eq_ignore_ascii_case("true") || source.eq_ignore_ascii_case("false");
            is_read(is_bool || operator.kind == Kind::Bool && !pattern.is_fixed(), Read::Pattern(pattern))
        }
        Kind::Binary => {
            let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
            is_read(source.bytes().all(is_base64), Read::Pattern(pattern()?))
        }
    }
}

#[cfg(test)]
mod tests;
