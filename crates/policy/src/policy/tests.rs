use proptest::prelude::*;

use super::*;
use crate::request::{Context, Principal};

fn parse(text: &str) -> Result<Policy, PolicyError> {
    Policy::parse(text.replace('\'', "\"").as_bytes())
}

#[test]
fn documents_that_are_no_policies_are_refused_in_awss_words() {
    let allow = "'Effect':'Allow','Principal':'*','Action':'s3:GetObject','Resource':'arn:aws:s3:::b/*'";
    let one = |more: &str| format!("{{'Statement':[{{{allow}{more}}}]}}");
    let table = [
        ("", "Policies must be valid JSON and the first byte must be '{'"),
        ("[]", "Policies must be valid JSON and the first byte must be '{'"),
        ("{", "This policy contains invalid Json"),
        ("{'Statement':[],}", "This policy contains invalid Json"),
        ("{'Statement':[]}", "Could not parse the policy: Statement is empty!"),
        ("{}", "Missing required field Statement"),
        ("{'Statement':'x'}", "Invalid policy syntax."),
        ("{'Version':'2013-10-17','Statement':[]}", "The policy must contain a valid version string"),
        ("{'Version':1,'Statement':[]}", "The policy must contain a valid version string"),
        ("{'Permit':1,'Statement':[]}", "Unknown field Permit"),
        ("{'Statement':{'Principal':'*','Action':'s3:*','Resource':'*'}}", "Missing required field Effect"),
        ("{'Statement':{'Effect':'Allow','Principal':'*','Resource':'*'}}", "Missing required field Action"),
        ("{'Statement':{'Effect':'allow','Action':'s3:*'}}", "Invalid effect: allow"),
        ("{'Statement':{'Effect':'Allow','Action':'GetObject'}}", "Policy has invalid action"),
        ("{'Statement':{'Effect':'Allow','Action':[]}}", "Policy has invalid action"),
        ("{'Statement':{'Effect':'Allow','Action':'s3:*','Resource':'b'}}", "Policy has invalid resource"),
        ("{'Statement':{'Effect':'Allow','Principal':'x','Action':'s3:*'}}", "Invalid principal in policy"),
        (&one(",'Permit':1"), "Unknown field Permit"),
        (&one(",'NotAction':'s3:*'"), "A statement cannot have both Action and NotAction"),
        (&one(",'NotPrincipal':'*'"), "A statement cannot have both Principal and NotPrincipal"),
        (&one(",'Effect':'Deny'"), "This policy contains invalid Json"),
        (&one(",'Condition':{'X':{}}"), "Invalid Condition type : X"),
    ];
    for (text, message) in table {
        assert_eq!(parse(text).unwrap_err().message(), message, "{text}");
    }
    let sids = format!("{{'Statement':[{{{allow},'Sid':'a'}},{{{allow},'Sid':'a'}}]}}");
    assert!(parse(&sids).unwrap().check_bucket("b").is_ok());
    let sids = sids.replace("'Principal':'*',", "");
    let error = parse(&sids).unwrap().check_identity().unwrap_err();
    assert_eq!(error.message(), "Statement IDs (SID) in a single policy must be unique.");
    let large = format!("{{{}'Statement':{{{allow}}}}}", " ".repeat(BUCKET_POLICY_BYTES_MAX));
    assert_eq!(parse(&large).unwrap_err().message(), "Policy exceeds the maximum allowed document size.");
    assert!(parse(&one("")).is_ok());
}

#[test]
fn a_buckets_policy_is_about_the_bucket() {
    let check = |rest: &str| {
        parse(&format!("{{'Statement':{{'Effect':'Deny',{rest}}}}}"))
            .unwrap()
            .check_bucket("bkt")
            .map_err(|error| error.to_string())
    };
    let table = [
        ("'Action':'s3:GetObject','Resource':'arn:aws:s3:::bkt/*'", Err("Missing required field Principal")),
        ("'Principal':'*','Action':'s3:GetObject'", Err("Missing required field Resource")),
        ("'Principal':'*','Action':'s3:GetObject','Resource':'arn:aws:s3:::bkt/*'", Ok(())),
        ("'Principal':'*','Action':'s3:GetObject','Resource':'arn:aws:s3:::bkt*'", Ok(())),
        ("'Principal':'*','Action':'s3:GetObject','Resource':'arn:aws:s3:::*/*'", Ok(())),
        ("'Principal':'*','Action':'S3:getobject','Resource':'arn:aws:s3:::*'", Ok(())),
        (
            "'Principal':'*','Action':'s3:GetObject','Resource':'arn:aws:s3:::other/*'",
            Err("Policy has invalid resource"),
        ),
        (
            "'Principal':'*','Action':'s3:GetObject','Resource':'arn:aws:s3:::bkt2/*'",
            Err("Policy has invalid resource"),
        ),
        (
            "'Principal':'*','Action':'s3:GetObject','Resource':'arn:aws:sqs:::bkt/*'",
            Err("Policy has invalid resource"),
        ),
        (
            "'Principal':'*','Action':'s3:GetObject','Resource':'arn:aws:s3:::bkt'",
            Err("Action does not apply to any resource(s) in statement"),
        ),
        ("'Principal':'*','Action':'s3:PutObject','Resource':'arn:aws:s3:::bkt'", Ok(())),
        ("'Principal':'*','Action':'s3:GetObject','Resource':'arn:aws:s3:::bk?'", Ok(())),
        ("'Principal':'*','Action':'s3:GetObject','Resource':'arn:aws:s3:::bkt/k'", Ok(())),
        ("'Principal':'*','Action':'s3:ListBucket','Resource':['arn:aws:s3:::bkt/*','arn:aws:s3:::bkt']", Ok(())),
        (
            "'Principal':'*','Action':'s3:ListBucket','Resource':'arn:aws:s3:::bkt/*'",
            Err("Action does not apply to any resource(s) in statement"),
        ),
        (
            "'Principal':'*','Action':['s3:GetObject','s3:ListBucket'],'Resource':'arn:aws:s3:::bkt/*'",
            Err("Action does not apply to any resource(s) in statement"),
        ),
        ("'Principal':'*','Action':'s3:ListBucket','NotResource':'arn:aws:s3:::bkt/*'", Ok(())),
        (
            "'Principal':'*','Action':'s3:GetObject*','Resource':'arn:aws:s3:::bkt'",
            Err("Action does not apply to any resource(s) in statement"),
        ),
        ("'Principal':'*','Action':'s3:BypassGovernanceRetention','Resource':'arn:aws:s3:::bkt/*'", Ok(())),
        ("'Principal':'*','Action':'s3:*','Resource':'*'", Err("Policy has invalid resource")),
        (
            "'Principal':'*','Action':'s3:*','Resource':'arn:aws:s3:::bkt','Condition':{'StringLike':{'s3:Prefix':'a','aws:x':'y'}}",
            Ok(()),
        ),
        (
            "'Principal':'*','Action':'s3:*','Resource':'arn:aws:s3:::bkt','Condition':{'StringEquals':{'s3:existingobjecttag/a':'b'}}",
            Ok(()),
        ),
        (
            "'Principal':'*','Action':'s3:*','Resource':'arn:aws:s3:::bkt','Condition':{'StringEquals':{'s3:x-amz-acl':'b'}}",
            Ok(()),
        ),
        (
            "'Principal':'*','Action':'s3:*','Resource':'arn:aws:s3:::bkt','Condition':{'StringEquals':{'s3:prefixes':'b'}}",
            Err("Policy has an invalid condition key"),
        ),
        (
            "'Principal':'*','Action':'s3:GetObject','Resource':'arn:aws:s3:::bkt/*','Condition':{'StringLike':{'s3:prefix':'b'}}",
            Err("Conditions do not apply to combination of actions and resources in statement"),
        ),
        (
            "'Principal':'*','Action':['s3:Get*','s3:List*'],'Resource':['arn:aws:s3:::bkt','arn:aws:s3:::bkt/*'],'Condition':{'NumericLessThan':{'s3:max-keys':'5'}}",
            Ok(()),
        ),
        ("'Principal':'*','NotAction':'s3:ListBucket','Resource':'arn:aws:s3:::bkt/*'", Ok(())),
        ("'Principal':'*','Action':'*','Resource':'arn:aws:s3:::bkt'", Ok(())),
        ("'Principal':'*','Action':'s3:Get*','Resource':'arn:aws:s3:::bkt'", Ok(())),
        ("'Principal':'*','Action':'s3:Frobnicate','Resource':'arn:aws:s3:::bkt'", Err("Policy has invalid action")),
        ("'Principal':'*','Action':'iam:*','Resource':'arn:aws:s3:::bkt'", Err("Policy has invalid action")),
        ("'NotPrincipal':'*','Action':'s3:*','Resource':'arn:aws:s3:::bkt'", Ok(())),
    ];
    for (rest, expected) in table {
        assert_eq!(check(rest), expected.map_err(str::to_owned), "{rest}");
    }
    let allow = "{'Statement':{'Effect':'Allow','NotPrincipal':'*','Action':'s3:*','Resource':'arn:aws:s3:::bkt'}}";
    assert!(parse(allow).unwrap().check_bucket("bkt").is_err());
}

#[test]
fn policies_of_identities_and_roles_are_of_their_kind() {
    let identity = parse("{'Statement':{'Effect':'Allow','Action':'iam:*','Resource':'*'}}").unwrap();
    let trust = parse("{'Statement':{'Effect':'Allow','Action':'sts:AssumeRole','Principal':{'AWS':'1'}}}").unwrap();
    assert!(identity.check_identity().is_ok() && identity.check_trust().is_err());
    assert!(trust.check_identity().is_err() && trust.check_trust().is_ok());
    assert_eq!(trust.principals().collect::<Vec<_>>(), ["1"]);
}

#[test]
fn statements_are_about_what_they_name() {
    let is_allowed = |rest: &str, action: &str, resource: &str| {
        let policy = parse(&format!("{{'Version':'2012-10-17','Statement':{{'Effect':'Allow',{rest}}}}}")).unwrap();
        let context = Context::default();
        policy.evaluate(&Request { principal: Principal::Anonymous, action, resource, context: &context })
            == Decision::Allow
    };
    let table = [
        ("'Action':'s3:Get*','Resource':'arn:aws:s3:::b/*'", "s3:GetObject", "arn:aws:s3:::b/k", true),
        ("'Action':'S3:gET*','Resource':'arn:aws:s3:::b/*'", "s3:GetObject", "arn:aws:s3:::b/k", true),
        ("'Action':'s3:Get*','Resource':'arn:aws:s3:::b/*'", "s3:PutObject", "arn:aws:s3:::b/k", false),
        ("'NotAction':'s3:Get*','Resource':'arn:aws:s3:::b/*'", "s3:PutObject", "arn:aws:s3:::b/k", true),
        ("'NotAction':'s3:Get*','Resource':'arn:aws:s3:::b/*'", "s3:GetObject", "arn:aws:s3:::b/k", false),
        ("'Action':'*','NotResource':'arn:aws:s3:::b/*'", "s3:GetObject", "arn:aws:s3:::b/k", false),
        ("'Action':'*','NotResource':'arn:aws:s3:::b/*'", "s3:GetObject", "arn:aws:s3:::c/k", true),
        ("'Action':'*','NotResource':'arn:aws:s3:::b/${aws:username}'", "s3:GetObject", "arn:aws:s3:::c/k", false),
        ("'Action':'*','Resource':'arn:aws:s3:::b/${aws:username}'", "s3:GetObject", "arn:aws:s3:::b/", false),
        ("'Action':'sts:AssumeRole'", "sts:AssumeRole", "arn:aws:iam::1:role/r", true),
    ];
    for (rest, action, resource, expected) in table {
        assert_eq!(is_allowed(rest, action, resource), expected, "{rest} {action} {resource}");
    }
    // Without a version `${` is text.
    let old = "{'Statement':{'Effect':'Allow','Action':'*','Resource':'arn:aws:s3:::b/${x'}}";
    assert!(parse(old).is_ok() && parse(&old.replace("{'Statement", "{'Version':'2012-10-17','Statement")).is_err());
}

#[test]
fn keys_that_are_looked_at_are_found() {
    let mentions = |rest: &str| {
        let text = format!("{{'Version':'2012-10-17','Statement':{{'Effect':'Allow','Action':'*',{rest}}}}}");
        parse(&text).unwrap().mentions("s3:existingobjecttag/")
    };
    assert!(mentions("'Resource':'*','Condition':{'StringEquals':{'s3:ExistingObjectTag/a':'b'}}"));
    assert!(mentions("'Resource':'*','Condition':{'StringEquals':{'aws:username':'${s3:ExistingObjectTag/a}'}}"));
    assert!(mentions("'Resource':'arn:aws:s3:::b/${s3:existingobjecttag/a}'"));
    assert!(!mentions("'Resource':'*','Condition':{'StringEquals':{'s3:RequestObjectTag/a':'b'}}"));
}

fn texts(values: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(values), 1..3)
        .prop_map(|values| if values.len() == 1 { format!("'{}'", values[0]) } else { format!("{values:?}") })
}

/// Documents that are policies, of few words so that they meet.
fn statement() -> impl Strategy<Value = String> {
    let principals = proptest::sample::select(
        &[
            "",
            "'Principal':'*',",
            "'Principal':{'AWS':['111111111111','arn:aws:iam::111111111111:user/u']},",
            "'NotPrincipal':{'AWS':'arn:aws:iam::111111111111:user/u'},",
        ][..],
    );
    let conditions = proptest::sample::select(
        &[
            "",
            ",'Condition':{'StringLike':{'s3:prefix':['a*','${aws:username}']}}",
            ",'Condition':{'NumericLessThan':{'s3:max-keys':5},'Null':{'s3:prefix':true}}",
            ",'Condition':{'ForAnyValue:StringNotEqualsIfExists':{'aws:TagKeys':'x'},'ArnLike':{'aws:SourceArn':'*'}}",
            ",'Condition':{'NotIpAddress':{'aws:SourceIp':'10.0.0.0/8'}}",
        ][..],
    );
    let actions = texts(&["s3:Get*", "s3:PutObject", "*", "s3:?etObject"]);
    let resources = texts(&["*", "arn:aws:s3:::b/*", "arn:aws:s3:::b", "arn:aws:s3:::${aws:username}/x"]);
    let effect = proptest::sample::select(&["Allow", "Deny"][..]);
    let not = || proptest::sample::select(&["", "", "Not"][..]);
    (effect, principals, not(), actions, not(), resources, conditions).prop_map(
        |(effect, principals, not_action, actions, not_resource, resources, conditions)| {
            format!(
                "{{'Effect':'{effect}',{principals}'{not_action}Action':{actions},'{not_resource}Resource':{resources}{conditions}}}"
            )
        },
    )
}

fn policy_of(statements: &[String]) -> Policy {
    parse(&format!("{{'Version':'2012-10-17','Id':'x','Statement':[{}]}}", statements.join(","))).unwrap()
}

fn context() -> impl Strategy<Value = Context> {
    let pair = proptest::sample::select(
        &[
            ("aws:username", "b"),
            ("s3:prefix", "ab"),
            ("s3:max-keys", "3"),
            ("aws:TagKeys", "x"),
            ("aws:TagKeys", "y"),
            ("aws:SourceIp", "10.0.0.1"),
            ("aws:SourceArn", "arn:aws:s3:::c"),
        ][..],
    );
    proptest::collection::vec(pair, 0..4).prop_map(|pairs| {
        let mut context = Context::default();
        for (key, value) in pairs {
            context.add(key, value);
        }
        context
    })
}

const ASKED: [(&str, &str); 3] =
    [("s3:GetObject", "arn:aws:s3:::b/k"), ("s3:PutObject", "arn:aws:s3:::b/x"), ("s3:ListBucket", "arn:aws:s3:::b")];

fn outcomes(policy: &Policy, context: &Context) -> Vec<Outcome> {
    let user = Principal::User {
        account: "111111111111",
        canonical_id: "c",
        arn: "arn:aws:iam::111111111111:user/u",
        id: "AIDA",
    };
    let asked = [Principal::Anonymous, user].into_iter().flat_map(|principal| {
        ASKED.iter().map(move |(action, resource)| Request { principal, action, resource, context })
    });
    asked.map(|request| policy.outcome(&request)).collect()
}

proptest! {
    #[test]
    fn an_explicit_deny_wins_and_order_does_not_matter(
        statements in proptest::collection::vec(statement(), 1..5),
        context in context(),
        turn in 0usize..5,
    ) {
        let all = outcomes(&policy_of(&statements), &context);
        let alone: Vec<Vec<Outcome>> =
            statements.iter().map(|one| outcomes(&policy_of(std::slice::from_ref(one)), &context)).collect();
        for (at, outcome) in all.iter().enumerate() {
            let each = || alone.iter().map(|outcomes| outcomes[at]);
            let expected = if each().any(|one| one == Outcome::Deny) {
                Outcome::Deny
            } else {
                let reach = each().filter_map(|one| match one { Outcome::Allow(reach) => Some(reach), _ => None }).max();
                reach.map_or(Outcome::Neutral, Outcome::Allow)
            };
            prop_assert_eq!(*outcome, expected);
        }
        let mut turned = statements.clone();
        turned.rotate_left(turn % statements.len());
        prop_assert_eq!(&outcomes(&policy_of(&turned), &context), &all);
        turned.reverse();
        prop_assert_eq!(&outcomes(&policy_of(&turned), &context), &all);
    }

    #[test]
    fn what_is_printed_is_the_same_policy(statements in proptest::collection::vec(statement(), 1..4)) {
        let policy = policy_of(&statements);
        prop_assert_eq!(&Policy::parse(policy.to_json().as_bytes()).unwrap(), &policy);
    }

    #[test]
    fn no_document_makes_it_panic(text in ".{0,200}", statement in statement(), at in 0usize..200, with in any::<u8>()) {
        let _ = Policy::parse(text.as_bytes());
        let mut bytes = format!("{{\"Statement\":{}}}", statement.replace('\'', "\"")).into_bytes();
        let at = at % bytes.len();
        bytes[at] = with;
        if let Ok(policy) = Policy::parse(&bytes) {
            let _ = (outcomes(&policy, &Context::default()), policy.is_public(), policy.check_bucket("b"));
        }
    }
}

#[test]
fn a_request_that_takes_a_policy_too_long_is_denied() {
    let reads = "'Principal':'*','Action':'s3:GetObject'";
    let agent = "'StringLike':{'aws:referer':'*${aws:useragent}b*c'}";
    let policy = format!(
        "{{'Version':'2012-10-17','Statement':[\
         {{'Effect':'Allow',{reads},'Resource':'arn:aws:s3:::b/*'}},\
         {{'Effect':'Deny',{reads},'NotResource':'arn:aws:s3:::b/${{aws:useragent}}*x*','Condition':{{{agent}}}}},\
         {{'Effect':'Allow',{reads},'Resource':'arn:aws:s3:::b/*'}}]}}"
    );
    let policy = parse(&policy).unwrap();
    let decide = |length: usize| {
        let mut context = Context::default();
        context.add("aws:useragent", "a".repeat(length));
        context.add("aws:referer", "a".repeat(2 * length));
        let (principal, resource) = (Principal::Anonymous, "arn:aws:s3:::b/k");
        policy.evaluate(&Request { principal, action: "s3:GetObject", resource, context: &context })
    };
    assert_eq!([decide(1), decide(1000)], [Decision::Allow; 2]);
    assert_eq!(decide(30_000), Decision::Deny);
}
