//! Ceph's public conformance suite (ceph/s3-tests), run from a clone that is already here: nothing of it is in this repository. Starts a
//! server with what the suite needs (access control lists, Signature Version 2, named keys), makes the users that it names, and prints
//! pytest's result.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{
    bench::{ACCESS_KEY, SECRET_KEY, Server},
    cargo::{build_test_server, target_dir},
    clients::{pytest_counts, python},
    process::{output, run_watched},
    summary::Tally,
};

const USAGE: &str = "cargo xtask s3-tests SUITE [--defaults] [PYTEST ARGUMENTS]; SUITE is a clone of ceph/s3-tests";
/// What the suite expects of a server and what is not Gabion's default; `--defaults` leaves it away.
const SETTINGS: [&str; 8] = [
    "--object-ownership",
    "ObjectWriter",
    "--sigv2",
    "true",
    "--encryption-customer-keys",
    "any",
    "--logging-interval",
    "4s",
];
/// A day of lifecycle rules, as long as the suite is told that it is.
const LIFECYCLE_DAY_S: &str = "10";
/// The keys that the suite encrypts with by name.
const KEYS: &str = "\
testkey-1 Zmlyc3Qga2V5IG9mIHRoZSBzMy10ZXN0cywgZml4ZWQ=
testkey-2 b3RoZXIga2V5IG9mIHRoZSBzMy10ZXN0cywgZml4ZWQ=
";

/// An account that the suite knows beside the deployment's own.
struct Account {
    section: &'static str,
    email: &'static str,
    display_name: &'static str,
    access_key: &'static str,
    /// Its id of 12 digits and canonical id, if they must be these.
    id: Option<&'static str>,
}

const ALT: &str = "john.doe@example.com";
const ACCOUNTS: [Account; 4] = [
    Account { section: "iam", email: ALT, display_name: "john.doe", access_key: "GABIONS3TESTSALTROOT", id: None },
    Account {
        section: "s3 tenant",
        email: "tenanteduser@example.com",
        display_name: "testx$tenanteduser",
        access_key: "GABIONS3TESTSTENANTX",
        id: None,
    },
    Account {
        section: "iam root",
        email: "account1@example.com",
        display_name: "account1",
        access_key: "GABIONS3TESTSACCOUNT",
        id: Some("111111111111"),
    },
    Account {
        section: "iam alt root",
        email: "account2@example.com",
        display_name: "account2",
        access_key: "GABIONS3TESTSANOTHER",
        id: Some("222222222222"),
    },
];
const MAIN_EMAIL: &str = "tester@example.com";
const MAIN_NAME: &str = "M. Tester";
const ALT_KEY: &str = "GABIONS3TESTSALTUSER";

/// Runs the suite.
///
/// # Errors
/// When it can not be run, or a case failed.
pub(crate) fn run_suite(arguments: &[String], tally: &mut Tally) -> anyhow::Result<()> {
    let Some((suite, rest)) = arguments.split_first() else { bail!("{USAGE}") };
    let suite = fs::canonicalize(suite).with_context(|| format!("{suite}: no such directory; {USAGE}"))?;
    if !suite.join("s3tests/functional").is_dir() {
        bail!("{}: s3tests/functional is not in it; {USAGE}", suite.display());
    }
    let (defaults, rest) = match rest.split_first() {
        Some((flag, rest)) if flag == "--defaults" => (true, rest),
        _ => (false, rest),
    };
    let program = build_test_server()?;
    let requirements =
        fs::read_to_string(suite.join("requirements.txt")).context("reading the suite's requirements.txt")?;
    let requirements = requirements.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let requirements: Vec<&str> = requirements.chain(["pytest-timeout", "pytest-xdist"]).collect();
    let environment = python("s3-tests", &requirements)?;

    let place = target_dir()?.join("tmp/s3-tests");
    if place.exists() {
        fs::remove_dir_all(&place).context("clearing what an earlier run left")?;
    }
    fs::create_dir_all(&place)?;
    let configuration = place.join("s3tests.conf");
    let server = start(&program, &place, defaults)?;
    fs::write(&configuration, configure(&program, &place, &server)?)?;
    let mut command = Command::new(environment.join("bin/python"));
    command
        .args(["-m", "pytest", "-q", "-rfE", "--tb=line", "--timeout", "150", "-p", "no:cacheprovider", "-n", "2"])
        .args(if rest.is_empty() { vec!["s3tests/functional".to_owned()] } else { rest.to_vec() })
        .current_dir(&suite)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("S3TEST_CONF", &configuration);
    let succeeded = run_watched(&mut command, |line| {
        if let Some(counts) = pytest_counts(line) {
            *tally = counts;
        }
    })?;
    drop(server);
    fs::remove_dir_all(&place)?;
    if succeeded {
        Ok(())
    } else {
        bail!("some cases failed: many are about Ceph's own extensions, see docs/CONFORMANCE.md")
    }
}

fn start(program: &Path, place: &Path, defaults: bool) -> anyhow::Result<Server> {
    let target = place.join("target");
    fs::create_dir_all(&target)?;
    let keys = place.join("keys");
    fs::write(&keys, KEYS)?;
    private(&keys)?;
    let keys = keys.to_str().context("the target directory is no text")?;
    let day = format!("{LIFECYCLE_DAY_S}s");
    let mut settings = vec!["--lifecycle-debug-day", &day];
    if !defaults {
        settings.extend(SETTINGS);
        settings.extend(["--encryption-keys", keys]);
    }
    Server::open(program, place, "1+0", vec![target], &settings)
}

/// A file of keys that others may read is refused.
fn private(file: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
    Ok(())
}

/// Makes the users, and returns the suite's configuration.
fn configure(program: &Path, place: &Path, server: &Server) -> anyhow::Result<String> {
    let state: PathBuf = place.join("1+0/state");
    let gabion = |arguments: &[&str]| -> anyhow::Result<Value> {
        let mut command = Command::new(program);
        command.args(arguments).args(["--json", "--admin", &format!("http://{}", server.admin), "--state"]).arg(&state);
        Ok(serde_json::from_str(&output(&mut command)?)?)
    };
    let canonical = |account: &[&str]| -> anyhow::Result<String> {
        let shown = gabion(&[&["account", "show"], account].concat())?;
        Ok(shown["canonical_id"].as_str().context("an account has a canonical id")?.to_owned())
    };
    gabion(&["account", "update", "--display-name", MAIN_NAME, "--email", MAIN_EMAIL])?;
    for account in &ACCOUNTS {
        let ids = account.id.map(|id| ["--id", id, "--canonical-id", id]);
        let named = ["account", "create", "--email", account.email, "--display-name", account.display_name];
        gabion(&[&named[..], ids.as_ref().map_or(&[], |ids| &ids[..])].concat())?;
        let key = ["--access-key", account.access_key, "--secret-key", SECRET_KEY];
        gabion(&[&["key", "create", "--account", account.email], &key[..]].concat())?;
    }
    // The suite names users by the ids of their accounts, and changes alt's policies through IAM: so alt is a user of that name.
    let (main, alt) = (canonical(&[])?, canonical(&["--account", ALT])?);
    gabion(&["user", "create", "--account", ALT, &alt])?;
    gabion(&["policy", "attach", "--account", ALT, "AdministratorAccess", "--user", &alt])?;
    let key = ["--access-key", ALT_KEY, "--secret-key", SECRET_KEY];
    gabion(&[&["key", "create", "--account", ALT, "--user", &alt], &key[..]].concat())?;

    let (host, port) =
        server.endpoint.trim_start_matches("http://").split_once(':').context("an address has a port")?;
    let mut text = format!(
        "[DEFAULT]\nhost = {host}\nport = {port}\nis_secure = False\nssl_verify = False\n\
         [fixtures]\nbucket prefix = gabion-{{random}}-\niam name prefix = s3-tests-\niam path prefix = /s3-tests/\n\
         [s3 main]\napi_name = us-east-1\nlc_debug_interval = {LIFECYCLE_DAY_S}\nkms_keyid = testkey-1\nkms_keyid2 = testkey-2\n"
    );
    let mut section = |extra: &str, name: &str, email: &str, user: &str, key: &str| {
        text.push_str(&format!(
            "{extra}display_name = {name}\nemail = {email}\nuser_id = {user}\naccess_key = {key}\nsecret_key = {SECRET_KEY}\n"
        ));
    };
    section("", MAIN_NAME, MAIN_EMAIL, &main, ACCESS_KEY);
    section("[s3 alt]\n", "john.doe", ALT, &alt, ALT_KEY);
    for account in &ACCOUNTS {
        let user = match account.id {
            Some(id) => id.to_owned(),
            None => canonical(&["--account", account.email])?,
        };
        let tenant = if account.section == "s3 tenant" { "tenant = testx\n" } else { "" };
        let head = format!("[{}]\n{tenant}", account.section);
        section(&head, account.display_name, account.email, &user, account.access_key);
    }
    // Cases of web identities need an OIDC provider (Keycloak), which is not here; the section must be there.
    text.push_str(
        "[webidentity]\ntoken = none\naud = a\nsub = s\nazp = z\nuser_token = t\nthumbprint = t\nKC_REALM = r\n",
    );
    Ok(text)
}
