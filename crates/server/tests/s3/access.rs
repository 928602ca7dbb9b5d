//! Who may do what: bucket policies, ACLs, ownership, public access, anonymous requests. Each table is a feature's.

use std::sync::Arc;

use gabion_platform::{Clock, SystemClock};
use gabion_policy::Policy;
use gabion_server::credentials::{
    Account, AccountName, Credential, CredentialStore, Identity, NoCredential, Principal, SecretKey,
};

use crate::harness::{ACCESS_KEY, Answer, Call, S3, SECRET_KEY, Sign};

/// Who there is: two accounts with their root users, and users of the first.
const WHO: [&str; 4] = [ACCESS_KEY, ALT, USER, READER];
/// The root user of another account.
pub(crate) const ALT: &str = "AKALT";
/// A user without policies.
pub(crate) const USER: &str = "AKUSER";
/// A user who may get objects and list buckets.
const READER: &str = "AKREADER";
const READS: &str =
    r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":["s3:Get*","s3:List*"],"Resource":"*"}}"#;

#[derive(Debug)]
pub(crate) struct Users(Vec<Arc<Identity>>);

impl Users {
    pub(crate) fn new() -> Self {
        let own = Arc::new(account("own"));
        let user = |key: &str, name: &str, policies| {
            let principal =
                Principal::User { name: name.into(), path: "/".into(), id: format!("AIDA{name}"), tags: Vec::new() };
            let root = Identity::root(Arc::clone(&own), key);
            Arc::new(Identity { principal, policies, ..root })
        };
        let reads = vec![Arc::new(Policy::parse(READS.as_bytes()).unwrap())];
        Self(vec![
            Arc::new(Identity::root(Arc::clone(&own), ACCESS_KEY)),
            Arc::new(Identity::root(Arc::new(account("alt")), ALT)),
            user(USER, "user", Vec::new()),
            user(READER, "reader", reads),
        ])
    }
}

pub(crate) fn account(name: &str) -> Account {
    Account { email: Some(format!("{name}@example.org")), display_name: name.into(), ..Account::first(name) }
}

fn canonical(name: &str) -> String {
    account(name).canonical_id
}

impl CredentialStore for Users {
    fn find(&self, access_key: &str, token: Option<&str>) -> Result<Credential, NoCredential> {
        let identity = self.0.iter().find(|identity| identity.access_key == access_key);
        match (identity, token) {
            (Some(identity), None) => {
                Ok(Credential { secret: self.secret_for(access_key).unwrap(), identity: Arc::clone(identity) })
            }
            _ => Err(NoCredential::UnknownKey),
        }
    }

    fn secret_for(&self, access_key: &str) -> Option<SecretKey> {
        WHO.contains(&access_key).then(|| SecretKey::new(SECRET_KEY))
    }

    fn first_account(&self) -> Arc<Account> {
        Arc::clone(&self.0[0].account)
    }

    fn account(&self, name: AccountName<'_>) -> Option<Arc<Account>> {
        self.0.iter().map(|identity| &identity.account).find(|account| name.is_of(account)).cloned()
    }
}

async fn server() -> S3 {
    let s3 = S3::for_users(Arc::new(Users::new())).await;
    s3.put("/bkt").send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    s3
}

/// With ACLs.
async fn server_with_acls() -> S3 {
    let s3 = S3::for_users(Arc::new(Users::new())).await;
    s3.put("/bkt").header("x-amz-object-ownership", "ObjectWriter").send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    s3
}

/// Signs as somebody; nobody is `""`.
pub(crate) fn by(who: &'static str, call: Call) -> Call {
    call.change(|call| match who {
        "" => call.sign = Sign::Not,
        who => call.access_key = who,
    })
}

async fn put_policy(s3: &S3, policy: &str) -> Answer {
    s3.put("/bkt?policy").body(policy.replace('\'', "\"")).send(s3).await
}

fn allow(principal: &str, action: &str, resource: &str, condition: &str) -> String {
    statement("Allow", principal, action, resource, condition)
}

fn statement(effect: &str, principal: &str, action: &str, resource: &str, condition: &str) -> String {
    let condition = if condition.is_empty() { String::new() } else { format!(",'Condition':{{{condition}}}") };
    format!(
        "{{'Version':'2012-10-17','Statement':{{'Effect':'{effect}','Principal':{principal},'Action':'{action}','Resource':'arn:aws:s3:::{resource}'{condition}}}}}"
    )
}

fn user_arn(name: &str) -> String {
    format!("{{'AWS':'arn:aws:iam::{}:user/{name}'}}", account("own").id)
}

#[tokio::test]
async fn without_a_policy_the_account_and_what_it_allows_get_in() {
    let s3 = server().await;
    let table: &[(&str, &str, &str, [u16; 5])] = &[
        // Method, target, body; root, another account, a user without policies, one who reads, nobody.
        ("GET", "/bkt/k", "", [200, 403, 403, 200, 403]),
        ("HEAD", "/bkt/k", "", [200, 403, 403, 200, 403]),
        ("GET", "/bkt/none", "", [404, 403, 403, 404, 403]),
        ("HEAD", "/bkt/none", "", [404, 403, 403, 404, 403]),
        ("GET", "/bkt/none?tagging", "", [404, 403, 403, 404, 403]),
        ("PUT", "/bkt/new", "x", [200, 403, 403, 403, 403]),
        ("DELETE", "/bkt/new", "", [204, 403, 403, 403, 403]),
        ("GET", "/bkt", "", [200, 403, 403, 200, 403]),
        ("HEAD", "/bkt", "", [200, 403, 403, 200, 403]),
        ("GET", "/bkt?location", "", [200, 403, 403, 200, 403]),
        ("GET", "/bkt?uploads", "", [200, 403, 403, 200, 403]),
        ("POST", "/bkt/u?uploads", "", [200, 403, 403, 403, 403]),
        ("GET", "/bkt?policy", "", [404, 403, 403, 404, 403]),
        ("GET", "/bkt?acl", "", [200, 403, 403, 200, 403]),
        ("GET", "/bkt/k?acl", "", [200, 403, 403, 200, 403]),
        ("GET", "/bkt?ownershipControls", "", [200, 403, 403, 200, 403]),
        ("GET", "/bkt?publicAccessBlock", "", [404, 403, 403, 404, 403]),
        ("GET", "/none", "", [404, 404, 404, 404, 404]),
        ("GET", "/none/k", "", [404, 404, 404, 404, 404]),
        ("DELETE", "/bkt", "", [409, 403, 403, 403, 403]),
        ("GET", "/", "", [200, 200, 403, 200, 403]),
        ("PUT", "/bkt?session", "", [501, 501, 501, 501, 403]),
    ];
    for (method, target, body, expected) in table {
        for (who, expected) in [ACCESS_KEY, ALT, USER, READER, ""].into_iter().zip(expected) {
            let answer = by(who, s3.call(method, target).body(*body)).send(&s3).await;
            assert_eq!(answer.status, *expected, "{method} {target} by {who:?}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn buckets_are_their_accounts() {
    let s3 = server().await;
    by(ALT, s3.put("/bkt")).send(&s3).await.refused(409, "BucketAlreadyExists");
    by(ALT, s3.put("/theirs")).send(&s3).await.expect(200);
    // Again: the same is no error, something else is.
    by(ALT, s3.put("/theirs")).send(&s3).await.expect(200);
    let again = by(ALT, s3.put("/theirs").header("x-amz-object-ownership", "ObjectWriter"));
    again.send(&s3).await.refused(409, "BucketAlreadyExists");
    by(USER, s3.put("/users")).send(&s3).await.refused(403, "AccessDenied");
    by("", s3.put("/nobodys")).send(&s3).await.refused(403, "AccessDenied");
    let names = |answer: Answer| answer.expect(200).elements("Name");
    assert_eq!(names(s3.get("/").send(&s3).await), ["bkt"]);
    assert_eq!(names(by(ALT, s3.get("/")).send(&s3).await), ["theirs"]);
    assert_eq!(names(by(READER, s3.get("/")).send(&s3).await), ["bkt"]);
    by("", s3.get("/")).send(&s3).await.refused(403, "AccessDenied");
    s3.get("/theirs").send(&s3).await.refused(403, "AccessDenied");
    let expecting = |owner: &str| s3.get("/bkt").header("x-amz-expected-bucket-owner", owner.to_owned());
    expecting(&account("own").id).send(&s3).await.expect(200);
    expecting(&account("alt").id).send(&s3).await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn policies_are_put_shown_and_deleted() {
    let s3 = server().await;
    s3.get("/bkt?policy").send(&s3).await.refused(404, "NoSuchBucketPolicy");
    let policy = " {'Version':'2012-10-17',  'Statement':[{'Effect':'Allow','Principal':'*','Action':'s3:GetObject','Resource':'arn:aws:s3:::bkt/*'}]}";
    put_policy(&s3, policy).await.expect(204);
    let shown = s3.get("/bkt?policy").send(&s3).await.expect(200);
    assert_eq!((shown.text(), shown.header("content-type")), (policy.replace('\'', "\""), Some("application/json")));
    let public = |answer: Answer| answer.expect(200).element("IsPublic").unwrap();
    assert_eq!(public(s3.get("/bkt?policyStatus").send(&s3).await), "true");
    for _ in 0..2 {
        s3.delete("/bkt?policy").send(&s3).await.expect(204);
        assert_eq!(public(s3.get("/bkt?policyStatus").send(&s3).await), "false");
    }
    let bad = [
        ("", "Policies must be valid JSON and the first byte must be '{'"),
        ("{'Statement':[]}", "Could not parse the policy: Statement is empty!"),
        (&allow("'*'", "s3:GetObject", "other/*", ""), "Policy has invalid resource"),
        (&allow("'*'", "s3:Frobnicate", "bkt/*", ""), "Policy has invalid action"),
        (&allow("'nobody'", "s3:GetObject", "bkt/*", ""), "Invalid principal in policy"),
    ];
    for (policy, message) in bad {
        let refused = put_policy(&s3, policy).await.refused(400, "MalformedPolicy");
        assert_eq!(refused.element("Message").unwrap().replace("&quot;", "\""), message);
    }
    s3.put("/none?policy").body(allow("'*'", "s3:*", "none", "")).send(&s3).await.refused(404, "NoSuchBucket");
    // A bucket takes its policy along.
    put_policy(&s3, &allow("'*'", "s3:*", "bkt", "")).await.expect(204);
    s3.delete("/bkt/k").send(&s3).await.expect(204);
    s3.delete("/bkt").send(&s3).await.expect(204);
    by(ALT, s3.put("/bkt")).send(&s3).await.expect(200);
    by(ALT, s3.get("/bkt?policy")).send(&s3).await.refused(404, "NoSuchBucketPolicy");
    s3.get("/bkt").send(&s3).await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn policies_are_enforced() {
    let s3 = server().await;
    let (all, own) = ("'*'", format!("{{'AWS':'{}'}}", account("own").id));
    let (alt, user) = (format!("{{'AWS':'{}'}}", account("alt").id), user_arn("user"));
    let get = ("GET", "/bkt/k");
    // Policy; what is asked for; root, another account, a user without policies, one who reads, nobody.
    type Row<'a> = (String, (&'a str, &'a str), [u16; 5]);
    let table: Vec<Row<'_>> = vec![
        (allow(all, "s3:GetObject", "bkt/*", ""), get, [200, 200, 200, 200, 200]),
        (allow(all, "s3:GetObject", "bkt/*", ""), ("GET", "/bkt/none"), [404, 403, 403, 404, 403]),
        (allow(all, "s3:GetObject", "bkt/*", ""), ("GET", "/bkt"), [200, 403, 403, 200, 403]),
        (allow(all, "s3:ListBucket", "bkt", ""), ("HEAD", "/bkt/none"), [404, 404, 404, 404, 404]),
        (allow(all, "s3:ListBucket", "bkt", ""), get, [200, 403, 403, 200, 403]),
        (allow(&alt, "s3:GetObject", "bkt/*", ""), get, [200, 200, 403, 200, 403]),
        (allow(&own, "s3:GetObject", "bkt/*", ""), get, [200, 403, 403, 200, 403]),
        (allow(&user, "s3:GetObject", "bkt/*", ""), get, [200, 403, 200, 200, 403]),
        (statement("Deny", all, "s3:GetObject", "bkt/*", ""), get, [403, 403, 403, 403, 403]),
        (statement("Deny", &own, "s3:GetObject", "bkt/*", ""), get, [403, 403, 403, 403, 403]),
        (statement("Deny", &user_arn("reader"), "s3:GetObject", "bkt/*", ""), get, [200, 403, 403, 403, 403]),
        (
            allow(all, "s3:ListBucket", "bkt", "'StringLike':{'s3:prefix':'a/*'}"),
            ("GET", "/bkt?prefix=a/b"),
            [200, 200, 200, 200, 200],
        ),
        (
            allow(all, "s3:ListBucket", "bkt", "'StringLike':{'s3:prefix':'a/*'}"),
            ("GET", "/bkt?prefix=b"),
            [200, 403, 403, 200, 403],
        ),
        (
            allow(all, "s3:ListBucket", "bkt", "'NumericLessThanEquals':{'s3:max-keys':'5'}"),
            ("GET", "/bkt?max-keys=6"),
            [200, 403, 403, 200, 403],
        ),
        (
            allow(all, "s3:GetObject", "bkt/*", "'IpAddress':{'aws:SourceIp':'127.0.0.0/8'}"),
            get,
            [200, 200, 200, 200, 200],
        ),
        (
            allow(all, "s3:GetObject", "bkt/*", "'NotIpAddress':{'aws:SourceIp':'127.0.0.0/8'}"),
            get,
            [200, 403, 403, 200, 403],
        ),
        (
            statement("Deny", all, "s3:*", "bkt/*", "'Bool':{'aws:SecureTransport':'false'}"),
            get,
            [403, 403, 403, 403, 403],
        ),
        (allow(all, "s3:GetObject", "bkt/*", "'StringEquals':{'aws:username':'user'}"), get, [200, 403, 200, 200, 403]),
        (
            allow(all, "s3:GetObject", "bkt/*", "'DateGreaterThan':{'aws:CurrentTime':'2020-01-01T00:00:00Z'}"),
            get,
            [200, 200, 200, 200, 200],
        ),
        (
            allow(all, "s3:GetObject", "bkt/${aws:username, 'k'}", "").replace("'k'", "\\u0027k\\u0027"),
            get,
            [200, 200, 403, 200, 200],
        ),
    ];
    for (policy, (method, target), expected) in table {
        put_policy(&s3, &policy).await.expect(204);
        for (who, expected) in [ACCESS_KEY, ALT, USER, READER, ""].into_iter().zip(expected) {
            let answer = by(who, s3.call(method, target)).send(&s3).await;
            assert_eq!(answer.status, expected, "{method} {target} by {who:?} under {policy}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn nobody_locks_his_root_out_whatever_he_says() {
    let s3 = server().await;
    let deny = statement("Deny", "'*'", "s3:*", "bkt*", "");
    put_policy(&s3, &deny).await.expect(204);
    s3.get("/bkt").send(&s3).await.refused(403, "AccessDenied");
    s3.get("/bkt?policy").send(&s3).await.expect(200);
    by(READER, s3.get("/bkt?policy")).send(&s3).await.refused(403, "AccessDenied");
    s3.delete("/bkt?policy").send(&s3).await.expect(204);
    let confirmed = s3.put("/bkt?policy").header("x-amz-confirm-remove-self-bucket-access", "true");
    confirmed.body(deny.replace('\'', "\"")).send(&s3).await.expect(204);
    by(READER, s3.get("/bkt?policy")).send(&s3).await.refused(403, "AccessDenied");
    s3.get("/bkt").send(&s3).await.refused(403, "AccessDenied");
    s3.get("/bkt?policy").send(&s3).await.expect(200);
    s3.put("/bkt?policy").body(deny.replace('\'', "\"")).send(&s3).await.expect(204);
    s3.delete("/bkt?policy").send(&s3).await.expect(204);
    s3.get("/bkt").send(&s3).await.expect(200);
}

#[tokio::test]
async fn what_is_no_policy_of_the_bucket_is_refused() {
    let s3 = server().await;
    let table = [
        (allow("'*'", "s3:GetObject", "bkt", ""), "Action does not apply to any resource(s) in statement"),
        (allow("'*'", "s3:ListBucket", "bkt/*", ""), "Action does not apply to any resource(s) in statement"),
        (allow("'*'", "s3:GetObject", "other/*", ""), "Policy has invalid resource"),
        (allow("'*'", "s3:GetObject", "bkt/*", "").replace("arn:aws:s3:::bkt/*", "*"), "Policy has invalid resource"),
        (allow("'*'", "s3:Frobnicate", "bkt/*", ""), "Policy has invalid action"),
        (allow("'nobody'", "s3:GetObject", "bkt/*", ""), "Invalid principal in policy"),
        (statement("Maybe", "'*'", "s3:GetObject", "bkt/*", ""), "Invalid effect: Maybe"),
        (
            allow("'*'", "s3:GetObject", "bkt/*", "'StringEquals':{'s3:nonsense':'x'}"),
            "Policy has an invalid condition key",
        ),
        (
            allow("'*'", "s3:GetObject", "bkt/*", "'StringEquals':{'s3:prefix':'x'}"),
            "Conditions do not apply to combination of actions and resources in statement",
        ),
        (allow("'*'", "s3:GetObject", "bkt/*", "'Equals':{'s3:prefix':'x'}"), "Invalid Condition type : Equals"),
        (String::new(), "Policies must be valid JSON and the first byte must be '{'"),
    ];
    for (policy, message) in table {
        let answer = put_policy(&s3, &policy).await.refused(400, "MalformedPolicy");
        assert_eq!(answer.element("Message").as_deref(), Some(message), "{policy}");
    }
    s3.get("/bkt?policy").send(&s3).await.refused(404, "NoSuchBucketPolicy");
}

#[tokio::test]
async fn policies_are_a_matter_of_the_buckets_account() {
    let s3 = server().await;
    put_policy(&s3, &allow("'*'", "s3:*", "bkt*", "")).await.expect(204);
    for who in [ALT, ""] {
        by(who, s3.get("/bkt?tagging")).send(&s3).await.refused(404, "NoSuchTagSet");
        let policy = allow("'*'", "s3:*", "bkt*", "").replace('\'', "\"");
        for call in [s3.get("/bkt?policy"), s3.put("/bkt?policy").body(policy), s3.delete("/bkt?policy")] {
            by(who, call).send(&s3).await.refused(405, "MethodNotAllowed");
        }
    }
    by(USER, s3.get("/bkt?policy")).send(&s3).await.expect(200);
    // Whatever is allowed to everybody, nobody in particular does some things.
    for call in [
        s3.post("/bkt/k?uploads"),
        s3.put("/bkt/k2").header("x-amz-copy-source", "/bkt/k"),
        s3.put("/bkt?acl").header("x-amz-acl", "private"),
        s3.get("/bkt?ownershipControls"),
    ] {
        by("", call).send(&s3).await.refused(403, "AccessDenied");
    }
    by("", s3.put("/bkt/k2").body("x")).send(&s3).await.expect(200);
}

#[tokio::test]
async fn a_renaming_takes_tags_only_where_a_copy_may() {
    let s3 = server().await;
    let rename = || by(USER, s3.put("/bkt/to?renameObject").header("x-amz-rename-source", "k")).send(&s3);
    s3.put("/bkt/k").header("x-amz-tagging", "class=secret").body("x").send(&s3).await.expect(200);
    let all = ("Allow", "s3:*Object", "bkt/*", "");
    let (read, put) = (("Allow", "s3:GetObjectTagging", "bkt/k", ""), ("Allow", "s3:PutObjectTagging", "bkt/to", ""));
    for (given, is_enough) in
        [(&[all][..], false), (&[all, read], false), (&[all, put], false), (&[all, read, put], true)]
    {
        put_policy(&s3, &several(given)).await.expect(204);
        let answer = rename().await;
        if is_enough {
            answer.expect(200)
        } else {
            answer.refused(403, "AccessDenied")
        };
    }
}

#[tokio::test]
async fn a_renaming_reads_deletes_and_puts() {
    let s3 = server().await;
    let rename =
        |from: &str| by(ALT, s3.put("/bkt/to?renameObject").header("x-amz-rename-source", from.to_owned())).send(&s3);
    let needed = [("s3:GetObject", "k"), ("s3:DeleteObject", "k"), ("s3:PutObject", "to")];
    for lacking in needed {
        let given = needed.iter().filter(|action| **action != lacking);
        let statements: Vec<String> = given
            .map(|(action, key)| {
                format!("{{'Effect':'Allow','Principal':'*','Action':'{action}','Resource':'arn:aws:s3:::bkt/{key}'}}")
            })
            .collect();
        put_policy(&s3, &format!("{{'Version':'2012-10-17','Statement':[{}]}}", statements.join(",")))
            .await
            .expect(204);
        rename("k").await.refused(403, "AccessDenied");
    }
    let all = "{'Version':'2012-10-17','Statement':{'Effect':'Allow','Principal':'*','Action':['s3:GetObject','s3:DeleteObject','s3:PutObject'],'Resource':'arn:aws:s3:::bkt/*'}}";
    put_policy(&s3, all).await.expect(204);
    // Who may not list learns nothing of a key that is not there.
    rename("none").await.refused(403, "AccessDenied");
    rename("k").await.expect(200);
    s3.head("/bkt/to").send(&s3).await.expect(200);
}

#[tokio::test]
async fn copies_need_both_ends_and_deletions_each_key() {
    let s3 = server().await;
    by(ALT, s3.put("/theirs")).send(&s3).await.expect(200);
    let copy = |from: &str, to: &str| s3.put(to).header("x-amz-copy-source", from.to_owned());
    by(ALT, copy("/bkt/k", "/theirs/k")).send(&s3).await.refused(403, "AccessDenied");
    by(ALT, copy("/bkt/none", "/theirs/k")).send(&s3).await.refused(403, "AccessDenied");
    put_policy(&s3, &allow("'*'", "s3:GetObject", "bkt/k", "")).await.expect(204);
    by(ALT, copy("/bkt/k", "/theirs/k")).send(&s3).await.expect(200);
    by(ALT, copy("/bkt/none", "/theirs/k")).send(&s3).await.refused(403, "AccessDenied");
    by(ALT, copy("/theirs/k", "/bkt/k2")).send(&s3).await.refused(403, "AccessDenied");
    copy("/theirs/k", "/bkt/k2").send(&s3).await.refused(403, "AccessDenied");
    // Tags go along only with who may read them.
    s3.put("/bkt/k?tagging")
        .body("<Tagging><TagSet><Tag><Key>t</Key><Value>v</Value></Tag></TagSet></Tagging>")
        .send(&s3)
        .await
        .expect(200);
    by(ALT, copy("/bkt/k", "/theirs/k")).send(&s3).await.refused(403, "AccessDenied");
    by(ALT, copy("/bkt/k", "/theirs/k").header("x-amz-tagging-directive", "REPLACE")).send(&s3).await.expect(200);
    put_policy(&s3, &allow("'*'", "s3:GetObject*", "bkt/k", "")).await.expect(204);
    by(ALT, copy("/bkt/k", "/theirs/k")).send(&s3).await.expect(200);
    put_policy(&s3, &allow("'*'", "s3:DeleteObject", "bkt/a*", "")).await.expect(204);
    for key in ["a1", "b1"] {
        s3.put(&format!("/bkt/{key}")).body("x").send(&s3).await.expect(200);
    }
    let body = "<Delete><Object><Key>a1</Key></Object><Object><Key>b1</Key></Object></Delete>";
    let deleted = by(ALT, s3.post("/bkt?delete").body(body).md5()).send(&s3).await.expect(200);
    assert_eq!(deleted.elements("Key"), ["a1", "b1"]);
    assert_eq!(deleted.elements("Code"), ["AccessDenied"]);
    s3.head("/bkt/a1").send(&s3).await.expect(404);
    s3.head("/bkt/b1").send(&s3).await.expect(200);
}

/// A variable has a value only where its key has one value.
#[tokio::test]
async fn variables_stand_for_accounts() {
    let s3 = server().await;
    let key = format!("/bkt/{}/k", account("own").id);
    s3.put(&key).body("x").send(&s3).await.expect(200);
    for variable in ["s3:ResourceAccount", "aws:ResourceAccount"] {
        let deny = r#"{"Version":"2012-10-17","Statement":{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::bkt/${VARIABLE}/*"}}"#;
        s3.delete("/bkt?policy").send(&s3).await.expect(204);
        by(READER, s3.get(&key)).send(&s3).await.expect(200);
        s3.put("/bkt?policy").body(deny.replace("VARIABLE", variable)).send(&s3).await.expect(204);
        by(READER, s3.get(&key)).send(&s3).await.refused(403, "AccessDenied");
        by(READER, s3.get("/bkt/k")).send(&s3).await.expect(200);
    }
}

#[tokio::test]
async fn tags_of_objects_and_requests_decide() {
    let s3 = server().await;
    s3.put("/bkt/public").header("x-amz-tagging", "security=public").body("x").send(&s3).await.expect(200);
    s3.put("/bkt/secret").header("x-amz-tagging", "security=secret").body("x").send(&s3).await.expect(200);
    let by_tag = "'StringEquals':{'s3:ExistingObjectTag/security':'public'}";
    put_policy(&s3, &allow("'*'", "s3:GetObject", "bkt/*", by_tag)).await.expect(204);
    by(ALT, s3.get("/bkt/public")).send(&s3).await.expect(200);
    for target in ["/bkt/secret", "/bkt/k", "/bkt/none"] {
        by(ALT, s3.get(target)).send(&s3).await.refused(403, "AccessDenied");
    }
    // Who may put and delete does not follow from what is there.
    let by_tag = "'StringEquals':{'s3:ExistingObjectTag/security':'public'}";
    put_policy(&s3, &allow("'*'", "s3:*", "bkt/*", by_tag)).await.expect(204);
    by(ALT, s3.get("/bkt/public")).send(&s3).await.expect(200);
    by(ALT, s3.put("/bkt/public").body("y")).send(&s3).await.refused(403, "AccessDenied");
    by(ALT, s3.delete("/bkt/public")).send(&s3).await.refused(403, "AccessDenied");
    let by_tag = "'StringEquals':{'s3:RequestObjectTag/security':'public'}";
    put_policy(&s3, &allow("'*'", "s3:PutObject*", "bkt/*", by_tag)).await.expect(204);
    let put = |tags: &str| by(ALT, s3.put("/bkt/new").header("x-amz-tagging", tags.to_owned()).body("x"));
    put("security=public").send(&s3).await.expect(200);
    put("security=secret").send(&s3).await.refused(403, "AccessDenied");
    put("").send(&s3).await.refused(403, "AccessDenied");
    // What has other tags than the request says, or none, is no way around.
    put("security=public").header("x-amz-write-offset-bytes", "1").send(&s3).await.refused(501, "NotImplemented");
    by(ALT, s3.put("/theirs")).send(&s3).await.expect(200);
    by(ALT, s3.put("/theirs/k").body("x")).send(&s3).await.expect(200);
    let copy = || by(ALT, s3.put("/bkt/new").header("x-amz-copy-source", "/theirs/k"));
    let said = || copy().header("x-amz-tagging", "security=public");
    said().send(&s3).await.refused(403, "AccessDenied");
    said().header("x-amz-tagging-directive", "REPLACE").send(&s3).await.expect(200);
    let document = |value: &str| {
        format!("<Tagging><TagSet><Tag><Key>security</Key><Value>{value}</Value></Tag></TagSet></Tagging>")
    };
    by(ALT, s3.put("/bkt/k?tagging").body(document("public"))).send(&s3).await.expect(200);
    by(ALT, s3.put("/bkt/k?tagging").body(document("secret"))).send(&s3).await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn what_locks_is_looked_at_in_headers_and_documents() {
    let s3 = S3::for_users(Arc::new(Users::new())).await;
    s3.put("/bkt").header("x-amz-bucket-object-lock-enabled", "true").send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let long = "'NumericGreaterThan':{'s3:object-lock-remaining-retention-days':'10'}";
    let hold = "'StringEquals':{'s3:object-lock-legal-hold':'ON'}";
    let mode = "'StringEquals':{'s3:object-lock-mode':'COMPLIANCE'}";
    let statement = |effect: &str, condition: &str| {
        format!(
            "{{'Effect':'{effect}','Principal':{},'Action':'s3:*','Resource':'arn:aws:s3:::bkt/*','Condition':{{{condition}}}}}",
            user_arn("user")
        )
    };
    let statements =
        [statement("Allow", ""), statement("Deny", long), statement("Deny", hold), statement("Deny", mode)];
    put_policy(&s3, &format!("{{'Version':'2012-10-17','Statement':[{}]}}", statements.join(","))).await.expect(204);
    let in_days = |days: i64| {
        let now_s = i64::try_from(SystemClock.now_ms() / 1000).unwrap();
        let at = time::OffsetDateTime::from_unix_timestamp(now_s + days * 86_400 - 60).unwrap();
        at.format(&time::format_description::well_known::Rfc3339).unwrap()
    };
    for (mode, days, status) in [("GOVERNANCE", 10, 200), ("GOVERNANCE", 11, 403), ("COMPLIANCE", 1, 403)] {
        let document =
            format!("<Retention><Mode>{mode}</Mode><RetainUntilDate>{}</RetainUntilDate></Retention>", in_days(days));
        s3.put(&format!("/bkt/{mode}{days}")).body("x").send(&s3).await.expect(200);
        let put = s3.put(&format!("/bkt/{mode}{days}?retention")).body(document).md5();
        assert_eq!(by(USER, put).send(&s3).await.status, status, "{mode} {days}");
        let put = s3.put("/bkt/new").body("x").header("x-amz-object-lock-mode", mode).md5();
        let put = put.header("x-amz-object-lock-retain-until-date", in_days(days));
        assert_eq!(by(USER, put).send(&s3).await.status, status, "{mode} {days}");
    }
    for (hold, status) in [("OFF", 200), ("ON", 403)] {
        let document = format!("<LegalHold><Status>{hold}</Status></LegalHold>");
        let put = s3.put("/bkt/k?legal-hold").body(document).md5();
        assert_eq!(by(USER, put).send(&s3).await.status, status, "{hold}");
    }
    // Without such a condition the document is not read for it.
    s3.delete("/bkt?policy").send(&s3).await.expect(204);
    by(ALT, s3.put("/bkt/k?legal-hold").body("x")).send(&s3).await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn public_access_is_blocked() {
    let s3 = server_with_acls().await;
    s3.get("/bkt?publicAccessBlock").send(&s3).await.refused(404, "NoSuchPublicAccessBlockConfiguration");
    let block = |on: &str| {
        let body = format!("<PublicAccessBlockConfiguration><{on}>true</{on}></PublicAccessBlockConfiguration>");
        s3.put("/bkt?publicAccessBlock").body(body)
    };
    let public_acl = || s3.put("/bkt?acl").header("x-amz-acl", "public-read");
    let public_policy = allow("'*'", "s3:GetObject", "bkt/*", "");
    public_acl().send(&s3).await.expect(200);
    s3.put("/bkt/k?acl").header("x-amz-acl", "public-read").send(&s3).await.expect(200);
    by("", s3.get("/bkt")).send(&s3).await.expect(200);
    by("", s3.get("/bkt/k")).send(&s3).await.expect(200);

    block("IgnorePublicAcls").send(&s3).await.expect(200);
    let shown = s3.get("/bkt?publicAccessBlock").send(&s3).await.expect(200);
    assert_eq!(shown.element("IgnorePublicAcls").as_deref(), Some("true"));
    assert_eq!(shown.element("BlockPublicAcls").as_deref(), Some("false"));
    by("", s3.get("/bkt")).send(&s3).await.refused(403, "AccessDenied");
    by(ALT, s3.get("/bkt/k")).send(&s3).await.refused(403, "AccessDenied");
    s3.get("/bkt/k").send(&s3).await.expect(200);
    public_acl().send(&s3).await.expect(200);

    block("BlockPublicAcls").send(&s3).await.expect(200);
    by("", s3.get("/bkt")).send(&s3).await.expect(200);
    public_acl().send(&s3).await.refused(403, "AccessDenied");
    s3.put("/bkt/k?acl").header("x-amz-acl", "authenticated-read").send(&s3).await.refused(403, "AccessDenied");
    s3.put("/bkt/new").header("x-amz-acl", "public-read").body("x").send(&s3).await.refused(403, "AccessDenied");
    s3.put("/bkt/new").header("x-amz-acl", "private").body("x").send(&s3).await.expect(200);

    block("BlockPublicPolicy").send(&s3).await.expect(200);
    put_policy(&s3, &public_policy).await.refused(403, "AccessDenied");
    put_policy(&s3, &allow(&user_arn("user"), "s3:GetObject", "bkt/*", "")).await.expect(204);

    s3.put("/bkt?acl").header("x-amz-acl", "private").send(&s3).await.expect(200);
    s3.put("/bkt/k?acl").header("x-amz-acl", "private").send(&s3).await.expect(200);
    block("RestrictPublicBuckets").send(&s3).await.expect(200);
    put_policy(&s3, &public_policy).await.expect(204);
    by("", s3.get("/bkt/k")).send(&s3).await.refused(403, "AccessDenied");
    by(ALT, s3.get("/bkt/k")).send(&s3).await.refused(403, "AccessDenied");
    by(USER, s3.get("/bkt/k")).send(&s3).await.expect(200);
    for _ in 0..2 {
        s3.delete("/bkt?publicAccessBlock").send(&s3).await.expect(204);
        by("", s3.get("/bkt/k")).send(&s3).await.expect(200);
    }
    s3.put("/bkt?publicAccessBlock").body("<X/>").send(&s3).await.refused(400, "MalformedXML");
}

#[tokio::test]
async fn ownership_is_enforced_unless_said_otherwise() {
    let s3 = server().await;
    let ownership = |answer: Answer| answer.expect(200).element("ObjectOwnership").unwrap();
    assert_eq!(ownership(s3.get("/bkt?ownershipControls").send(&s3).await), "BucketOwnerEnforced");
    // Where nobody said so, `private` may still be sent: it asks for what is so anyway.
    for target in ["/bkt?acl", "/bkt/k?acl", "/bkt/n"] {
        s3.put(target).header("x-amz-acl", "private").send(&s3).await.expect(200);
    }
    let enforced =
        "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>";
    s3.put("/bkt?ownershipControls").body(enforced).send(&s3).await.expect(200);
    let unsupported: [Call; 7] = [
        s3.put("/bkt?acl").header("x-amz-acl", "private"),
        s3.put("/bkt?acl").header("x-amz-acl", "public-read"),
        s3.put("/bkt/k?acl").header("x-amz-acl", "public-read"),
        s3.put("/bkt/n").header("x-amz-acl", "public-read"),
        s3.put("/bkt/n").header("x-amz-acl", "private"),
        s3.put("/bkt/n").header("x-amz-grant-read", format!("id={}", canonical("alt"))),
        s3.post("/bkt/n?uploads").header("x-amz-acl", "private"),
    ];
    for call in unsupported {
        call.send(&s3).await.refused(400, "AccessControlListNotSupported");
    }
    // Nor do lists that are none.
    let more: [Call; 3] = [
        s3.put("/bkt?acl").header("x-amz-acl", "private").header("x-amz-grant-read", "id=nobody"),
        s3.put("/bkt?acl").header("x-amz-acl", "nonsense"),
        s3.put("/bkt?acl").body("<Nonsense/>"),
    ];
    for call in more {
        call.send(&s3).await.refused(400, "AccessControlListNotSupported");
    }
    s3.put("/bkt?acl").send(&s3).await.refused(400, "MissingSecurityHeader");
    let copy = s3.put("/bkt/n").header("x-amz-copy-source", "/bkt/k");
    copy.clone().header("x-amz-acl", "private").send(&s3).await.refused(400, "AccessControlListNotSupported");
    copy.header("x-amz-acl", "bucket-owner-full-control").send(&s3).await.expect(200);
    s3.put("/bkt/n").header("x-amz-acl", "bucket-owner-full-control").send(&s3).await.expect(200);
    s3.put("/bkt/k?acl").header("x-amz-acl", "bucket-owner-full-control").send(&s3).await.expect(200);
    let public = |ownership: &str| {
        let call = s3.put("/second").header("x-amz-acl", "public-read");
        call.header("x-amz-object-ownership", ownership.to_owned())
    };
    public("BucketOwnerEnforced").send(&s3).await.refused(400, "InvalidBucketAclWithObjectOwnership");
    public("Mine").send(&s3).await.refused(400, "InvalidArgument");
    public("ObjectWriter").send(&s3).await.expect(200);
    assert_eq!(ownership(s3.get("/second?ownershipControls").send(&s3).await), "ObjectWriter");
    let document = |name: &str| {
        format!("<OwnershipControls><Rule><ObjectOwnership>{name}</ObjectOwnership></Rule></OwnershipControls>")
    };
    let put = |name: &str| s3.put("/second?ownershipControls").body(document(name));
    put("BucketOwnerEnforced").send(&s3).await.refused(400, "InvalidBucketAclWithObjectOwnership");
    put("Mine").send(&s3).await.refused(400, "MalformedXML");
    s3.put("/second?acl").header("x-amz-acl", "private").send(&s3).await.expect(200);
    put("BucketOwnerEnforced").send(&s3).await.expect(200);
    s3.put("/second?acl")
        .header("x-amz-acl", "public-read")
        .send(&s3)
        .await
        .refused(400, "AccessControlListNotSupported");
    for _ in 0..2 {
        s3.delete("/second?ownershipControls").send(&s3).await.expect(204);
        s3.get("/second?ownershipControls").send(&s3).await.refused(404, "OwnershipControlsNotFoundError");
    }
    s3.put("/second?acl").header("x-amz-acl", "public-read").send(&s3).await.expect(200);
}

/// Owner and grants of an answer, as `owner: PERMISSION grantee, …`.
fn shown_acl(answer: Answer) -> String {
    let answer = answer.expect(200);
    let known = |id: &str| match id {
        id if id == canonical("own") => "own".to_owned(),
        id if id == canonical("alt") => "alt".to_owned(),
        other => other.rsplit('/').next().unwrap().to_owned(),
    };
    let text = answer.text();
    let (_, grants) = text.split_once("<AccessControlList>").unwrap();
    let grants = grants.split("<Grant>").skip(1).map(|grant| {
        let named = crate::harness::element(grant, "ID").or(crate::harness::element(grant, "URI")).unwrap();
        format!("{} {}", crate::harness::element(grant, "Permission").unwrap(), known(&named))
    });
    format!("{}: {}", known(&answer.element("ID").unwrap()), grants.collect::<Vec<_>>().join(", "))
}

#[tokio::test]
async fn acls_are_put_and_shown() {
    let s3 = server_with_acls().await;
    let grants = |list: &str| {
        let grants: String = list
            .split(", ")
            .filter(|grant| !grant.is_empty())
            .map(|grant| {
                let (permission, grantee) = grant.split_once(' ').unwrap();
                let kind = match grantee.get(..4) {
                    Some("<URI") => "Group",
                    Some("<Ema") => "AmazonCustomerByEmail",
                    _ => "CanonicalUser",
                };
                format!("<Grant><Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"{kind}\">{grantee}</Grantee><Permission>{permission}</Permission></Grant>")
            })
            .collect();
        let owner = canonical("own");
        format!(
            "<AccessControlPolicy><Owner><ID>{owner}</ID></Owner><AccessControlList>{grants}</AccessControlList></AccessControlPolicy>"
        )
    };
    let id = |name: &str| format!("<ID>{}</ID>", canonical(name));
    let group = "<URI>http://acs.amazonaws.com/groups/global/AllUsers</URI>";
    for target in ["/bkt?acl", "/bkt/k?acl"] {
        assert_eq!(shown_acl(s3.get(target).send(&s3).await), "own: FULL_CONTROL own");
        let headers: &[(&[(&str, String)], &str)] = &[
            (&[("x-amz-acl", "public-read-write".into())], "own: READ AllUsers, WRITE AllUsers, FULL_CONTROL own"),
            (&[("x-amz-acl", "authenticated-read".into())], "own: READ AuthenticatedUsers, FULL_CONTROL own"),
            (&[("x-amz-acl", "private".into())], "own: FULL_CONTROL own"),
            (
                &[
                    (
                        "x-amz-grant-read",
                        format!("id=\"{}\", uri=http://acs.amazonaws.com/groups/s3/LogDelivery", canonical("alt")),
                    ),
                    ("x-amz-grant-full-control", "emailAddress=OWN@example.org".into()),
                ],
                "own: READ LogDelivery, READ alt, FULL_CONTROL own",
            ),
        ];
        for (headers, expected) in headers {
            let call = headers.iter().fold(s3.put(target), |call, (name, value)| call.header(name, value.clone()));
            call.send(&s3).await.expect(200);
            assert_eq!(shown_acl(s3.get(target).send(&s3).await), *expected);
        }
        let documents = [
            (grants(""), "own: "),
            (grants(&format!("READ {}, WRITE_ACP {group}", id("alt"))), "own: WRITE_ACP AllUsers, READ alt"),
            (grants("READ_ACP <EmailAddress>alt@example.org</EmailAddress>"), "own: READ_ACP alt"),
        ];
        for (document, expected) in documents {
            s3.put(target).body(document).send(&s3).await.expect(200);
            assert_eq!(shown_acl(s3.get(target).send(&s3).await), expected);
        }
        let refused: Vec<(Call, u16, &str)> = vec![
            (s3.put(target), 400, "MissingSecurityHeader"),
            (s3.put(target).header("x-amz-acl", "public"), 400, "InvalidArgument"),
            (s3.put(target).header("x-amz-grant-read", "id=nobody"), 400, "InvalidArgument"),
            (s3.put(target).header("x-amz-grant-read", "nobody"), 400, "InvalidArgument"),
            (s3.put(target).header("x-amz-grant-read", "uri=http://x"), 400, "InvalidArgument"),
            (s3.put(target).header("x-amz-grant-read", "emailAddress=x@y"), 400, "UnresolvableGrantByEmailAddress"),
            (
                s3.put(target)
                    .header("x-amz-acl", "private")
                    .header("x-amz-grant-read", format!("id={}", canonical("alt"))),
                400,
                "InvalidRequest",
            ),
            (s3.put(target).header("x-amz-acl", "private").body(grants("")), 400, "UnexpectedContent"),
            (s3.put(target).body("<AccessControlPolicy/>"), 400, "MalformedACLError"),
            (s3.put(target).body(grants(&format!("LOOK {}", id("alt")))), 400, "MalformedACLError"),
            (s3.put(target).body(grants("").replace(&canonical("own"), &canonical("alt"))), 403, "AccessDenied"),
            (s3.put(target).body(grants("").replace(&canonical("own"), "nobody")), 400, "InvalidArgument"),
            // What is no list is refused before it is asked whose it is.
            (s3.put(target).body(grants("READ ").replace(&canonical("own"), "nobody")), 400, "MalformedACLError"),
            (
                s3.put(target).body(grants(&format!("READ {}", id("alt"))).replace("CanonicalUser", "Group")),
                400,
                "MalformedACLError",
            ),
        ];
        for (call, status, code) in refused {
            call.send(&s3).await.refused(status, code);
        }
    }
    s3.get("/bkt/none?acl").send(&s3).await.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn acls_are_enforced() {
    let s3 = server_with_acls().await;
    // What is granted to whom on the bucket and on the object; what is asked for; another account, nobody.
    type Row<'a> = (&'a str, &'a str, &'a str, &'a str, u16, u16);
    let table: &[Row<'_>] = &[
        ("private", "private", "GET", "/bkt", 403, 403),
        ("public-read", "private", "GET", "/bkt", 200, 200),
        ("public-read", "private", "HEAD", "/bkt", 200, 200),
        ("public-read", "private", "GET", "/bkt/k", 403, 403),
        ("public-read", "private", "GET", "/bkt/none", 404, 404),
        ("private", "public-read", "GET", "/bkt/k", 200, 200),
        ("private", "public-read", "GET", "/bkt/none", 403, 403),
        ("private", "public-read", "GET", "/bkt/k?acl", 403, 403),
        ("private", "authenticated-read", "GET", "/bkt/k", 200, 403),
        ("authenticated-read", "private", "GET", "/bkt", 200, 403),
        ("private", "public-read-write", "PUT", "/bkt/new", 403, 403),
        ("public-read-write", "private", "PUT", "/bkt/new", 200, 200),
        ("public-read-write", "private", "DELETE", "/bkt/new", 204, 204),
        ("public-read-write", "private", "GET", "/bkt?acl", 403, 403),
        ("=READ", "private", "GET", "/bkt", 200, 403),
        ("=WRITE", "private", "GET", "/bkt", 403, 403),
        ("=WRITE", "private", "PUT", "/bkt/new", 200, 403),
        ("=READ_ACP", "private", "GET", "/bkt?acl", 200, 403),
        ("=WRITE_ACP", "private", "GET", "/bkt?acl", 403, 403),
        ("=FULL_CONTROL", "private", "GET", "/bkt?acl", 200, 403),
        ("=FULL_CONTROL", "private", "GET", "/bkt?policy", 403, 403),
        ("private", "=READ", "GET", "/bkt/k", 200, 403),
        ("private", "=READ_ACP", "GET", "/bkt/k?acl", 200, 403),
        ("private", "=FULL_CONTROL", "GET", "/bkt/k?acl", 200, 403),
        ("private", "=WRITE_ACP", "GET", "/bkt/k", 403, 403),
    ];
    let set = |target: &str, acl: &str| match acl.strip_prefix('=') {
        None => s3.put(target).header("x-amz-acl", acl.to_owned()),
        Some(permission) => {
            let header = format!("x-amz-grant-{}", permission.to_lowercase().replace('_', "-"));
            s3.put(target).header(&header, format!("id={}", canonical("alt")))
        }
    };
    for (bucket, object, method, target, alt, nobody) in table {
        set("/bkt?acl", bucket).send(&s3).await.expect(200);
        set("/bkt/k?acl", object).send(&s3).await.expect(200);
        for (who, expected) in [(ALT, alt), ("", nobody)] {
            let answer = by(who, s3.call(method, target)).send(&s3).await;
            assert_eq!(answer.status, *expected, "{bucket} {object} {method} {target} {who:?}: {}", answer.text());
        }
    }
    // Who may write the list, and what it grants him by that.
    set("/bkt/k?acl", "=WRITE_ACP").send(&s3).await.expect(200);
    by(ALT, s3.put("/bkt/k?acl").header("x-amz-acl", "public-read")).send(&s3).await.expect(200);
    assert_eq!(shown_acl(s3.get("/bkt/k?acl").send(&s3).await), "own: READ AllUsers, FULL_CONTROL own");
    // Whom an ACL lets write may publish what he writes; whom a policy does, only if it says so.
    set("/bkt?acl", "public-read-write").send(&s3).await.expect(200);
    let publish = |who| by(who, s3.put("/bkt/p").header("x-amz-acl", "public-read"));
    publish("").send(&s3).await.expect(200);
    assert_eq!(shown_acl(s3.get("/bkt/p?acl").send(&s3).await), "own: READ AllUsers, FULL_CONTROL own");
    by("", s3.put("/bkt/p").header("x-amz-tagging", "a=b")).send(&s3).await.expect(200);
    publish(ALT).send(&s3).await.expect(200);
    set("/bkt?acl", "private").send(&s3).await.expect(200);
    put_policy(&s3, &allow("'*'", "s3:PutObject", "bkt/*", "")).await.expect(204);
    publish(ALT).send(&s3).await.refused(403, "AccessDenied");
    put_policy(&s3, &allow("'*'", "s3:PutObject*", "bkt/*", "")).await.expect(204);
    publish(ALT).send(&s3).await.expect(200);
}

#[tokio::test]
async fn objects_are_those_of_their_writers() {
    let s3 = server_with_acls().await;
    s3.put("/bkt?acl").header("x-amz-acl", "public-read-write").send(&s3).await.expect(200);
    by(ALT, s3.put("/bkt/theirs").body("x")).send(&s3).await.expect(200);
    s3.get("/bkt/theirs").send(&s3).await.refused(403, "AccessDenied");
    s3.get("/bkt/theirs?acl").send(&s3).await.refused(403, "AccessDenied");
    assert_eq!(shown_acl(by(ALT, s3.get("/bkt/theirs?acl")).send(&s3).await), "alt: FULL_CONTROL alt");
    let owners = |answer: Answer| answer.expect(200).elements("DisplayName");
    assert_eq!(owners(s3.get("/bkt").send(&s3).await), ["own", "alt"]);
    assert_eq!(owners(s3.get("/bkt?list-type=2&fetch-owner=true").send(&s3).await), ["own", "alt"]);
    // The bucket's owner can not give it away, and can delete it.
    put_policy(&s3, &allow("'*'", "s3:GetObject", "bkt/*", "")).await.expect(204);
    by("", s3.get("/bkt/k")).send(&s3).await.expect(200);
    by("", s3.get("/bkt/theirs")).send(&s3).await.refused(403, "AccessDenied");
    s3.delete("/bkt?policy").send(&s3).await.expect(204);
    let shared = by(ALT, s3.put("/bkt/shared").header("x-amz-acl", "bucket-owner-read").body("x"));
    shared.send(&s3).await.expect(200);
    s3.get("/bkt/shared").send(&s3).await.expect(200);
    // A copy is his who makes it, whatever the source's list says.
    s3.put("/bkt/copy").header("x-amz-copy-source", "/bkt/shared").send(&s3).await.expect(200);
    assert_eq!(shown_acl(s3.get("/bkt/copy?acl").send(&s3).await), "own: FULL_CONTROL own");
    s3.delete("/bkt/theirs").send(&s3).await.expect(204);

    let document =
        "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerPreferred</ObjectOwnership></Rule></OwnershipControls>";
    s3.put("/bkt?ownershipControls").body(document).send(&s3).await.expect(200);
    for (acl, owner) in [("bucket-owner-full-control", "own: FULL_CONTROL own"), ("private", "alt: FULL_CONTROL alt")] {
        by(ALT, s3.put("/bkt/new").header("x-amz-acl", acl).body("x")).send(&s3).await.expect(200);
        let who = if acl == "private" { ALT } else { ACCESS_KEY };
        assert_eq!(shown_acl(by(who, s3.get("/bkt/new?acl")).send(&s3).await), owner);
    }
    // Where ACLs do not count any more, everything is the bucket's owner's.
    s3.put("/bkt?acl").header("x-amz-acl", "private").send(&s3).await.expect(200);
    let document = document.replace("Preferred", "Enforced");
    s3.put("/bkt?ownershipControls").body(document).send(&s3).await.expect(200);
    s3.get("/bkt/new").send(&s3).await.expect(200);
    by(ALT, s3.get("/bkt/new")).send(&s3).await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn governance_is_bypassed_only_where_that_is_allowed() {
    let s3 = S3::for_users(Arc::new(Users::new())).await;
    s3.put("/bkt").header("x-amz-bucket-object-lock-enabled", "true").send(&s3).await.expect(200);
    let all = statement("Allow", &user_arn("user"), "s3:DeleteObjectVersion", "bkt/*", "");
    let some = statement("Allow", &user_arn("user"), "s3:BypassGovernanceRetention", "bkt/a*", "");
    let (_, some) = some.split_once("'Statement':").unwrap();
    let both = all.replacen("'Statement':{", "'Statement':[{", 1);
    let both = format!("{},{}]}}", both.strip_suffix('}').unwrap(), some.strip_suffix('}').unwrap());
    put_policy(&s3, &both).await.expect(204);
    let mut objects = String::new();
    for key in ["a", "b"] {
        let put = s3.put(&format!("/bkt/{key}")).body("x").header("x-amz-object-lock-mode", "GOVERNANCE");
        let put = put.header("x-amz-object-lock-retain-until-date", "2099-01-01T00:00:00Z").send(&s3).await.expect(200);
        let version = put.header("x-amz-version-id").unwrap();
        objects += &format!("<Object><Key>{key}</Key><VersionId>{version}</VersionId></Object>");
    }
    let delete = s3.post("/bkt?delete").body(format!("<Delete>{objects}</Delete>")).md5();
    let deleted = by(USER, delete.clone()).send(&s3).await.expect(200);
    assert_eq!(deleted.elements("Code"), ["AccessDenied", "AccessDenied"]);
    let deleted = by(USER, delete.header("x-amz-bypass-governance-retention", "true")).send(&s3).await.expect(200);
    assert_eq!(
        (deleted.elements("Key"), deleted.elements("Code")),
        (vec!["a".into(), "b".into()], vec!["AccessDenied".into()])
    );
    s3.head("/bkt/a").send(&s3).await.expect(404);
    s3.head("/bkt/b").send(&s3).await.expect(200);
}

#[tokio::test]
async fn where_nothing_is_locked_there_is_nothing_to_bypass() {
    let s3 = server().await;
    put_policy(&s3, &allow(&user_arn("user"), "s3:DeleteObject", "bkt/*", "")).await.expect(204);
    let bypassing = |call: Call| by(USER, call.header("x-amz-bypass-governance-retention", "true"));
    bypassing(s3.delete("/bkt/k")).send(&s3).await.expect(204);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let many = s3.post("/bkt?delete").body("<Delete><Object><Key>k</Key></Object></Delete>").md5();
    let deleted = bypassing(many).send(&s3).await.expect(200);
    assert_eq!((deleted.elements("Key"), deleted.elements("Code")), (vec!["k".into()], vec![]));
    s3.head("/bkt/k").send(&s3).await.expect(404);
}

#[tokio::test]
async fn conditions_are_keys_only_where_they_are_heeded() {
    let s3 = server().await;
    let user = user_arn("user");
    // Who may write once may not overwrite by a condition that is none of that.
    put_policy(&s3, &allow(&user, "s3:PutObject", "bkt/*", "'Null':{'s3:if-none-match':'false'}")).await.expect(204);
    let put = |target: &str, tag: &str| by(USER, s3.put(target).header("if-none-match", tag).body("x")).send(&s3);
    put("/bkt/new", "*").await.expect(200);
    put("/bkt/new", "*").await.refused(412, "PreconditionFailed");
    put("/bkt/new", "\"x\"").await.refused(403, "AccessDenied");
    by(USER, s3.put("/bkt/new").body("x")).send(&s3).await.refused(403, "AccessDenied");
    // What is deleted by its tag is named in a document by the document, and by a header where there is none.
    let by_tag = |action: &str| allow(&user, action, "bkt/*", "'Null':{'s3:if-match':'false'}");
    put_policy(&s3, &by_tag("s3:*Object")).await.expect(204);
    let tag = s3.head("/bkt/k").send(&s3).await.header("etag").unwrap().to_owned();
    let many = |etag: &str| {
        let document = format!("<Delete><Object><Key>k</Key>{etag}</Object></Delete>");
        by(USER, s3.post("/bkt?delete").header("if-match", &*tag).body(document).md5()).send(&s3)
    };
    assert_eq!(many("").await.expect(200).elements("Code"), ["AccessDenied"]);
    assert_eq!(many("<ETag>\"other\"</ETag>").await.expect(200).elements("Code"), ["PreconditionFailed"]);
    assert_eq!(many(&format!("<ETag>{tag}</ETag>")).await.expect(200).elements("Deleted").len(), 1);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let one = |tag: &str| by(USER, s3.delete("/bkt/k").header("if-match", tag)).send(&s3);
    one("\"other\"").await.refused(412, "PreconditionFailed");
    by(USER, s3.delete("/bkt/k")).send(&s3).await.refused(403, "AccessDenied");
    // Who may not read it is not told whether it has the tag either.
    put_policy(&s3, &by_tag("s3:DeleteObject")).await.expect(204);
    for guess in ["\"other\"", &tag] {
        one(guess).await.refused(403, "AccessDenied");
        assert_eq!(many(&format!("<ETag>{guess}</ETag>")).await.expect(200).elements("Code"), ["AccessDenied"]);
    }
    // That there is one, and nothing else, any may ask.
    let any = by(USER, s3.head("/bkt/k")).send(&s3).await;
    assert_eq!(any.status, 403);
    put_policy(&s3, &by_tag("s3:*Object")).await.expect(204);
    // Nothing is taken away under another key by the tag of what it replaces.
    s3.put("/bkt/mine").body("y").send(&s3).await.expect(200);
    let rename = |header: &str| {
        let rename = s3.put("/bkt/mine?renameObject").header("x-amz-rename-source", "k");
        by(USER, rename.header("if-match", "*").header(header, &*tag)).send(&s3)
    };
    rename("x-amz-meta-other").await.refused(403, "AccessDenied");
    put_policy(&s3, &by_tag("s3:DeleteObject")).await.expect(204);
    assert_eq!(many("<ETag>*</ETag>").await.expect(200).elements("Deleted").len(), 1);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    one("*").await.expect(204);
}

fn several(statements: &[(&str, &str, &str, &str)]) -> String {
    let user = user_arn("user");
    let one = |(effect, action, resource, condition): &(&str, &str, &str, &str)| {
        format!(
            "{{'Effect':'{effect}','Principal':{user},'Action':'{action}','Resource':'arn:aws:s3:::{resource}','Condition':{{{condition}}}}}"
        )
    };
    format!("{{'Version':'2012-10-17','Statement':[{}]}}", statements.iter().map(one).collect::<Vec<_>>().join(","))
}

#[tokio::test]
async fn who_may_only_write_learns_nothing_of_what_is_there() {
    let s3 = server().await;
    let tag = s3.head("/bkt/k").send(&s3).await.header("etag").unwrap().to_owned();
    let put = |name: &'static str, tag: &str| by(USER, s3.put("/bkt/k").header(name, tag).body("x")).send(&s3);
    let copy = |tag: &str| {
        let copy = s3.put("/bkt/k").header("x-amz-copy-source", "/bkt/mine");
        by(USER, copy.header("if-match", tag)).send(&s3)
    };
    s3.put("/bkt/mine").body("x").send(&s3).await.expect(200);
    put_policy(&s3, &several(&[("Allow", "s3:PutObject", "bkt/*", ""), ("Allow", "s3:GetObject", "bkt/mine", "")]))
        .await
        .expect(204);
    for tag in [&*tag, "\"other\""] {
        put("if-match", tag).await.refused(403, "AccessDenied");
        put("if-none-match", tag).await.refused(403, "AccessDenied");
        copy(tag).await.refused(403, "AccessDenied");
        let complete = s3.post("/bkt/k?uploadId=none").header("if-match", tag).body("<CompleteMultipartUpload/>");
        by(USER, complete).send(&s3).await.refused(403, "AccessDenied");
    }
    put("if-match", "*").await.expect(200);
    put("if-none-match", "*").await.refused(412, "PreconditionFailed");
    copy("*").await.expect(200);
    put_policy(&s3, &several(&[("Allow", "s3:*Object", "bkt/*", "")])).await.expect(204);
    put("if-match", "\"other\"").await.refused(412, "PreconditionFailed");
    put("if-match", &tag).await.expect(200);
}

#[tokio::test]
async fn a_source_is_denied_however_it_is_encoded() {
    let s3 = server().await;
    s3.put("/bkt/s%20e").body("x").send(&s3).await.expect(200);
    let from =
        |condition: &str| several(&[("Allow", "s3:*", "bkt/*", ""), ("Deny", "s3:PutObject", "bkt/*", condition)]);
    let copy = |source: &str| by(USER, s3.put("/bkt/to").header("x-amz-copy-source", source)).send(&s3);
    for condition in [
        "'StringLike':{'s3:x-amz-copy-source':'bkt/s*'}",
        "'StringLike':{'s3:x-amz-copy-source':'/bkt/s e'}",
        "'StringNotLike':{'s3:x-amz-copy-source':'bkt/k'}",
    ] {
        put_policy(&s3, &from(condition)).await.expect(204);
        for source in ["bkt/s%20e", "/bkt/s%20e", "%2Fbkt%2Fs+e", "bkt%2F%73%20e"] {
            copy(source).await.refused(403, "AccessDenied");
        }
        for source in ["bkt/k", "/bkt/k", "%62kt/k"] {
            copy(source).await.expect(200);
        }
    }
}

#[tokio::test]
async fn locks_and_tags_are_shown_to_those_who_may_know_them() {
    const HEADERS: [&str; 4] = [
        "x-amz-object-lock-mode",
        "x-amz-object-lock-retain-until-date",
        "x-amz-object-lock-legal-hold",
        "x-amz-tagging-count",
    ];
    let s3 = S3::for_users(Arc::new(Users::new())).await;
    s3.put("/bkt").header("x-amz-bucket-object-lock-enabled", "true").send(&s3).await.expect(200);
    let locked = s3.put("/bkt/k").header(HEADERS[0], "GOVERNANCE").header(HEADERS[1], "2099-01-01T00:00:00.000Z");
    let locked = locked.header(HEADERS[2], "ON").header("x-amz-tagging", "a=1").body("x");
    let locked = locked.send(&s3).await.expect(200);
    let version = format!("/bkt/k?versionId={}", locked.header("x-amz-version-id").unwrap());
    let shown = async |who: &'static str, action: &str, target: &str| {
        put_policy(&s3, &allow("'*'", action, "bkt/*", "")).await.expect(204);
        let of = |answer: Answer| {
            let answer = answer.expect(200);
            HEADERS.map(|name| answer.header(name).is_some())
        };
        let head = of(by(who, s3.head(target)).send(&s3).await);
        assert_eq!(of(by(who, s3.get(target)).send(&s3).await), head, "{who} {action} {target}");
        head
    };
    assert_eq!(shown(ACCESS_KEY, "s3:GetObject", "/bkt/k").await, [true; 4]);
    assert_eq!(shown(READER, "s3:GetObject", "/bkt/k").await, [true; 4]);
    for who in ["", ALT, USER] {
        assert_eq!(shown(who, "s3:GetObject", "/bkt/k").await, [false; 4], "{who}");
        assert_eq!(shown(who, "s3:GetObject*", "/bkt/k").await, [true; 4], "{who}");
        let seen = async |condition: &str| {
            let policy = allow("'*'", "s3:GetObject*", "bkt/*", condition);
            put_policy(&s3, &policy).await.expect(204);
            let get = s3.get("/bkt/k").header("user-agent", "reader");
            let answer = by(who, get).send(&s3).await;
            HEADERS.map(|name| answer.header(name).is_some())
        };
        assert_eq!(seen("'StringEquals':{'aws:UserAgent':'reader'}").await, [true; 4], "{who}: of the same request");
        assert_eq!(seen("'StringEquals':{'aws:UserAgent':'other'}").await, [false; 4], "{who}");
        assert_eq!(shown(who, "s3:GetObjectVersion", &version).await, [false; 4], "{who}");
        assert_eq!(shown(who, "s3:GetObjectVersion*", &version).await, [false, false, false, true], "{who}");
    }
}
