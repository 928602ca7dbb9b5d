//! Whether a policy is public, as AWS means it: whether it allows anything to an audience that is not fixed.
//!
//! Source: AWS, "Blocking public access to your Amazon S3 storage", "The meaning of 'public'".

use crate::condition::{Condition, Kind, Quantifier, Read, Value};
use crate::pattern::{Pattern, Piece};
use crate::policy::Policy;
use crate::statement::{Effect, Statement};

/// Keys whose values, when they are fixed, say who it is or from where.
const FIXING: &[&str] = &[
    "aws:principalaccount",
    "aws:principalarn",
    "aws:principalorgid",
    "aws:principalorgpaths",
    "aws:principalservicename",
    "aws:sourceaccount",
    "aws:sourcearn",
    "aws:sourceowner",
    "aws:sourceorgid",
    "aws:sourcevpc",
    "aws:sourcevpce",
    "aws:userid",
    "s3:dataaccesspointaccount",
    "s3:dataaccesspointarn",
    "s3:x-amz-server-side-encryption-aws-kms-key-id",
];

/// The `aws:userid` of a request that nobody signed: a condition for it restricts nobody.
pub const ANONYMOUS_USER_ID: &str = "anonymous";

/// Networks that have this share of all addresses of their kind, or more, restrict nobody.
const WIDE_SHARE: f64 = 0.5;

impl Policy {
    /// Whether it is public: some statement allows something to everybody, or to all but some, and no condition restricts that to fixed
    /// networks, accounts, organisations or the like.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(is_public)
    }
}

fn is_public(statement: &Statement) -> bool {
    let everybody =
        statement.principals.as_ref().is_some_and(|principals| principals.negated || principals.what.has_everybody());
    statement.effect == Effect::Allow && everybody && !statement.conditions.iter().any(fixes)
}

/// Whether a condition restricts the audience to a fixed one.
fn fixes(condition: &Condition) -> bool {
    let operator = &condition.operator;
    // What holds for those who do not say restricts nobody.
    let restricts = !operator.negated
        && !operator.if_exists
        && operator.quantifier != Some(Quantifier::All)
        && !condition.values.is_empty();
    let key = condition.key();
    restricts
        && match operator.kind {
            Kind::Ip => key == "aws:sourceip" && are_narrow(&condition.values),
            Kind::Equals | Kind::EqualsIgnoringCase | Kind::Like | Kind::Arn | Kind::ArnLike => {
                FIXING.contains(&key.as_str()) && condition.values.iter().all(|value| is_fixed(&key, &value.read))
            }
            _ => false,
        }
}

/// Whether networks are narrow, each by itself and all together: many that are may still be everywhere.
fn are_narrow(values: &[Value]) -> bool {
    let share = |value: &Value| match &value.read {
        Read::Network(network) if !network.is_wide() => Some(network.share()),
        _ => None,
    };
    values.iter().map(share).sum::<Option<f64>>().is_some_and(|share| share < WIDE_SHARE)
}

fn is_fixed(key: &str, value: &Read) -> bool {
    match value {
        Read::Pattern(pattern) if key == "aws:userid" => is_somebody(pattern) || is_of_a_role(pattern),
        Read::Pattern(pattern) => pattern.is_fixed(),
        Read::Arn(arn) => arn.is_fixed(),
        Read::Network(_) => false,
    }
}

/// The id of a user, or of a session, and not what those have who have none.
fn is_somebody(pattern: &Pattern) -> bool {
    let is_nobody = |piece: &Piece| matches!(piece, Piece::Text(text) if text.eq_ignore_ascii_case(ANONYMOUS_USER_ID));
    pattern.is_fixed() && !pattern.pieces().iter().any(is_nobody)
}

/// `AROAID:*`: all sessions of one role.
fn is_of_a_role(pattern: &Pattern) -> bool {
    matches!(pattern.pieces(), [Piece::Text(role), Piece::Any] if role.strip_suffix(':').is_some_and(|id| !id.is_empty()))
}

#[cfg(test)]
mod tests {
    use crate::policy::Policy;

    fn is_public(statement: &str) -> bool {
        let statement = statement.replace('\'', "\"");
        let text = format!(
            r#"{{"Version":"2012-10-17","Statement":{{"Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*",{statement}}}}}"#
        );
        Policy::parse(text.as_bytes()).unwrap().is_public()
    }

    #[test]
    fn public_is_what_has_no_fixed_audience() {
        let table = [
            ("'Principal':'*'", true),
            ("'Principal':{'AWS':'*'}", true),
            ("'Principal':{'AWS':['111111111111','*']}", true),
            ("'NotPrincipal':{'AWS':'111111111111'}", true),
            ("'Principal':{'AWS':'111111111111'}", false),
            ("'Principal':{'Service':'logging.s3.amazonaws.com'}", false),
            ("'Principal':'*','Condition':{'IpAddress':{'aws:SourceIp':'10.0.0.0/8'}}", false),
            ("'Principal':'*','Condition':{'IpAddress':{'aws:SourceIp':'10.0.0.0/7'}}", true),
            ("'Principal':'*','Condition':{'IpAddress':{'aws:SourceIp':['10.0.0.0/8','::/0']}}", true),
            ("'Principal':'*','Condition':{'IpAddress':{'aws:SourceIp':['10.0.0.0/8','192.0.2.0/24']}}", false),
            ("'Principal':'*','Condition':{'IpAddressIfExists':{'aws:SourceIp':'10.0.0.0/8'}}", true),
            ("'Principal':'*','Condition':{'NotIpAddress':{'aws:SourceIp':'10.0.0.0/8'}}", true),
            ("'Principal':'*','Condition':{'StringEquals':{'aws:SourceVpc':'vpc-1'}}", false),
            ("'Principal':'*','Condition':{'StringLike':{'aws:SourceVpc':'vpc-*'}}", true),
            ("'Principal':'*','Condition':{'StringEquals':{'aws:SourceVpc':'${aws:SourceVpc}'}}", true),
            ("'Principal':'*','Condition':{'StringNotEquals':{'aws:SourceVpc':'vpc-1'}}", true),
            ("'Principal':'*','Condition':{'ForAllValues:StringEquals':{'aws:SourceVpc':'vpc-1'}}", true),
            ("'Principal':'*','Condition':{'StringEquals':{'aws:SourceVpc':[]}}", true),
            ("'Principal':'*','Condition':{'StringEquals':{'aws:Referer':'x'}}", true),
            ("'Principal':'*','Condition':{'ArnEquals':{'aws:PrincipalArn':'arn:aws:iam::1:user/u'}}", false),
            ("'Principal':'*','Condition':{'ArnLike':{'aws:PrincipalArn':'arn:aws:iam::*:user/u'}}", true),
            ("'Principal':'*','Condition':{'StringLike':{'aws:userid':'AROAX:*'}}", false),
            ("'Principal':'*','Condition':{'StringLike':{'aws:userid':'AROA*:*'}}", true),
            ("'Principal':'*','Condition':{'StringEquals':{'aws:userid':'AIDAX'}}", false),
            ("'Principal':'*','Condition':{'StringEquals':{'aws:userid':'anonymous'}}", true),
            ("'Principal':'*','Condition':{'StringEqualsIgnoreCase':{'aws:userid':'ANONYMOUS'}}", true),
            ("'Principal':'*','Condition':{'StringLike':{'aws:userid':['AIDAX','anonymous']}}", true),
        ];
        for (statement, expected) in table {
            assert_eq!(is_public(&format!("'Effect':'Allow',{statement}")), expected, "{statement}");
            assert!(!is_public(&format!("'Effect':'Deny',{statement}")), "{statement}");
        }
    }

    #[test]
    fn networks_that_are_everywhere_together_are_public() {
        for (count, expected) in [(2, false), (127, false), (128, true), (256, true)] {
            let networks: Vec<String> = (0..count).map(|first| format!("'{first}.0.0.0/8'")).collect();
            let condition = format!("'Condition':{{'IpAddress':{{'aws:SourceIp':[{}]}}}}", networks.join(","));
            assert_eq!(is_public(&format!("'Effect':'Allow','Principal':'*',{condition}")), expected, "{count}");
        }
    }
}
