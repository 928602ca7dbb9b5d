//! IAM and STS: users, keys, roles and sessions, by their API.

use std::pin::pin;
use std::task::Poll;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use gabion_platform::{Clock, SystemClock};
use gabion_server::access_log::{AccessLog, AccessLogTarget};
use gabion_server::audit::AuditLog;

use crate::harness::{Answer, Call, S3, Sign};

const FORM: &str = "application/x-www-form-urlencoded";

/// Somebody who signs: access key, secret key, session token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Signer {
    pub(crate) access_key: &'static str,
    pub(crate) secret_key: &'static str,
    pub(crate) token: Option<String>,
}

impl Signer {
    pub(crate) fn root() -> Self {
        Self { access_key: crate::harness::ACCESS_KEY, secret_key: crate::harness::SECRET_KEY, token: None }
    }

    /// What an answer gives, under AWS's names.
    pub(crate) fn of(answer: &Answer) -> Self {
        let text = |name: &str| answer.element(name).unwrap_or_else(|| panic!("{name} in {}", answer.text()));
        Self {
            access_key: text("AccessKeyId").leak(),
            secret_key: text("SecretAccessKey").leak(),
            token: answer.element("SessionToken"),
        }
    }

    pub(crate) fn sign(&self, mut call: Call) -> Call {
        (call.access_key, call.secret_key) = (self.access_key, self.secret_key);
        match &self.token {
            Some(token) => call.header("x-amz-security-token", token.clone()),
            None => call,
        }
    }

    /// A request to a service.
    fn ask(&self, s3: &S3, service: &'static str, action: &str, parameters: &[(&str, &str)]) -> Call {
        let encode =
            |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
        let mut body = format!("Action={action}&Version=2010-05-08");
        for (name, value) in parameters {
            body.push_str(&format!("&{name}={}", encode(value)));
        }
        let mut call =
            s3.post("/").header("content-type", "application/x-www-form-urlencoded; charset=utf-8").body(body);
        call.service = service;
        self.sign(call)
    }

    pub(crate) async fn iam(&self, s3: &S3, action: &str, parameters: &[(&str, &str)]) -> Answer {
        self.ask(s3, "iam", action, parameters).send(s3).await
    }

    pub(crate) async fn sts(&self, s3: &S3, action: &str, parameters: &[(&str, &str)]) -> Answer {
        self.ask(s3, "sts", action, parameters).send(s3).await
    }
}

fn allow(action: &str) -> String {
    format!(r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Action":"{action}","Resource":"*"}}]}}"#)
}

/// A user with an access key.
pub(crate) async fn user(s3: &S3, name: &str) -> Signer {
    Signer::root().iam(s3, "CreateUser", &[("UserName", name)]).await.expect(200);
    Signer::of(&Signer::root().iam(s3, "CreateAccessKey", &[("UserName", name)]).await.expect(200))
}

#[tokio::test]
async fn users_live_and_die() {
    let s3 = S3::with_iam().await;
    let root = Signer::root();
    let created = root.iam(&s3, "CreateUser", &[("UserName", "Ann"), ("Path", "/staff/")]).await.expect(200);
    let arn = created.element("Arn").unwrap();
    assert!(arn.starts_with("arn:aws:iam::") && arn.ends_with(":user/staff/Ann"), "{arn}");
    assert!(
        created.text().starts_with("<?xml")
            && created.text().contains("<CreateUserResponse xmlns=\"https://iam.amazonaws.com/")
    );
    root.iam(&s3, "CreateUser", &[("UserName", "ann")]).await.refused(409, "EntityAlreadyExists");
    root.iam(&s3, "CreateUser", &[("UserName", "a b")]).await.refused(400, "ValidationError");
    let got = root.iam(&s3, "GetUser", &[("UserName", "ANN")]).await.expect(200);
    assert_eq!(got.element("UserId"), created.element("UserId"));
    root.iam(&s3, "UpdateUser", &[("UserName", "Ann"), ("NewUserName", "Bea")]).await.expect(200);
    root.iam(&s3, "GetUser", &[("UserName", "Ann")]).await.refused(404, "NoSuchEntity");
    for name in ["c", "d"] {
        root.iam(&s3, "CreateUser", &[("UserName", name)]).await.expect(200);
    }
    let page = root.iam(&s3, "ListUsers", &[("MaxItems", "2")]).await.expect(200);
    assert_eq!(
        (page.elements("UserName"), page.element("IsTruncated").as_deref()),
        (vec!["Bea".into(), "c".into()], Some("true"))
    );
    let marker = page.element("Marker").unwrap();
    let page = root.iam(&s3, "ListUsers", &[("MaxItems", "2"), ("Marker", &marker)]).await.expect(200);
    assert_eq!((page.elements("UserName"), page.element("IsTruncated").as_deref()), (vec!["d".into()], Some("false")));

    let keys = [("UserName", "Bea")];
    let first = root.iam(&s3, "CreateAccessKey", &keys).await.expect(200).element("AccessKeyId").unwrap();
    root.iam(&s3, "CreateAccessKey", &keys).await.expect(200);
    root.iam(&s3, "CreateAccessKey", &keys).await.refused(409, "LimitExceeded");
    root.iam(&s3, "DeleteUser", &keys).await.refused(409, "DeleteConflict");
    let listed = root.iam(&s3, "ListAccessKeys", &keys).await.expect(200);
    assert!(listed.elements("AccessKeyId").contains(&first) && !listed.text().contains("Secret"));
    for key in listed.elements("AccessKeyId") {
        root.iam(&s3, "DeleteAccessKey", &[("UserName", "Bea"), ("AccessKeyId", &key)]).await.expect(200);
    }
    root.iam(&s3, "DeleteUser", &keys).await.expect(200);
    root.iam(&s3, "NoSuchAction", &[]).await.refused(400, "InvalidAction");
}

#[tokio::test]
async fn tools_find_what_they_look_for() {
    let s3 = S3::with_iam().await;
    let (root, ann) = (Signer::root(), user(&s3, "ann").await);
    let trust =
        r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}}"#;
    root.iam(&s3, "CreateRole", &[("RoleName", "r"), ("AssumeRolePolicyDocument", trust)]).await.expect(200);
    let (policy, tag) = (allow("s3:*"), ("Tags.member.1.Key", "team"));
    let made = root.iam(&s3, "CreatePolicy", &[("PolicyName", "p"), ("PolicyDocument", &policy)]).await.expect(200);
    let arn = made.element("Arn").unwrap();
    let of_policy = [("PolicyArn", arn.as_str())];
    let none = root.iam(&s3, "ListEntitiesForPolicy", &of_policy).await.expect(200);
    assert_eq!((none.elements("UserName").len(), none.elements("RoleName").len()), (0, 0));
    root.iam(&s3, "AttachUserPolicy", &[("UserName", "ann"), of_policy[0]]).await.expect(200);
    root.iam(&s3, "PutRolePermissionsBoundary", &[("RoleName", "r"), ("PermissionsBoundary", &arn)]).await.expect(200);
    let attached = root.iam(&s3, "ListEntitiesForPolicy", &of_policy).await.expect(200);
    assert_eq!((attached.elements("UserName"), attached.elements("RoleName").len()), (vec!["ann".to_owned()], 0));
    let bounds = [of_policy[0], ("PolicyUsageFilter", "PermissionsBoundary")];
    let bounds = root.iam(&s3, "ListEntitiesForPolicy", &bounds).await.expect(200);
    assert_eq!((bounds.elements("UserName").len(), bounds.elements("RoleName")), (0, vec!["r".to_owned()]));
    let roles = [of_policy[0], ("EntityFilter", "Role")];
    assert_eq!(root.iam(&s3, "ListEntitiesForPolicy", &roles).await.expect(200).elements("UserName").len(), 0);
    root.iam(&s3, "ListEntitiesForPolicy", &[("PolicyArn", "arn:aws:iam::1:policy/no")])
        .await
        .refused(404, "NoSuchEntity");

    root.iam(&s3, "TagPolicy", &[of_policy[0], tag, ("Tags.member.1.Value", "a")]).await.expect(200);
    assert_eq!(root.iam(&s3, "ListPolicyTags", &of_policy).await.expect(200).elements("Key"), ["team"]);
    root.iam(&s3, "UntagPolicy", &[of_policy[0], ("TagKeys.member.1", "team")]).await.expect(200);
    assert!(root.iam(&s3, "ListPolicyTags", &of_policy).await.expect(200).elements("Key").is_empty());

    let used = root.iam(&s3, "GetAccessKeyLastUsed", &[("AccessKeyId", ann.access_key)]).await.expect(200);
    assert_eq!((used.element("UserName").as_deref(), used.element("Region").as_deref()), (Some("ann"), Some("N/A")));
    root.iam(&s3, "GetAccessKeyLastUsed", &[("AccessKeyId", "AKNONE")]).await.refused(404, "NoSuchEntity");
    let of_ann = [("UserName", "ann")];
    for action in ["ListMFADevices", "ListSSHPublicKeys", "ListSigningCertificates", "ListServiceSpecificCredentials"] {
        root.iam(&s3, action, &of_ann).await.expect(200);
        root.iam(&s3, action, &[("UserName", "none")]).await.refused(404, "NoSuchEntity");
        ann.iam(&s3, action, &of_ann).await.refused(403, "AccessDenied");
    }
    root.iam(&s3, "ListInstanceProfilesForRole", &[("RoleName", "r")]).await.expect(200);
    root.iam(&s3, "ListAccountAliases", &[]).await.expect(200);
    for (action, fields) in
        [("GetLoginProfile", &of_ann[..]), ("DeleteLoginProfile", &of_ann), ("GetAccountPasswordPolicy", &[])]
    {
        root.iam(&s3, action, fields).await.refused(404, "NoSuchEntity");
    }
}

#[tokio::test]
async fn what_no_policy_allows_is_refused() {
    let s3 = S3::with_iam().await;
    let (root, ann) = (Signer::root(), user(&s3, "ann").await);
    ann.iam(&s3, "ListUsers", &[]).await.refused(403, "AccessDenied");
    let identity = ann.sts(&s3, "GetCallerIdentity", &[]).await.expect(200);
    assert!(identity.element("Arn").unwrap().ends_with(":user/ann"));
    let inline = |document: &str| {
        [
            ("UserName".to_owned(), "ann".to_owned()),
            ("PolicyName".into(), "p".into()),
            ("PolicyDocument".into(), document.to_owned()),
        ]
    };
    let put = |document: String| {
        let (root, s3) = (&root, &s3);
        async move {
            let fields = inline(&document);
            let fields: Vec<(&str, &str)> =
                fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            root.iam(s3, "PutUserPolicy", &fields).await
        }
    };
    put(allow("iam:ListUsers")).await.expect(200);
    ann.iam(&s3, "ListUsers", &[]).await.expect(200);
    ann.iam(&s3, "CreateUser", &[("UserName", "b")]).await.refused(403, "AccessDenied");
    put("{}".into()).await.refused(400, "MalformedPolicyDocument");
    put(allow("iam:*").replace("Allow", "Deny")).await.expect(200);
    ann.iam(&s3, "ListUsers", &[]).await.refused(403, "AccessDenied");
    // Groups count, and a deny wins.
    root.iam(&s3, "CreateGroup", &[("GroupName", "g")]).await.expect(200);
    root.iam(
        &s3,
        "AttachGroupPolicy",
        &[("GroupName", "g"), ("PolicyArn", "arn:aws:iam::aws:policy/AdministratorAccess")],
    )
    .await
    .expect(200);
    root.iam(&s3, "AddUserToGroup", &[("GroupName", "g"), ("UserName", "ann")]).await.expect(200);
    ann.iam(&s3, "ListUsers", &[]).await.refused(403, "AccessDenied");
    root.iam(&s3, "DeleteUserPolicy", &[("UserName", "ann"), ("PolicyName", "p")]).await.expect(200);
    ann.iam(&s3, "ListUsers", &[]).await.expect(200);
    root.iam(&s3, "RemoveUserFromGroup", &[("GroupName", "g"), ("UserName", "ann")]).await.expect(200);
    ann.iam(&s3, "ListUsers", &[]).await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn keys_are_switched_off() {
    let s3 = S3::with_iam().await;
    let (root, ann) = (Signer::root(), user(&s3, "ann").await);
    let set = |status: &'static str| {
        let (root, s3, key) = (&root, &s3, ann.access_key);
        async move {
            let fields = [("UserName", "ann"), ("AccessKeyId", key), ("Status", status)];
            root.iam(s3, "UpdateAccessKey", &fields).await.expect(200);
        }
    };
    ann.sts(&s3, "GetCallerIdentity", &[]).await.expect(200);
    set("Inactive").await;
    ann.sts(&s3, "GetCallerIdentity", &[]).await.refused(403, "InvalidClientTokenId");
    ann.sign(s3.get("/")).send(&s3).await.refused(403, "InvalidAccessKeyId");
    set("Active").await;
    ann.sts(&s3, "GetCallerIdentity", &[]).await.expect(200);
}

#[tokio::test]
async fn requests_that_are_not_signed_rightly_are_refused() {
    let s3 = S3::with_iam().await;
    let root = Signer::root();
    let ask = || root.ask(&s3, "iam", "ListUsers", &[]);
    ask().send(&s3).await.expect(200);
    ask().change(|call| call.region = "").send(&s3).await.expect(200);
    ask().change(|call| call.secret_key = "wrong").send(&s3).await.refused(403, "SignatureDoesNotMatch");
    ask().change(|call| call.access_key = "NOBODY").send(&s3).await.refused(403, "InvalidClientTokenId");
    ask().change(|call| call.clock_s = 1000).send(&s3).await.refused(403, "SignatureDoesNotMatch");
    ask().change(|call| call.region = "mars-1").send(&s3).await.refused(403, "SignatureDoesNotMatch");
    ask().change(|call| call.service = "s3").send(&s3).await.refused(403, "SignatureDoesNotMatch");
    ask()
        .change(|call| call.sign = crate::harness::Sign::Not)
        .send(&s3)
        .await
        .refused(403, "MissingAuthenticationToken");
    ask().change(|call| call.unlisted = vec!["host"]).send(&s3).await.refused(400, "IncompleteSignature");
    let other = ask().change(|call| call.sent = Some(b"Action=DeleteUser&UserName=a&Version=2010-05-08".to_vec()));
    other.send(&s3).await.refused(403, "SignatureDoesNotMatch");
    ask().header("x-amz-security-token", "t").send(&s3).await.refused(403, "InvalidClientTokenId");
    // A key of IAM's is one of S3's.
    s3.get("/").send(&s3).await.expect(200);
}

#[tokio::test]
async fn roles_are_taken_on_by_whom_they_trust() {
    let s3 = S3::with_iam().await;
    let (root, ann, bob) = (Signer::root(), user(&s3, "ann").await, user(&s3, "bob").await);
    let arn = root.iam(&s3, "GetUser", &[("UserName", "ann")]).await.element("Arn").unwrap();
    let trust = format!(
        r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Principal":{{"AWS":"{arn}"}},"Action":"sts:AssumeRole"}}]}}"#
    );
    let role =
        root.iam(&s3, "CreateRole", &[("RoleName", "r"), ("AssumeRolePolicyDocument", &trust)]).await.expect(200);
    let role = role.element("Arn").unwrap();
    let wish: &[(&str, &str)] = &[("RoleArn", &role), ("RoleSessionName", "work")];
    bob.sts(&s3, "AssumeRole", wish).await.refused(403, "AccessDenied");
    let absent = bob.sts(&s3, "AssumeRole", &[("RoleArn", &format!("{role}x")), ("RoleSessionName", "work")]).await;
    absent.refused(403, "AccessDenied");
    root.sts(&s3, "AssumeRole", wish).await.refused(403, "AccessDenied");
    let session = Signer::of(&ann.sts(&s3, "AssumeRole", wish).await.expect(200));
    let identity = session.sts(&s3, "GetCallerIdentity", &[]).await.expect(200);
    assert!(identity.element("Arn").unwrap().ends_with(":assumed-role/r/work"));
    session.iam(&s3, "GetRole", &[("RoleName", "r")]).await.refused(403, "AccessDenied");
    let policy = allow("iam:GetRole");
    let put = [("RoleName", "r"), ("PolicyName", "p"), ("PolicyDocument", policy.as_str())];
    root.iam(&s3, "PutRolePolicy", &put).await.expect(200);
    session.iam(&s3, "GetRole", &[("RoleName", "r")]).await.expect(200);
    // A session's own policy narrows it.
    let narrow = allow("iam:ListUsers");
    let narrowed = [wish, &[("Policy", narrow.as_str())]].concat();
    let narrow = Signer::of(&ann.sts(&s3, "AssumeRole", &narrowed).await.expect(200));
    narrow.iam(&s3, "GetRole", &[("RoleName", "r")]).await.refused(403, "AccessDenied");
    // The token belongs to its key, and to no other.
    let mixed = Signer { token: narrow.token.clone(), ..session.clone() };
    mixed.sts(&s3, "GetCallerIdentity", &[]).await.refused(403, "InvalidClientTokenId");
    let without = Signer { token: None, ..session.clone() };
    without.sts(&s3, "GetCallerIdentity", &[]).await.refused(403, "InvalidClientTokenId");
    without.sign(s3.get("/")).send(&s3).await.refused(403, "InvalidAccessKeyId");
    mixed.sign(s3.get("/")).send(&s3).await.refused(400, "InvalidToken");
    ann.sts(&s3, "AssumeRole", &[wish, &[("DurationSeconds", "7200")]].concat()).await.refused(400, "ValidationError");
    // A session ends with its role.
    root.iam(&s3, "DeleteRolePolicy", &put[..2]).await.expect(200);
    root.iam(&s3, "DeleteRole", &put[..1]).await.expect(200);
    session.sts(&s3, "GetCallerIdentity", &[]).await.refused(403, "InvalidClientTokenId");
}

#[tokio::test]
async fn everything_outlives_a_restart() {
    let s3 = S3::with_iam().await;
    let (root, ann) = (Signer::root(), user(&s3, "ann").await);
    let session = Signer::of(&ann.sts(&s3, "GetSessionToken", &[]).await.expect(200));
    session.iam(&s3, "ListUsers", &[]).await.refused(403, "InvalidClientTokenId");
    session.sts(&s3, "GetSessionToken", &[]).await.refused(403, "AccessDenied");
    root.iam(&s3, "CreateUser", &[("UserName", "gone")]).await.expect(200);
    root.iam(&s3, "DeleteUser", &[("UserName", "gone")]).await.expect(200);
    let again = S3::of_iam((s3.store.clone(), s3.disk.clone()));
    assert_eq!(root.iam(&again, "ListUsers", &[]).await.expect(200).elements("UserName"), ["ann"]);
    for signer in [&ann, &session] {
        let identity = signer.sts(&again, "GetCallerIdentity", &[]).await.expect(200);
        assert!(identity.element("Arn").unwrap().ends_with(":user/ann"));
    }
}

/// What an operator asks for.
async fn operator(s3: &S3, action: &str, request: serde_json::Value) -> Result<serde_json::Value, String> {
    let iam = s3.iam.as_ref().unwrap();
    let request = serde_json::from_value(request).unwrap();
    iam.administer(action, request).await.map_err(|error| error.code.to_owned())
}

#[tokio::test]
async fn accounts_do_not_see_one_another() {
    let s3 = S3::with_iam().await;
    let made =
        operator(&s3, "account/create", serde_json::json!({ "id": "111122223333", "email": "a@b.example" })).await;
    assert_eq!(made.unwrap()["id"], "111122223333");
    let again = operator(&s3, "account/create", serde_json::json!({ "email": "A@B.example" })).await;
    assert_eq!(again.unwrap_err(), "EntityAlreadyExists");
    let key = serde_json::json!({ "account": "a@b.example", "access_key": "TENANT", "secret_key": "tenant-secret" });
    operator(&s3, "key/create", key.clone()).await.unwrap();
    assert_eq!(operator(&s3, "key/create", key).await.unwrap_err(), "EntityAlreadyExists");
    let tenant = Signer { access_key: "TENANT", secret_key: "tenant-secret", token: None };
    // Whoever names an account means none of another one's keys.
    let other = operator(&s3, "account/create", serde_json::json!({ "email": "o@b.example" })).await.unwrap();
    for action in ["key/disable", "key/enable", "key/delete"] {
        let of = |account: &serde_json::Value| serde_json::json!({ "account": account, "access_key": "TENANT" });
        assert_eq!(operator(&s3, action, of(&other["id"])).await.unwrap_err(), "NoSuchEntity", "{action}");
        if action != "key/delete" {
            operator(&s3, action, of(&"111122223333".into())).await.unwrap();
        }
    }
    s3.put("/mine").send(&s3).await.expect(200);
    tenant.sign(s3.put("/theirs")).send(&s3).await.expect(200);
    tenant.sign(s3.put("/mine")).send(&s3).await.refused(409, "BucketAlreadyExists");
    tenant.sign(s3.get("/mine?list-type=2")).send(&s3).await.refused(403, "AccessDenied");
    assert_eq!(tenant.sign(s3.get("/")).send(&s3).await.expect(200).elements("Name"), ["theirs"]);
    assert_eq!(s3.get("/").send(&s3).await.expect(200).elements("Name"), ["mine"]);
    // Users of one are not users of the other.
    Signer::root().iam(&s3, "CreateUser", &[("UserName", "ann")]).await.expect(200);
    assert!(tenant.iam(&s3, "ListUsers", &[]).await.expect(200).elements("UserName").is_empty());
    let deleted =
        |force| operator(&s3, "account/delete", serde_json::json!({ "account": "111122223333", "force": force }));
    assert_eq!(deleted(true).await.unwrap_err(), "DeleteConflict", "it has a bucket");
    tenant.sign(s3.delete("/theirs")).send(&s3).await.expect(204);
    assert_eq!(deleted(false).await.unwrap_err(), "DeleteConflict", "it has an access key");
    deleted(true).await.unwrap();
    tenant.sign(s3.get("/")).send(&s3).await.refused(403, "InvalidAccessKeyId");
}

#[tokio::test]
async fn a_service_account_is_narrower_than_its_owner() {
    let s3 = S3::with_iam().await;
    s3.put("/bkt").send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let made = operator(&s3, "key/create", serde_json::json!({ "policy": allow("s3:GetObject") })).await.unwrap();
    let text = |name: &str| &*made[name].as_str().unwrap().to_owned().leak();
    let service = Signer { access_key: text("access_key"), secret_key: text("secret_key"), token: None };
    service.sign(s3.get("/bkt/k")).send(&s3).await.expect(200);
    service.sign(s3.put("/bkt/k")).send(&s3).await.refused(403, "AccessDenied");
    service.iam(&s3, "CreateAccessKey", &[]).await.refused(403, "AccessDenied");
    // Nor is what it makes of itself.
    let session = Signer::of(&service.sts(&s3, "GetSessionToken", &[]).await.expect(200));
    session.sign(s3.get("/bkt/k")).send(&s3).await.expect(200);
    session.sign(s3.put("/bkt/k")).send(&s3).await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn quotas_hold() {
    let s3 = S3::with_iam().await;
    s3.put("/bkt").send(&s3).await.expect(200);
    s3.put("/other").send(&s3).await.expect(200);
    operator(&s3, "quota/set", serde_json::json!({ "bucket": "bkt", "bytes": 100, "objects": 3 })).await.unwrap();
    s3.put("/bkt/a").body(vec![0; 60]).send(&s3).await.expect(200);
    s3.put("/bkt/b").body(vec![0; 41]).send(&s3).await.refused(403, "QuotaExceeded");
    s3.put("/bkt/b").body(vec![0; 40]).send(&s3).await.expect(200);
    s3.put("/bkt/c").header("x-amz-copy-source", "/bkt/a").send(&s3).await.refused(403, "QuotaExceeded");
    s3.put("/other/c").body(vec![0; 1000]).send(&s3).await.expect(200);
    // What is deleted makes room at once.
    s3.delete("/bkt/a").send(&s3).await.expect(204);
    s3.put("/bkt/c").body(vec![0; 10]).send(&s3).await.expect(200);
    s3.put("/bkt/d").body(vec![0; 10]).send(&s3).await.expect(200);
    s3.put("/bkt/e").body(vec![0; 1]).send(&s3).await.refused(403, "QuotaExceeded");
    let shown = operator(&s3, "quota/show", serde_json::json!({ "bucket": "bkt" })).await.unwrap();
    assert_eq!((shown["objects"].as_u64(), shown["bytes"].as_u64()), (Some(3), Some(60)));
    operator(&s3, "quota/set", serde_json::json!({ "bucket": "bkt" })).await.unwrap();
    s3.put("/bkt/e").body(vec![0; 500]).send(&s3).await.expect(200);
    // An account's counts all its buckets.
    operator(&s3, "account/quota", serde_json::json!({ "bytes": 2000 })).await.unwrap();
    s3.put("/bkt/f").body(vec![0; 441]).send(&s3).await.refused(403, "QuotaExceeded");
    s3.put("/bkt/f").body(vec![0; 440]).send(&s3).await.expect(200);
    assert_eq!(
        operator(&s3, "quota/set", serde_json::json!({ "bucket": "none", "bytes": 1 })).await.unwrap_err(),
        "NoSuchEntity"
    );
}

#[tokio::test]
async fn users_have_quotas() {
    let s3 = S3::with_iam().await;
    let quota = |action: &'static str, request: serde_json::Value| operator(&s3, action, request);
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    for name in ["one", "two"] {
        s3.put(&format!("/{name}")).send(&s3).await.expect(200);
    }
    let (ann, ben) = (user(&s3, "ann").await, user(&s3, "ben").await);
    for name in ["ann", "ben"] {
        let policy = [("UserName", name), ("PolicyName", "p"), ("PolicyDocument", &*allow("s3:*"))];
        Signer::root().iam(&s3, "PutUserPolicy", &policy).await.expect(200);
    }
    // What he made counts from the beginning, not from when he is limited.
    ann.sign(s3.put("/one/a")).body(vec![0; 40]).send(&s3).await.expect(200);
    quota("quota/set", json(r#"{ "user": "ann", "bytes": 100 }"#)).await.unwrap();
    ann.sign(s3.put("/two/a")).body(vec![0; 61]).send(&s3).await.refused(403, "QuotaExceeded");
    ann.sign(s3.put("/two/a")).body(vec![0; 50]).send(&s3).await.expect(200);
    // A copy, and what his sessions make, are his as well; others are not limited.
    ann.sign(s3.put("/one/b").header("x-amz-copy-source", "/two/a")).send(&s3).await.refused(403, "QuotaExceeded");
    let session = Signer::of(&ann.sts(&s3, "GetSessionToken", &[]).await.expect(200));
    session.sign(s3.put("/one/b")).body(vec![0; 11]).send(&s3).await.refused(403, "QuotaExceeded");
    session.sign(s3.put("/one/b")).body(vec![0; 10]).send(&s3).await.expect(200);
    ben.sign(s3.put("/one/c")).body(vec![0; 1000]).send(&s3).await.expect(200);
    s3.put("/one/d").body(vec![0; 1000]).send(&s3).await.expect(200);
    let shown = quota("quota/show", json(r#"{ "user": "ann" }"#)).await.unwrap();
    assert_eq!((shown["objects"].as_u64(), shown["bytes"].as_u64()), (Some(3), Some(100)));
    assert_eq!(shown["quota"]["bytes"], 100);
    // What another puts in its place is the other's.
    ben.sign(s3.put("/one/a")).body(vec![0; 40]).send(&s3).await.expect(200);
    ann.sign(s3.put("/one/e")).body(vec![0; 40]).send(&s3).await.expect(200);
    // His parts count until their upload ends, whatever the size of the object will be.
    quota("quota/set", json(r#"{ "user": "ann", "bytes": 120, "objects": 4 }"#)).await.unwrap();
    let begun = ann.sign(s3.post("/one/u?uploads")).send(&s3).await.expect(200);
    let upload = begun.element("UploadId").unwrap();
    let part = |number: u32| s3.put(&format!("/one/u?partNumber={number}&uploadId={upload}"));
    ann.sign(part(1)).body(vec![0; 21]).send(&s3).await.refused(403, "QuotaExceeded");
    ann.sign(part(1)).body(vec![0; 20]).send(&s3).await.expect(200);
    ann.sign(s3.put("/one/f")).body("x").send(&s3).await.refused(403, "QuotaExceeded");
    let shown = quota("quota/show", json(r#"{ "user": "ann" }"#)).await.unwrap();
    assert_eq!((shown["parts"].as_u64(), shown["part_bytes"].as_u64()), (Some(1), Some(20)));
    ann.sign(s3.delete(&format!("/one/u?uploadId={upload}"))).send(&s3).await.expect(204);
    ann.sign(s3.put("/one/f")).body("x").send(&s3).await.expect(200);
    ann.sign(s3.put("/one/g")).send(&s3).await.refused(403, "QuotaExceeded");
    quota("quota/clear", json(r#"{ "user": "ann" }"#)).await.unwrap();
    ann.sign(s3.put("/one/g")).body(vec![0; 1000]).send(&s3).await.expect(200);
    // Nobody learns of a quota who is not let in.
    quota("quota/set", json(r#"{ "bucket": "one", "bytes": 1 }"#)).await.unwrap();
    let stranger = Signer { access_key: ann.access_key, secret_key: "wrong", token: None };
    stranger.sign(s3.put("/one/h")).body("xx").send(&s3).await.refused(403, "SignatureDoesNotMatch");
    s3.put("/one/h").sign(Sign::Not).body("xx").send(&s3).await.refused(403, "AccessDenied");
    for wrong in [r#"{ "bytes": 1 }"#, r#"{ "user": "none", "bytes": 1 }"#, r#"{ "user": "ann", "bucket": "one" }"#] {
        assert!(quota("quota/set", json(wrong)).await.is_err(), "{wrong}");
    }
    // An account's counts all its buckets.
    let shown = quota("quota/show", json("{}")).await.unwrap();
    assert_eq!(shown["bytes"].as_u64(), Some(3141));
}

/// What is appended is his who made the object, and takes no object more.
#[tokio::test]
async fn an_append_counts_for_whose_object_it_is() {
    let s3 = S3::with_iam().await;
    s3.put("/bkt").send(&s3).await.expect(200);
    let (ann, ben) = (user(&s3, "ann").await, user(&s3, "ben").await);
    for name in ["ann", "ben"] {
        let policy = [("UserName", name), ("PolicyName", "p"), ("PolicyDocument", &*allow("s3:*"))];
        Signer::root().iam(&s3, "PutUserPolicy", &policy).await.expect(200);
    }
    let quota = |user: &str, bytes: u64, objects: u64| {
        let request = serde_json::json!({ "user": user, "bytes": bytes, "objects": objects });
        operator(&s3, "quota/set", request)
    };
    quota("ann", 100, 1).await.unwrap();
    quota("ben", 0, 0).await.unwrap();
    let append = |offset: &str, bytes: usize| {
        s3.put("/bkt/log").header("x-amz-write-offset-bytes", offset.to_owned()).body(vec![0; bytes])
    };
    ben.sign(append("0", 1)).send(&s3).await.refused(403, "QuotaExceeded");
    ann.sign(append("0", 60)).send(&s3).await.expect(200);
    ben.sign(append("60", 40)).send(&s3).await.expect(200);
    ben.sign(append("100", 1)).send(&s3).await.refused(403, "QuotaExceeded");
}

/// What a request brings, and whom it is about, is for conditions to look at.
#[tokio::test]
async fn administrators_are_kept_within_bounds_by_conditions() {
    let s3 = S3::with_iam().await;
    let root = Signer::root();
    let ann = user(&s3, "ann").await;
    const READ: &str = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess";
    const FULL: &str = "arn:aws:iam::aws:policy/AmazonS3FullAccess";
    let statement = |action: &str, condition: &str| {
        format!(r#"{{"Effect":"Allow","Action":"{action}","Resource":"*","Condition":{{{condition}}}}}"#)
    };
    let statements = [
        statement("iam:AttachUserPolicy", &format!(r#""ArnEquals":{{"iam:PolicyARN":"{READ}"}}"#)),
        statement("iam:CreateUser", &format!(r#""StringEquals":{{"iam:PermissionsBoundary":"{READ}"}}"#)),
        statement("iam:TagUser", r#""ForAllValues:StringEquals":{"aws:TagKeys":["team"]}"#),
        statement("iam:UntagUser", r#""ForAllValues:StringEquals":{"aws:TagKeys":["team"]}"#),
        statement("iam:DeleteUser", r#""StringEquals":{"aws:ResourceTag/team":"blue"}"#),
        statement("iam:PutUserPolicy", &format!(r#""StringEquals":{{"iam:PermissionsBoundary":"{READ}"}}"#)),
    ];
    let document = format!(r#"{{"Version":"2012-10-17","Statement":[{}]}}"#, statements.join(","));
    let policy = [("UserName", "ann"), ("PolicyName", "p"), ("PolicyDocument", &*document)];
    root.iam(&s3, "PutUserPolicy", &policy).await.expect(200);
    user(&s3, "ben").await;
    let inline = allow("s3:*");
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], bool);
    let table: [Row<'_>; 15] = [
        ("AttachUserPolicy", &[("UserName", "ben"), ("PolicyArn", FULL)], false),
        ("AttachUserPolicy", &[("UserName", "ben"), ("PolicyArn", READ)], true),
        ("CreateUser", &[("UserName", "cat")], false),
        ("CreateUser", &[("UserName", "cat"), ("PermissionsBoundary", FULL)], false),
        ("CreateUser", &[("UserName", "cat"), ("PermissionsBoundary", READ)], true),
        ("PutUserPolicy", &[("UserName", "ben"), ("PolicyName", "p"), ("PolicyDocument", &inline)], false),
        ("PutUserPolicy", &[("UserName", "cat"), ("PolicyName", "p"), ("PolicyDocument", &inline)], true),
        ("CreateUser", &[("UserName", "cat")], false),
        // What an action does not take decides nothing.
        (
            "PutUserPolicy",
            &[("UserName", "ben"), ("PolicyName", "p"), ("PolicyDocument", &inline), ("PermissionsBoundary", READ)],
            false,
        ),
        ("DeleteUser", &[("UserName", "ben"), ("Tags.member.1.Key", "team"), ("Tags.member.1.Value", "blue")], false),
        ("TagUser", &[("UserName", "cat"), ("Tags.member.1.Key", "rank"), ("Tags.member.1.Value", "1")], false),
        ("DeleteUser", &[("UserName", "ben")], false),
        ("TagUser", &[("UserName", "dan"), ("Tags.member.1.Key", "team"), ("Tags.member.1.Value", "blue")], true),
        ("UntagUser", &[("UserName", "dan"), ("TagKeys.member.1", "rank")], false),
        ("DeleteUser", &[("UserName", "dan")], true),
    ];
    root.iam(&s3, "CreateUser", &[("UserName", "dan")]).await.expect(200);
    for (action, parameters, expected) in table {
        let answer = ann.iam(&s3, action, parameters).await;
        match expected {
            true => drop(answer.expect(200)),
            false => drop(answer.refused(403, "AccessDenied")),
        }
    }
}

/// An identity provider: a key, and the two documents that show it, by HTTP.
struct Idp {
    url: String,
    key: ring::signature::EcdsaKeyPair,
}

impl Idp {
    async fn start() -> Self {
        use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
        let random = ring::rand::SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (x, y) = key.public_key().as_ref()[1..].split_at(32);
        let jwks = serde_json::json!({ "keys": [
            { "kty": "oct", "k": "AAAA" },
            { "kty": "EC", "crv": "P-256", "kid": "1", "use": "sig", "x": base64(x), "y": base64(y) },
        ] });
        let configuration = serde_json::json!({ "issuer": url, "jwks_uri": format!("{url}/keys") });
        tokio::spawn(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 4096];
                let length = stream.read(&mut head).await.unwrap();
                let keys = head[..length].starts_with(b"GET /keys ");
                let body = if keys { jwks.to_string() } else { configuration.to_string() };
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { url, key }
    }

    fn token(&self, header: serde_json::Value, claims: serde_json::Value) -> String {
        let signed = format!("{}.{}", base64(header.to_string().as_bytes()), base64(claims.to_string().as_bytes()));
        let signature = self.key.sign(&ring::rand::SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", base64(signature.as_ref()))
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

#[tokio::test]
async fn whom_an_identity_provider_vouches_for_gets_a_session() {
    let (s3, idp) = (S3::with_iam().await, Idp::start().await);
    let root = Signer::root();
    let provider = [("Url", idp.url.as_str()), ("ClientIDList.member.1", "app")];
    let provider = root.iam(&s3, "CreateOpenIDConnectProvider", &provider).await.expect(200);
    let arn = provider.element("OpenIDConnectProviderArn").unwrap();
    let host = idp.url.trim_start_matches("http://");
    let trust = serde_json::json!({ "Version": "2012-10-17", "Statement": [{
        "Effect": "Allow",
        "Principal": { "Federated": arn },
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": { "StringEquals": { format!("{host}:sub"): "ann", format!("{host}:aud"): "app" } },
    }] });
    let role = [("RoleName", "web"), ("AssumeRolePolicyDocument", &*trust.to_string())];
    let role = root.iam(&s3, "CreateRole", &role).await.expect(200).element("Arn").unwrap();
    let now_s = SystemClock.now_ms() / 1000;
    let claims = |sub: &str, aud: &str, exp: u64| serde_json::json!({ "iss": idp.url, "sub": sub, "aud": aud, "exp": exp, "iat": now_s - 10 });
    let es256 = || serde_json::json!({ "alg": "ES256", "kid": "1" });
    let ask = |token: String| {
        let (s3, role) = (&s3, role.as_str());
        async move {
            let wish = [("RoleArn", role), ("RoleSessionName", "browser"), ("WebIdentityToken", token.as_str())];
            let mut call = Signer::root().ask(s3, "sts", "AssumeRoleWithWebIdentity", &wish);
            call.sign = crate::harness::Sign::Not;
            call.send(s3).await
        }
    };
    let good = idp.token(es256(), claims("ann", "app", now_s + 600));
    {
        // Whoever comes first may go before the keys are there; they come for all who wait.
        let mut goes = pin!(ask(good.clone()));
        assert!(futures::poll!(goes.as_mut()).is_pending());
    }
    let (answer, other) = tokio::join!(ask(good.clone()), ask(good.clone()));
    other.expect(200);
    let answer = answer.expect(200);
    assert_eq!(answer.element("SubjectFromWebIdentityToken").as_deref(), Some("ann"));
    let identity = Signer::of(&answer).sts(&s3, "GetCallerIdentity", &[]).await.expect(200);
    assert!(identity.element("Arn").unwrap().ends_with(":assumed-role/web/browser"));

    let other = Idp::start().await;
    let forged = other.token(es256(), claims("ann", "app", now_s + 600));
    let unsigned = format!(
        "{}.",
        good.rsplit_once('.').unwrap().0.replace(good.split('.').next().unwrap(), &base64(br#"{"alg":"none"}"#))
    );
    let shared = idp.token(serde_json::json!({ "alg": "HS256", "kid": "1" }), claims("ann", "app", now_s + 600));
    let table = [
        (idp.token(es256(), claims("bob", "app", now_s + 600)), 403, "AccessDenied"),
        (idp.token(es256(), claims("ann", "else", now_s + 600)), 400, "InvalidIdentityToken"),
        (idp.token(es256(), claims("ann", "app", now_s - 600)), 400, "ExpiredTokenException"),
        (
            idp.token(es256(), serde_json::json!({ "iss": idp.url, "sub": "ann", "aud": "app" })),
            400,
            "InvalidIdentityToken",
        ),
        (
            idp.token(es256(), serde_json::json!({ "iss": other.url, "sub": "ann", "aud": "app", "exp": now_s + 600 })),
            400,
            "InvalidIdentityToken",
        ),
        (forged, 400, "InvalidIdentityToken"),
        (unsigned, 400, "InvalidIdentityToken"),
        (shared, 400, "InvalidIdentityToken"),
        ("rubbish".to_owned(), 400, "InvalidIdentityToken"),
        (format!("{good}AA"), 400, "InvalidIdentityToken"),
    ];
    for (token, status, code) in table {
        ask(token).await.refused(status, code);
    }
}

/// A document may take its time: what its sender may do when it is there counts.
#[tokio::test]
async fn a_document_counts_only_if_its_sender_still_may() {
    let s3 = S3::with_iam().await;
    let root = Signer::root();
    s3.put("/bkt").send(&s3).await.expect(200);
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    let policy = allow("s3:*");
    let named = [("UserName", "ann"), ("PolicyName", "p"), ("PolicyDocument", policy.as_str())];
    let ann = user(&s3, "ann").await;
    root.iam(&s3, "PutUserPolicy", &named).await.expect(200);
    let put = || ann.sign(s3.put("/bkt?tagging").body(tags).md5());
    put().send(&s3).await.expect(204);
    let forbid = async || drop(root.iam(&s3, "DeleteUserPolicy", &named[..2]).await.expect(200));
    put().send_slowly(&s3, forbid()).await.refused(403, "AccessDenied");
    root.iam(&s3, "PutUserPolicy", &named).await.expect(200);
    let key = [("UserName", "ann"), ("AccessKeyId", ann.access_key)];
    let lock_out = async || drop(root.iam(&s3, "DeleteAccessKey", &key).await.expect(200));
    put().send_slowly(&s3, lock_out()).await.refused(403, "InvalidAccessKeyId");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_in_time_is_waited_for_no_longer() {
    let s3 = S3::with_iam().await;
    s3.put("/bkt").send(&s3).await.expect(200);
    let late = || tokio::time::sleep(std::time::Duration::from_secs(125));
    let form = s3.post("/").header("content-type", "application/x-www-form-urlencoded").body("Action=x");
    form.send_slowly(&s3, late()).await.refused(400, "ValidationError");
    let delete = s3.post("/bkt?delete").body("<Delete><Object><Key>k</Key></Object></Delete>").md5();
    delete.send_slowly(&s3, late()).await.refused(400, "RequestTimeout");
    let long = "a".repeat((512 << 10) + 1);
    let form = s3.post("/").header("content-type", "application/x-www-form-urlencoded").body(long);
    form.send(&s3).await.refused(400, "ValidationError");
}

/// A tenant kept all others from sending documents, and anybody all administrators from signing in.
#[tokio::test]
async fn what_comes_slowly_keeps_nobody_out() {
    let s3 = S3::with_iam().await;
    operator(&s3, "account/create", serde_json::json!({ "email": "a@b.example" })).await.unwrap();
    let key = serde_json::json!({ "account": "a@b.example", "access_key": "TENANT", "secret_key": "tenant-secret" });
    operator(&s3, "key/create", key).await.unwrap();
    let tenant = Signer { access_key: "TENANT", secret_key: "tenant-secret", token: None };
    tenant.sign(s3.put("/theirs")).send(&s3).await.expect(200);
    s3.put("/mine").send(&s3).await.expect(200);
    let (document, form) = (" ".repeat(4 << 20), " ".repeat(512 << 10));
    let documents = (0..17).map(|_| tenant.sign(s3.put("/theirs?tagging").body(document.clone())));
    let forms = (0..33).map(|_| s3.post("/").header("content-type", FORM).sign(Sign::Not).body(form.clone()));
    let mut slow: FuturesUnordered<_> = (documents.map(|call| (call, document.len() - 1)))
        .chain(forms.map(|call| (call, form.len() - 1)))
        .map(|(call, early_bytes)| call.send_partly(&s3, early_bytes).boxed_local())
        .collect();
    let mut told = Vec::new();
    for _ in 0..1000 {
        while let Poll::Ready(Some(answer)) = futures::poll!(slow.next()) {
            told.push(answer.expect(503).element("Code").unwrap());
        }
        tokio::task::yield_now().await;
    }
    told.sort_unstable();
    assert_eq!(told, ["ServiceUnavailable", "SlowDown"], "there is room for all others");
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    s3.put("/mine?tagging").body(tags).send(&s3).await.expect(204);
    Signer::root().iam(&s3, "ListUsers", &[]).await.expect(200);
    let made_room = [slow.next().await.unwrap().status, slow.next().await.unwrap().status];
    assert_eq!(made_room, [503, 503]);
    assert!(futures::poll!(slow.next()).is_pending());
}

#[tokio::test]
async fn the_audit_log_says_who_did_what() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let (file, writer) = AccessLog::open(AccessLogTarget::File(path.clone())).unwrap();
    let (audit, _) = AuditLog::new(Some(file), None);
    let s3 = S3::with(|options| options.audit = audit).await;
    s3.put("/bkt").send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    s3.get("/bkt/k").sign(crate::harness::Sign::Query(60)).send(&s3).await.expect(200);
    s3.get("/bkt/k").sign(crate::harness::Sign::Not).send(&s3).await.refused(403, "AccessDenied");
    s3.get("/bkt/k").change(|call| call.secret_key = "wrong").send(&s3).await.refused(403, "SignatureDoesNotMatch");
    for target in ["/bkt/gone", "/bkt?tagging"] {
        // It may have taken effect, for all that the client knows.
        let mut hangs_up = pin!(s3.put(target).body("<x/>").send_slowly(&s3, std::future::pending()));
        assert!(futures::poll!(hangs_up.as_mut()).is_pending(), "{target}");
    }
    drop(s3);
    writer.close();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown = |line: &serde_json::Value| {
        let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
        format!("{} {} {} {}", text("operation"), text("outcome"), text("access_key"), text("path"))
    };
    assert_eq!(
        lines.iter().map(shown).collect::<Vec<_>>(),
        [
            "CreateBucket allowed AKTEST /bkt",
            "PutObject allowed AKTEST /bkt/k",
            "GetObject allowed AKTEST /bkt/k",
            "GetObject denied - /bkt/k",
            "GetObject denied - /bkt/k",
            "PutObject unanswered AKTEST /bkt/gone",
            "PutBucketTagging unanswered AKTEST /bkt",
        ]
    );
    assert!(text.contains("X-Amz-Signature=***") && lines.iter().all(|line| line["request_id"].is_string()));
}

/// A lock can never be taken back.
#[tokio::test]
async fn who_makes_a_bucket_with_locks_needs_to_be_allowed_them() {
    let s3 = S3::with_iam().await;
    let ann = user(&s3, "ann").await;
    let put = async |actions: &str| {
        let policy = format!(
            r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Action":[{actions}],"Resource":"*"}}]}}"#
        );
        let policy = [("UserName", "ann"), ("PolicyName", "p"), ("PolicyDocument", policy.as_str())];
        Signer::root().iam(&s3, "PutUserPolicy", &policy).await.expect(200);
    };
    let make = |bucket: &str| s3.put(bucket).header("x-amz-bucket-object-lock-enabled", "true");
    put(r#""s3:CreateBucket""#).await;
    ann.sign(make("/locked")).send(&s3).await.refused(403, "AccessDenied");
    ann.sign(s3.put("/plain")).send(&s3).await.expect(200);
    put(r#""s3:CreateBucket","s3:PutBucketObjectLockConfiguration""#).await;
    ann.sign(make("/locked")).send(&s3).await.refused(403, "AccessDenied");
    put(r#""s3:CreateBucket","s3:PutBucketObjectLockConfiguration","s3:PutBucketVersioning""#).await;
    ann.sign(make("/locked")).send(&s3).await.expect(200);
}
