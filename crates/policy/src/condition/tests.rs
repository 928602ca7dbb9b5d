use crate::policy::{Decision, Policy};
use crate::request::{Context, Principal, Request};

fn context(pairs: &[(&str, &str)]) -> Context {
    let mut context = Context::default();
    for (key, value) in pairs {
        context.add(key, *value);
    }
    context
}

fn document(effect: &str, condition: &str) -> String {
    let condition = condition.replace('\'', "\"");
    format!(
        r#"{{"Version":"2012-10-17","Statement":{{"Effect":"{effect}","Action":"*","Resource":"*","Condition":{condition}}}}}"#
    )
}

fn holds(effect: &str, condition: &str, pairs: &[(&str, &str)]) -> bool {
    let policy =
        Policy::parse(document(effect, condition).as_bytes()).unwrap_or_else(|error| panic!("{condition}: {error}"));
    let context = context(pairs);
    let request = Request { principal: Principal::Anonymous, action: "s3:GetObject", resource: "*", context: &context };
    policy.evaluate(&request) != Decision::Neutral
}

#[test]
fn conditions_hold_as_on_aws() {
    let one: &[(&str, &str)] = &[("s3:prefix", "Home/a")];
    let none: &[(&str, &str)] = &[];
    let tags: &[(&str, &str)] = &[("aws:TagKeys", "a"), ("aws:TagKeys", "b")];
    let at: &[(&str, &str)] = &[("aws:CurrentTime", "2026-11-21T20:30:17Z")];
    let keys: &[(&str, &str)] = &[("s3:max-keys", "10")];
    let from: &[(&str, &str)] = &[("aws:SourceIp", "10.1.2.3")];
    let secure: &[(&str, &str)] = &[("aws:SecureTransport", "false")];
    let arn: &[(&str, &str)] = &[("aws:PrincipalArn", "arn:aws:iam::1:user/a")];
    let named: &[(&str, &str)] = &[("aws:username", "a"), ("s3:prefix", "Home/a")];
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], bool);
    let table: &[Row<'_>] = &[
        ("{'StringEquals':{'s3:prefix':'Home/a'}}", one, true),
        ("{'StringEquals':{'S3:PREFIX':'Home/a'}}", one, true),
        ("{'StringEquals':{'s3:prefix':['x','Home/a']}}", one, true),
        ("{'StringEquals':{'s3:prefix':[]}}", one, false),
        ("{'StringEquals':{'s3:prefix':'home/a'}}", one, false),
        ("{'StringEquals':{'s3:prefix':'Home/*'}}", one, false),
        ("{'StringEquals':{'s3:prefix':'Home/a'}}", none, false),
        ("{'StringEqualsIfExists':{'s3:prefix':'Home/a'}}", none, true),
        ("{'StringEqualsIfExists':{'s3:prefix':'x'}}", one, false),
        ("{'StringNotEquals':{'s3:prefix':'x'}}", one, true),
        ("{'StringNotEquals':{'s3:prefix':['x','Home/a']}}", one, false),
        ("{'StringNotEquals':{'s3:prefix':'x'}}", none, true),
        ("{'StringEqualsIgnoreCase':{'s3:prefix':'hOME/A'}}", one, true),
        ("{'StringNotEqualsIgnoreCase':{'s3:prefix':'hOME/A'}}", one, false),
        ("{'StringLike':{'s3:prefix':'Home/?'}}", one, true),
        ("{'StringNotLike':{'s3:prefix':'Home/*'}}", one, false),
        ("{'StringLike':{'s3:prefix':'Home/${aws:username}'}}", named, true),
        ("{'StringEquals':{'s3:prefix':'Home/${aws:username}'}}", named, true),
        ("{'StringLike':{'s3:prefix':'Home/${aws:username}'}}", one, false),
        ("{'StringLike':{'s3:prefix':'Home/${aws:username, \\u0027a\\u0027}'}}", one, true),
        ("{'StringEquals':{'s3:prefix':'Home/a'},'NumericEquals':{'s3:max-keys':10}}", one, false),
        ("{'NumericEquals':{'s3:max-keys':10}}", keys, true),
        ("{'NumericEquals':{'s3:max-keys':'10.0'}}", keys, true),
        ("{'NumericNotEquals':{'s3:max-keys':'10'}}", keys, false),
        ("{'NumericLessThan':{'s3:max-keys':'10'}}", keys, false),
        ("{'NumericLessThanEquals':{'s3:max-keys':'10'}}", keys, true),
        ("{'NumericGreaterThan':{'s3:max-keys':'9.5'}}", keys, true),
        ("{'NumericGreaterThanEquals':{'s3:max-keys':'11'}}", keys, false),
        ("{'NumericLessThan':{'s3:prefix':'10'}}", one, false),
        ("{'DateLessThan':{'aws:CurrentTime':'2026-11-21T20:30:18Z'}}", at, true),
        ("{'DateGreaterThan':{'aws:CurrentTime':'2026-11-21'}}", at, true),
        ("{'DateEquals':{'aws:CurrentTime':'2026-11-21T21:30:17+01:00'}}", at, true),
        ("{'DateNotEquals':{'aws:CurrentTime':'1795293017'}}", at, false),
        ("{'DateGreaterThanEquals':{'aws:CurrentTime':'2027'}}", at, false),
        ("{'Bool':{'aws:SecureTransport':'false'}}", secure, true),
        ("{'Bool':{'aws:SecureTransport':false}}", secure, true),
        ("{'Bool':{'aws:SecureTransport':'True'}}", secure, false),
        ("{'Bool':{'aws:SecureTransport':'false'}}", none, false),
        ("{'IpAddress':{'aws:SourceIp':'10.0.0.0/8'}}", from, true),
        ("{'NotIpAddress':{'aws:SourceIp':'10.0.0.0/8'}}", from, false),
        ("{'NotIpAddress':{'aws:SourceIp':'10.0.0.0/8'}}", none, true),
        ("{'ArnEquals':{'aws:PrincipalArn':'arn:aws:iam::1:user/*'}}", arn, true),
        ("{'ArnLike':{'aws:PrincipalArn':'arn:aws:iam::*:user/b'}}", arn, false),
        ("{'ArnNotLike':{'aws:PrincipalArn':'arn:aws:iam::2:*'}}", arn, true),
        ("{'ArnNotEquals':{'aws:PrincipalArn':'arn:aws:iam::1:user/a'}}", arn, false),
        ("{'BinaryEquals':{'k:v':'QmluYXJ5'}}", &[("k:v", "QmluYXJ5")], true),
        ("{'Null':{'s3:prefix':'true'}}", none, true),
        ("{'Null':{'s3:prefix':'true'}}", one, false),
        ("{'Null':{'s3:prefix':false}}", one, true),
        ("{'ForAllValues:StringEquals':{'aws:TagKeys':['a','b','c']}}", tags, true),
        ("{'ForAllValues:StringEquals':{'aws:TagKeys':['a']}}", tags, false),
        ("{'ForAllValues:StringEquals':{'aws:TagKeys':['a']}}", none, true),
        ("{'ForAnyValue:StringEquals':{'aws:TagKeys':['b','x']}}", tags, true),
        ("{'ForAnyValue:StringEquals':{'aws:TagKeys':['x']}}", tags, false),
        ("{'ForAnyValue:StringEquals':{'aws:TagKeys':['b']}}", none, false),
        ("{'ForAnyValue:StringNotEquals':{'aws:TagKeys':['b']}}", tags, true),
        ("{'ForAnyValue:StringNotEquals':{'aws:TagKeys':['b']}}", none, false),
        ("{'ForAllValues:StringNotEquals':{'aws:TagKeys':['b']}}", tags, false),
        ("{'StringNotEquals':{'aws:TagKeys':['b']}}", tags, false),
        ("{'StringEquals':{'aws:TagKeys':['b']}}", tags, true),
        ("{}", none, true),
    ];
    for (condition, pairs, expected) in table {
        assert_eq!(holds("Allow", condition, pairs), *expected, "{condition} {pairs:?}");
        assert_eq!(holds("Deny", condition, pairs), *expected, "{condition} {pairs:?}");
    }
}

#[test]
fn what_can_not_be_known_denies_and_does_not_allow() {
    let condition = "{'StringNotEquals':{'s3:prefix':'${aws:username}'}}";
    let pairs = &[("s3:prefix", "a")];
    assert!(holds("Deny", condition, pairs) && !holds("Allow", condition, pairs));
}

#[test]
fn malformed_conditions_are_refused() {
    for bad in [
        "[]",
        "'x'",
        "{'StringEquals':'x'}",
        "{'stringequals':{'s3:prefix':'x'}}",
        "{'StringEquals2':{'s3:prefix':'x'}}",
        "{'NullIfExists':{'s3:prefix':'true'}}",
        "{'ForAllValues:Null':{'s3:prefix':'true'}}",
        "{'ForSomeValues:StringEquals':{'s3:prefix':'x'}}",
        "{'StringEquals':{'prefix':'x'}}",
        "{'StringEquals':{'':'x'}}",
        "{'StringEquals':{'s3:prefix':{}}}",
        "{'StringEquals':{'s3:prefix':null}}",
        "{'StringEquals':{'s3:prefix':[[]]}}",
        "{'StringEquals':{'s3:prefix':'${'}}",
        "{'StringEquals':{'s3:prefix':'x'},'StringEquals':{'s3:prefix':'y'}}",
        "{'NumericEquals':{'s3:max-keys':'ten'}}",
        "{'NumericEquals':{'s3:max-keys':'NaN'}}",
        "{'NumericEquals':{'s3:max-keys':'1e5'}}",
        "{'DateEquals':{'aws:CurrentTime':'now'}}",
        "{'Bool':{'aws:SecureTransport':'yes'}}",
        "{'Null':{'s3:prefix':'maybe'}}",
        "{'IpAddress':{'aws:SourceIp':'10.0.0.0/40'}}",
        "{'ArnLike':{'aws:PrincipalArn':'user'}}",
        "{'BinaryEquals':{'k:v':'!'}}",
    ] {
        assert!(Policy::parse(document("Allow", bad).as_bytes()).is_err(), "{bad}");
    }
}
