use super::*;
use crate::request::Context;

const ROOT: Principal<'_> = Principal::Root { account: "111111111111", canonical_id: "c1" };
const USER: Principal<'_> = Principal::User {
    account: "111111111111",
    canonical_id: "c1",
    arn: "arn:aws:iam::111111111111:user/u",
    id: "AIDA",
};
const SESSION: Principal<'_> = Principal::Session {
    account: "111111111111",
    canonical_id: "c1",
    role_arn: "arn:aws:iam::111111111111:role/r",
    arn: "arn:aws:sts::111111111111:assumed-role/r/s",
    id: "AROA",
};

fn policy(effect: &str, principal: &str) -> Policy {
    let principal = if principal.is_empty() { String::new() } else { format!(r#""Principal":{principal},"#) };
    let text = format!(r#"{{"Statement":{{"Effect":"{effect}",{principal}"Action":"s3:GetObject","Resource":"*"}}}}"#);
    Policy::parse(text.as_bytes()).unwrap()
}

struct Case {
    identity: &'static str,
    boundary: &'static str,
    session: &'static str,
    resource: Option<(&'static str, &'static str)>,
    granted: Option<Reach>,
}

const NONE: Case = Case { identity: "", boundary: "", session: "", resource: None, granted: None };

fn ask(principal: Principal<'_>, owner: &str, case: &Case, action: &str) -> Decision {
    let of = |effect: &str| if effect.is_empty() { Vec::new() } else { vec![Arc::new(policy(effect, ""))] };
    let (identity, session, boundary) = (of(case.identity), of(case.session), of(case.boundary));
    let resource = case.resource.map(|(effect, principal)| policy(effect, principal));
    let layers = Layers {
        identity: &identity,
        boundary: boundary.first().map(|policy| &**policy),
        session: &session,
        resource: resource.as_ref(),
        granted: case.granted,
        owner: Some(owner),
    };
    let context = Context::default();
    decide(&layers, &Request { principal, action, resource: "arn:aws:s3:::b/k", context: &context })
}

const ALL: &str = r#""*""#;
const ACCOUNT: &str = r#"{"AWS":"111111111111"}"#;
const NAMED: &str = r#"{"AWS":"arn:aws:iam::111111111111:user/u"}"#;
const ROLE: &str = r#"{"AWS":"arn:aws:iam::111111111111:role/r"}"#;
const STS: &str = r#"{"AWS":"arn:aws:sts::111111111111:assumed-role/r/s"}"#;

#[test]
fn layers_are_put_together_as_on_aws() {
    use Decision::{Allow, Deny, Neutral};
    let resource = |effect, principal| Case { resource: Some((effect, principal)), ..NONE };
    let identity = |identity| Case { identity, ..NONE };
    let anonymous = Principal::Anonymous;
    // Who, what is said; the answer in the own account, and in another.
    let table: Vec<(Principal<'_>, Case, Decision, Decision)> = vec![
        (anonymous, NONE, Neutral, Neutral),
        (anonymous, resource("Allow", ALL), Allow, Allow),
        (anonymous, resource("Allow", ACCOUNT), Neutral, Neutral),
        (anonymous, resource("Deny", ALL), Deny, Deny),
        (anonymous, Case { granted: Some(Reach::Direct), ..NONE }, Allow, Allow),
        (anonymous, Case { granted: Some(Reach::Account), ..NONE }, Neutral, Neutral),
        (ROOT, NONE, Allow, Neutral),
        (ROOT, resource("Allow", ALL), Allow, Allow),
        (ROOT, resource("Allow", ACCOUNT), Allow, Allow),
        (ROOT, resource("Deny", ACCOUNT), Deny, Deny),
        (ROOT, Case { session: "Deny", ..NONE }, Deny, Deny),
        (USER, NONE, Neutral, Neutral),
        (USER, identity("Allow"), Allow, Neutral),
        (USER, identity("Deny"), Deny, Deny),
        (USER, resource("Allow", NAMED), Allow, Neutral),
        (USER, resource("Allow", ACCOUNT), Neutral, Neutral),
        (USER, resource("Deny", ACCOUNT), Deny, Deny),
        (USER, resource("Allow", ALL), Allow, Neutral),
        (USER, Case { identity: "Allow", ..resource("Allow", ACCOUNT) }, Allow, Allow),
        (USER, Case { identity: "Allow", ..resource("Deny", NAMED) }, Deny, Deny),
        (USER, Case { identity: "Deny", ..resource("Allow", NAMED) }, Deny, Deny),
        (USER, Case { identity: "Allow", boundary: "Allow", ..NONE }, Allow, Neutral),
        (USER, Case { identity: "Allow", boundary: "Deny", ..NONE }, Deny, Deny),
        (USER, Case { boundary: "Allow", ..NONE }, Neutral, Neutral),
        (USER, Case { identity: "Allow", granted: Some(Reach::Account), ..NONE }, Allow, Allow),
        (USER, Case { granted: Some(Reach::Account), ..NONE }, Neutral, Neutral),
        (SESSION, resource("Allow", ROLE), Allow, Neutral),
        (SESSION, resource("Allow", STS), Allow, Neutral),
        (SESSION, Case { identity: "Allow", session: "Allow", ..resource("Allow", ROLE) }, Allow, Allow),
        (SESSION, Case { session: "Deny", ..resource("Allow", STS) }, Deny, Deny),
    ];
    for (number, (principal, case, own, other)) in table.iter().enumerate() {
        assert_eq!(ask(*principal, "111111111111", case, "s3:GetObject"), *own, "{number} in the own account");
        assert_eq!(ask(*principal, "222222222222", case, "s3:GetObject"), *other, "{number} in another account");
    }
}

#[test]
fn what_limits_an_identity_allows_nothing_else() {
    let limited = |case: Case| ask(USER, "111111111111", &case, "s3:PutObject");
    assert_eq!(limited(Case { identity: "Allow", boundary: "Allow", ..NONE }), Decision::Neutral);
    let session = |resource| {
        let case = Case { session: "Allow", resource: Some(("Allow", resource)), ..NONE };
        ask(SESSION, "111111111111", &case, "s3:GetObject")
    };
    assert_eq!((session(ROLE), session(STS), session(ALL)), (Decision::Allow, Decision::Allow, Decision::Allow));
    // A session policy that says nothing about the action: by the session's own name it is allowed all the same, by the role's not.
    let other = |principal: &str| {
        let resource = policy("Allow", principal);
        let text = r#"{"Statement":{"Effect":"Allow","Action":"s3:PutObject","Resource":"*"}}"#;
        let session = [Arc::new(Policy::parse(text.as_bytes()).unwrap())];
        let layers =
            Layers { session: &session, resource: Some(&resource), owner: Some("111111111111"), ..Layers::default() };
        let context = Context::default();
        let resource = "arn:aws:s3:::b/k";
        decide(&layers, &Request { principal: SESSION, action: "s3:GetObject", resource, context: &context })
    };
    assert_eq!((other(ROLE), other(STS), other(ALL)), (Decision::Neutral, Decision::Allow, Decision::Neutral));
}

#[test]
fn the_policy_of_a_key_narrows_whom_a_bucket_names() {
    let parse = |text: &str| Policy::parse(text.as_bytes()).unwrap();
    let all = parse(r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"*"}}"#);
    let narrow = [Arc::new(parse(r#"{"Statement":{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}}"#))];
    let context = Context::default();
    let ask = |principal, action| {
        let layers =
            Layers { session: &narrow, resource: Some(&all), owner: Some("111111111111"), ..Layers::default() };
        decide(&layers, &Request { principal, action, resource: "arn:aws:s3:::b/k", context: &context })
    };
    for principal in [ROOT, USER] {
        assert_eq!(ask(principal, "s3:GetObject"), Decision::Allow);
        assert_eq!(ask(principal, "s3:PutObject"), Decision::Neutral);
    }
}
