//! Names of conditions: `[ForAllValues:|ForAnyValue:]Operator[IfExists]`.

use std::cmp::Ordering;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operator {
    pub(crate) quantifier: Option<Quantifier>,
    pub(crate) kind: Kind,
    /// Whether the opposite is wanted: such a condition holds also when the key is absent.
    pub(crate) negated: bool,
    pub(crate) if_exists: bool,
}

/// Which of several values of a key must be as the condition wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantifier {
    All,
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Equals,
    EqualsIgnoringCase,
    Like,
    Number(Order),
    Date(Order),
    Bool,
    Binary,
    Ip,
    Arn,
    /// The same under another name.
    ArnLike,
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    pub(crate) fn is(self, found: Ordering) -> bool {
        match self {
            Self::Equal => found.is_eq(),
            Self::Less => found.is_lt(),
            Self::LessOrEqual => found.is_le(),
            Self::Greater => found.is_gt(),
            Self::GreaterOrEqual => found.is_ge(),
        }
    }
}

const OPERATORS: [(&str, Kind, bool); 27] = [
    ("StringEquals", Kind::Equals, false),
    ("StringNotEquals", Kind::Equals, true),
    ("StringEqualsIgnoreCase", Kind::EqualsIgnoringCase, false),
    ("StringNotEqualsIgnoreCase", Kind::EqualsIgnoringCase, true),
    ("StringLike", Kind::Like, false),
    ("StringNotLike", Kind::Like, true),
    ("NumericEquals", Kind::Number(Order::Equal), false),
    ("NumericNotEquals", Kind::Number(Order::Equal), true),
    ("NumericLessThan", Kind::Number(Order::Less), false),
    ("NumericLessThanEquals", Kind::Number(Order::LessOrEqual), false),
    ("NumericGreaterThan", Kind::Number(Order::Greater), false),
    ("NumericGreaterThanEquals", Kind::Number(Order::GreaterOrEqual), false),
    ("DateEquals", Kind::Date(Order::Equal), false),
    ("DateNotEquals", Kind::Date(Order::Equal), true),
    ("DateLessThan", Kind::Date(Order::Less), false),
    ("DateLessThanEquals", Kind::Date(Order::LessOrEqual), false),
    ("DateGreaterThan", Kind::Date(Order::Greater), false),
    ("DateGreaterThanEquals", Kind::Date(Order::GreaterOrEqual), false),
    ("Bool", Kind::Bool, false),
    ("BinaryEquals", Kind::Binary, false),
    ("IpAddress", Kind::Ip, false),
    ("NotIpAddress", Kind::Ip, true),
    ("ArnEquals", Kind::Arn, false),
    ("ArnNotEquals", Kind::Arn, true),
    ("ArnLike", Kind::ArnLike, false),
    ("ArnNotLike", Kind::ArnLike, true),
    ("Null", Kind::Null, false),
];

const QUANTIFIERS: [(&str, Quantifier); 2] = [("ForAllValues:", Quantifier::All), ("ForAnyValue:", Quantifier::Any)];
const IF_EXISTS: &str = "IfExists";

impl Operator {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (quantifier, name) = match QUANTIFIERS.iter().find(|(prefix, _)| name.starts_with(prefix)) {
            Some((prefix, quantifier)) => (Some(*quantifier), &name[prefix.len()..]),
            None => (None, name),
        };
        let (name, if_exists) = match name.strip_suffix(IF_EXISTS) {
            Some(name) => (name, true),
            None => (name, false),
        };
        let (_, kind, negated) = *OPERATORS.iter().find(|(known, ..)| *known == name)?;
        // Whether a key is there is asked of no value.
        let allowed = kind != Kind::Null || quantifier.is_none() && !if_exists;
        allowed.then_some(Self { quantifier, kind, negated, if_exists })
    }

    /// What its values are.
    pub(crate) fn family(&self) -> &'static str {
        match self.kind {
            Kind::Equals | Kind::EqualsIgnoringCase | Kind::Like => "string",
            Kind::Number(_) => "numeric",
            Kind::Date(_) => "date",
            Kind::Bool | Kind::Null => "boolean",
            Kind::Binary => "binary",
            Kind::Ip => "IP address",
            Kind::Arn | Kind::ArnLike => "ARN",
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantifier = QUANTIFIERS.iter().find(|(_, quantifier)| Some(*quantifier) == self.quantifier);
        let name = OPERATORS.iter().find(|(_, kind, negated)| *kind == self.kind && *negated == self.negated);
        f.write_str(quantifier.map_or("", |(prefix, _)| prefix))?;
        f.write_str(name.map_or("", |(name, ..)| name))?;
        f.write_str(if self.if_exists { IF_EXISTS } else { "" })
    }
}

/// An integer or a decimal fraction.
pub(super) fn number(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if are_digits(whole) && are_digits(fraction) { text.parse().ok() } else { None }
}
