//! The element `Principal`: whom a statement is about.

use crate::error::{PolicyError, shown};
use crate::json::Json;
use crate::request::Principal;

/// How a policy of a resource reaches somebody. The greater grants more by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Through his account: which must allow it, too.
    Account,
    /// A session, through its role or as one of all: boundary and session policies must allow it, too.
    Role,
    /// By name, or as one of all: nothing else has to allow it within the account.
    Direct,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Aws,
    Federated,
    Service,
    CanonicalUser,
}

const KINDS: [(Kind, &str); 4] = [
    (Kind::Aws, "AWS"),
    (Kind::Federated, "Federated"),
    (Kind::Service, "Service"),
    (Kind::CanonicalUser, "CanonicalUser"),
];

/// Whom a statement names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Principals {
    /// `"*"`.
    All,
    Named(Vec<(Kind, Vec<String>)>),
}

impl Principals {
    /// # Errors
    /// `Invalid principal in policy`.
    pub(crate) fn parse(json: Json) -> Result<Self, PolicyError> {
        let invalid = || PolicyError::new("Invalid principal in policy");
        match json {
            Json::Text(text) if text == "*" => Ok(Self::All),
            Json::Object(kinds) if !kinds.is_empty() => {
                let mut named = Vec::with_capacity(kinds.len());
                for (name, values) in kinds {
                    let kind = KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind);
                    let kind =
                        kind.ok_or_else(|| PolicyError::new(format!("Invalid principal type: {}", shown(&name))))?;
                    let values = texts(values).filter(|values| !values.is_empty()).ok_or_else(invalid)?;
                    if !values.iter().all(|value| is_valid(kind, value)) {
                        return Err(invalid());
                    }
                    named.push((kind, values));
                }
                Ok(Self::Named(named))
            }
            _ => Err(invalid()),
        }
    }

    pub(crate) fn to_json(&self) -> Json {
        match self {
            Self::All => Json::Text("*".to_owned()),
            Self::Named(named) => {
                let kinds = named.iter().map(|(kind, values)| {
                    let name = KINDS.iter().find(|(known, _)| known == kind).map_or("", |(_, name)| *name);
                    (name.to_owned(), Json::List(values.iter().cloned().map(Json::Text).collect()))
                });
                Json::Object(kinds.collect())
            }
        }
    }

    /// How they reach somebody; nothing when they do not.
    pub(crate) fn reach(&self, principal: &Principal<'_>) -> Option<Reach> {
        match self {
            Self::All => Some(reach_of_all(principal)),
            Self::Named(named) => {
                let all = named.iter().flat_map(|(kind, values)| values.iter().map(|value| (*kind, value.as_str())));
                all.filter_map(|(kind, value)| reach(kind, value, principal)).max()
            }
        }
    }

    /// Whether they name exactly this one, as `NotPrincipal` excepts somebody: an account's name stands for its root user alone.
    pub(crate) fn name(&self, principal: &Principal<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Named(_) => self.reach(principal).is_some_and(|reach| reach > Reach::Account),
        }
    }

    /// Whether anybody at all is among them.
    pub(crate) fn has_everybody(&self) -> bool {
        match self {
            Self::All => true,
            Self::Named(named) => {
                named.iter().any(|(kind, values)| *kind == Kind::Aws && values.iter().any(|value| value == "*"))
            }
        }
    }

    pub(crate) fn of_kind(&self, wanted: Kind) -> impl Iterator<Item = &str> {
        let named = match self {
            Self::All => &[][..],
            Self::Named(named) => named,
        };
        let of_kind = named.iter().filter(move |(kind, _)| *kind == wanted);
        of_kind.flat_map(|(_, values)| values.iter().map(String::as_str))
    }
}

/// A text, or a list of texts.
pub(crate) fn texts(json: Json) -> Option<Vec<String>> {
    let text = |json| match json {
        Json::Text(text) => Some(text),
        _ => None,
    };
    match json {
        Json::List(list) => list.into_iter().map(text).collect(),
        json => Some(vec![text(json)?]),
    }
}

fn reach_of_all(principal: &Principal<'_>) -> Reach {
    match principal {
        Principal::Session { .. } => Reach::Role,
        _ => Reach::Direct,
    }
}

fn reach(kind: Kind, value: &str, principal: &Principal<'_>) -> Option<Reach> {
    let through_account = || match principal {
        Principal::Root { .. } => Reach::Direct,
        _ => Reach::Account,
    };
    match (kind, principal) {
        (Kind::Aws, Principal::Federated { .. } | Principal::Service { .. }) => None,
        (Kind::Aws, _) if value == "*" => Some(reach_of_all(principal)),
        (Kind::Aws, _) => {
            let account = principal.account()?;
            if account_named(value) == Some(account) {
                return Some(through_account());
            }
            match *principal {
                Principal::User { arn, id, .. } if value == arn || value == id => Some(Reach::Direct),
                Principal::Session { arn, .. } if value == arn => Some(Reach::Direct),
                Principal::Session { role_arn, id, .. } if value == role_arn || value == id => Some(Reach::Role),
                _ => None,
            }
        }
        (Kind::CanonicalUser, _) => (principal.canonical_id()? == value).then(through_account),
        (Kind::Federated, Principal::Federated { provider }) => {
            (value == "*" || value == *provider).then_some(Reach::Direct)
        }
        (Kind::Service, Principal::Service { name }) => (value == "*" || value == *name).then_some(Reach::Direct),
        (Kind::Federated | Kind::Service, _) => None,
    }
}

/// The account that a principal's name stands for, if it stands for a whole account.
fn account_named(value: &str) -> Option<&str> {
    let name = match value.strip_prefix("arn:aws:iam::") {
        Some(rest) => rest.strip_suffix(":root")?,
        None => value,
    };
    is_account(name).then_some(name)
}

/// AWS has twelve digits; others have names.
fn is_account(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn is_valid(kind: Kind, value: &str) -> bool {
    if kind != Kind::Aws {
        return !value.is_empty() && (value == "*" || !value.contains('*'));
    }
    let is_id = |value: &str| {
        (1..=128).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
    };
    if value == "*" || is_id(value) {
        return true;
    }
    let parts: Vec<&str> = value.splitn(6, ':').collect();
    let ["arn", "aws", service @ ("iam" | "sts"), "", account, resource] = parts[..] else { return false };
    if !is_account(account) || resource.contains(['*', '?']) {
        return false;
    }
    match (service, resource.split_once('/')) {
        ("iam", None) => resource == "root",
        ("iam", Some(("user" | "role", name))) => !name.is_empty(),
        ("sts", Some(("assumed-role", name))) => {
            name.split_once('/').is_some_and(|(role, session)| !role.is_empty() && !session.is_empty())
        }
        ("sts", Some(("federated-user", name))) => !name.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Principal<'_> = Principal::User {
        account: "111111111111",
        canonical_id: "c1",
        arn: "arn:aws:iam::111111111111:user/u",
        id: "AIDA",
    };
    const ROOT: Principal<'_> = Principal::Root { account: "111111111111", canonical_id: "c1" };
    const SESSION: Principal<'_> = Principal::Session {
        account: "111111111111",
        canonical_id: "c1",
        role_arn: "arn:aws:iam::111111111111:role/r",
        arn: "arn:aws:sts::111111111111:assumed-role/r/s",
        id: "AROA",
    };

    fn parse(text: &str) -> Result<Principals, PolicyError> {
        Principals::parse(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn principals_reach_those_whom_they_name() {
        use Reach::{Account, Direct, Role};
        let federated = Principal::Federated { provider: "accounts.example" };
        let service = Principal::Service { name: "logging.s3.amazonaws.com" };
        let table: &[(&str, [Option<Reach>; 6])] = &[
            (r#""*""#, [Some(Direct), Some(Direct), Some(Direct), Some(Role), Some(Direct), Some(Direct)]),
            (r#"{"AWS":"*"}"#, [Some(Direct), Some(Direct), Some(Direct), Some(Role), None, None]),
            (r#"{"AWS":"111111111111"}"#, [None, Some(Direct), Some(Account), Some(Account), None, None]),
            (
                r#"{"AWS":["arn:aws:iam::111111111111:root"]}"#,
                [None, Some(Direct), Some(Account), Some(Account), None, None],
            ),
            (r#"{"AWS":"222222222222"}"#, [None; 6]),
            (r#"{"AWS":"arn:aws:iam::111111111111:user/u"}"#, [None, None, Some(Direct), None, None, None]),
            (r#"{"AWS":"arn:aws:iam::111111111111:role/r"}"#, [None, None, None, Some(Role), None, None]),
            (r#"{"AWS":"arn:aws:sts::111111111111:assumed-role/r/s"}"#, [None, None, None, Some(Direct), None, None]),
            (r#"{"CanonicalUser":"c1"}"#, [None, Some(Direct), Some(Account), Some(Account), None, None]),
            (r#"{"Federated":"accounts.example"}"#, [None, None, None, None, Some(Direct), None]),
            (r#"{"Service":["a","logging.s3.amazonaws.com"]}"#, [None, None, None, None, None, Some(Direct)]),
            (
                r#"{"AWS":["111111111111","arn:aws:iam::111111111111:user/u"]}"#,
                [None, Some(Direct), Some(Direct), Some(Account), None, None],
            ),
        ];
        for (text, expected) in table {
            let principals = parse(text).unwrap();
            let reached =
                [Principal::Anonymous, ROOT, USER, SESSION, federated, service].map(|one| principals.reach(&one));
            assert_eq!(reached, *expected, "{text}");
            assert_eq!(Principals::parse(principals.to_json()).unwrap(), principals);
        }
    }

    #[test]
    fn what_is_no_principal_is_refused() {
        for bad in [
            r#""x""#,
            "[]",
            "{}",
            "7",
            r#"{"AWS":[]}"#,
            r#"{"AWS":"a b"}"#,
            r#"{"AWS":"arn:aws:iam::1:user/*"}"#,
            r#"{"AWS":"arn:aws:iam::1:group/g"}"#,
            r#"{"AWS":"arn:aws:iam:::root"}"#,
            r#"{"AWS":"arn:aws:sts::1:assumed-role/r"}"#,
            r#"{"AWS":{"a":1}}"#,
            r#"{"Aws":"*"}"#,
            r#"{"CanonicalUser":""}"#,
            r#"{"Service":"a*"}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_exception_of_an_account_is_one_of_its_root_user() {
        let account = parse(r#"{"AWS":"arn:aws:iam::111111111111:root"}"#).unwrap();
        assert!(account.name(&ROOT) && !account.name(&USER) && !account.name(&Principal::Anonymous));
        let both = parse(r#"{"AWS":["111111111111","arn:aws:iam::111111111111:user/u"]}"#).unwrap();
        assert!(both.name(&ROOT) && both.name(&USER) && !both.name(&SESSION));
    }
}
