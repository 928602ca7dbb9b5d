//! Whether a policy is public, as AWS means it: whether it allows anything to an audience that is not fixed.
//!
//! Source: AWS, "Blocking public access to your Amazon S3 storage", "The meaning of 'public'".

use crate::condition::{Condition, Kind, Quantifier, Read};
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
            Kind::Ip => key == "aws:sourceip" && condition.values.iter().all(|value| is_narrow(&value.read)),
            Kind::Equals | Kind::EqualsIgnoringCase | Kind::Like | Kind::Arn | Kind::ArnLike => {
                FIXING.contains(&key.as_str()) && condition.values.iter().all(|value| is_fixed(&key, &value.read))
            }
            _ => false,
        }
}

fn is_narrow(value: &Read) -> bool {
    matches!(value, Read::Network(network) if !network.is_wide())
}

fn is_fixed(key: &str, value: &Read) -> bool {
    match value {
        Read::Pattern(pattern) => pattern.is_fixed() || key == "aws:userid" && is_of_a_role(pattern),
        Read::Arn(arn) => arn.is_fixed(),
        Read::Network(_) => false,
    }
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
        ];
        for (statement, expected) in table {
            assert_eq!(is_public(&format!("'Effect':'Allow',{statement}")), expected, "{statement}");
            assert!(!is_public(&format!("'Effect':'Deny',{statement}")), "{statement}");
        }
    }
}
