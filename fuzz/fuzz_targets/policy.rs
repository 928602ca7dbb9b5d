//! Policies: what is read is written to something that reads the same, and answers whatever it is asked.
#![no_main]

use gabion_policy::{Context, Decision, Layers, Policy, Principal, Request, decide};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(policy) = Policy::parse(bytes) else { return };
    let again = policy.to_json();
    // What is written has lists where one text stood alone, and may be too long to be read.
    if again.len() <= gabion_policy::limits::BUCKET_POLICY_BYTES_MAX {
        assert_eq!(Policy::parse(again.as_bytes()).expect("what is written is a policy"), policy);
    }
    let _ = (policy.is_public(), policy.check_bucket("bucket"), policy.check_identity(), policy.check_trust());
    let mut context = Context::default();
    for (key, value) in [("aws:username", "u*"), ("s3:prefix", "a/b"), ("aws:SourceIp", "::1"), ("s3:max-keys", "7")] {
        context.add(key, value);
    }
    let user = Principal::User { account: "1", canonical_id: "c", arn: "arn:aws:iam::1:user/u", id: "AIDA" };
    for principal in [Principal::Anonymous, user] {
        let request = Request { principal, action: "s3:GetObject", resource: "arn:aws:s3:::bucket/a:b", context: &context };
        let layers = Layers { resource: Some(&policy), owner: Some("1"), ..Layers::default() };
        let denied = policy.evaluate(&request) == Decision::Deny;
        assert!(!denied || decide(&layers, &request) == Decision::Deny, "an explicit deny wins");
    }
});
