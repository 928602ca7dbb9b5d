//! IAM and STS: users, keys, roles and sessions, by their API.

use crate::harness::{Answer, Call, S3};

/// Somebody who signs: access key, secret key, session token.
#[derive(Clone)]
struct Signer {
    access_key: &'static str,
    secret_key: &'static str,
    token: Option<String>,
}

impl Signer {
    fn root() -> Self {
        Self { access_key: crate::harness::ACCESS_KEY, secret_key: crate::harness::SECRET_KEY, token: None }
    }

    /// What an answer gives, under AWS's names.
    fn of(answer: &Answer) -> Self {
        let text = |name: &str| answer.element(name).unwrap_or_else(|| panic!("{name} in {}", answer.text()));
        Self {
            access_key: text("AccessKeyId").leak(),
            secret_key: text("SecretAccessKey").leak(),
            token: answer.element("SessionToken"),
        }
    }

    fn sign(&self, mut call: Call) -> Call {
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

    async fn iam(&self, s3: &S3, action: &str, parameters: &[(&str, &str)]) -> Answer {
        self.ask(s3, "iam", action, parameters).send(s3).await
    }

    async fn sts(&self, s3: &S3, action: &str, parameters: &[(&str, &str)]) -> Answer {
        self.ask(s3, "sts", action, parameters).send(s3).await
    }
}

fn allow(action: &str) -> String {
    format!(r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Action":"{action}","Resource":"*"}}]}}"#)
}

/// A user with an access key.
async fn user(s3: &S3, name: &str) -> Signer {
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
