//! `gabion account|user|key|policy`: who may use a running server.

use std::path::PathBuf;

use clap::builder::UnknownArgumentValueParser;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::client::{AdminArgs, TokenArgs};
use crate::config::{ByteCount, Scalar};
use crate::exit::Failure;
use crate::output;

/// What every one of these commands takes that is about something in an account.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Id, canonical id or address of the account; by default the deployment's own.
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    #[command(flatten)]
    site: Site,
}

/// What every one of these commands takes.
#[derive(Debug, Args)]
pub(crate) struct Site {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    token: TokenArgs,
}

/// Accounts own buckets, and have users, groups and roles.
#[derive(Debug, Subcommand)]
pub(crate) enum AccountCommand {
    /// Make an account.
    Create {
        /// Its id, 12 digits; by default a random one.
        #[arg(long)]
        id: Option<String>,
        /// What ACLs and owners of buckets name it by; by default 64 random digits.
        #[arg(long, value_name = "ID")]
        canonical_id: Option<String>,
        /// What people call it by.
        #[arg(long, value_name = "NAME")]
        display_name: Option<String>,
        /// Its address, by which ACLs may name it.
        #[arg(long)]
        email: Option<String>,
        /// Names an account that is there in the other commands: here it would be passed over.
        #[arg(long, hide = true, value_parser = UnknownArgumentValueParser::suggest_arg("--id"))]
        account: Option<String>,
        #[command(flatten)]
        site: Site,
    },
    /// List all accounts.
    List(Site),
    /// Show an account and what is in it.
    Show(Common),
    /// Change what an account is called.
    Update {
        /// What people call it by.
        #[arg(long, value_name = "NAME")]
        display_name: Option<String>,
        /// Its address, by which ACLs may name it; empty: none.
        #[arg(long)]
        email: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Delete an account without buckets.
    Delete {
        /// With its users, groups, roles, policies and access keys.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Limit what the buckets of an account may hold together; what is not given is not limited. `gabion quota show` shows it.
    Quota {
        #[command(flatten)]
        limits: AccountLimits,
        #[command(flatten)]
        common: Common,
    },
}

/// How much is allowed. Without any of these nothing would be limited any more, which is asked for by name.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Limits {
    /// Most bytes of objects, with a unit if you like: 64KiB, 16MiB, 1GiB, 1TiB.
    #[arg(long, value_parser = byte_count)]
    bytes: Option<u64>,
    /// Most objects.
    #[arg(long)]
    objects: Option<u64>,
}

/// The same of an account, or that there are none.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct AccountLimits {
    /// Most bytes of objects, with a unit if you like: 64KiB, 16MiB, 1GiB, 1TiB.
    #[arg(long, value_parser = byte_count)]
    bytes: Option<u64>,
    /// Most objects.
    #[arg(long)]
    objects: Option<u64>,
    /// Limit it no more.
    #[arg(long, conflicts_with_all = ["bytes", "objects"])]
    clear: bool,
}

fn byte_count(text: &str) -> Result<u64, String> {
    ByteCount::read(text).map(|count| count.0)
}

/// Users of an account.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Make a user; without policies he may do nothing.
    Create {
        /// His name.
        name: String,
        /// Begins and ends with a slash.
        #[arg(long)]
        path: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// List the users of an account.
    List(Common),
    /// Show a user.
    Show {
        /// His name.
        name: String,
        #[command(flatten)]
        common: Common,
    },
    /// Delete a user.
    Delete {
        /// His name.
        name: String,
        /// With his access keys.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        common: Common,
    },
}

/// Access keys of users and of accounts.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make an access key. Its secret is shown once.
    Create {
        /// The user whose it is; by default it is the account's own, which may do everything in it.
        #[arg(long)]
        user: Option<String>,
        /// Take this one over from elsewhere, with its secret key.
        #[arg(long, value_name = "KEY", requires = "secret_key")]
        access_key: Option<String>,
        /// The secret of --access-key.
        #[arg(long, value_name = "SECRET", requires = "access_key")]
        secret_key: Option<String>,
        /// Make it a service account: a file with a policy (JSON) that narrows what its owner may do.
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// What it is for.
        #[arg(long)]
        description: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// List access keys, without secrets.
    List {
        /// Only this user's.
        #[arg(long)]
        user: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Let an access key be used again.
    Enable {
        /// The access key.
        access_key: String,
        #[command(flatten)]
        common: Common,
    },
    /// Let an access key be used no more, until it is enabled again.
    Disable {
        /// The access key.
        access_key: String,
        #[command(flatten)]
        common: Common,
    },
    /// Delete an access key.
    Delete {
        /// The access key.
        access_key: String,
        #[command(flatten)]
        common: Common,
    },
}

/// To whom a policy is attached.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Holder {
    /// A user.
    #[arg(long)]
    user: Option<String>,
    /// A group.
    #[arg(long)]
    group: Option<String>,
    /// A role.
    #[arg(long)]
    role: Option<String>,
}

/// Managed policies of an account, and those that every account has.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Make a managed policy.
    Create {
        /// Its name.
        name: String,
        /// File with its document (JSON).
        document: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// List managed policies.
    List(Common),
    /// Show the document of a policy.
    Show {
        /// Its name or ARN.
        policy: String,
        #[command(flatten)]
        common: Common,
    },
    /// Delete a policy that is attached to nobody.
    Delete {
        /// Its name or ARN.
        policy: String,
        #[command(flatten)]
        common: Common,
    },
    /// Attach a policy.
    Attach {
        /// Its name or ARN, for example AmazonS3FullAccess.
        policy: String,
        #[command(flatten)]
        holder: Holder,
        #[command(flatten)]
        common: Common,
    },
    /// Take a policy off.
    Detach {
        /// Its name or ARN.
        policy: String,
        #[command(flatten)]
        holder: Holder,
        #[command(flatten)]
        common: Common,
    },
}

/// Whose quota is meant.
#[derive(Debug, Args)]
pub(crate) struct Limited {
    /// The bucket.
    bucket: Option<String>,
    /// A user of the account instead: what he made, in all buckets.
    #[arg(long, value_name = "NAME", conflicts_with = "bucket")]
    user: Option<String>,
}

impl Limited {
    fn with(self, bytes: Option<u64>, objects: Option<u64>) -> Value {
        json!({ "bucket": self.bucket, "user": self.user, "bytes": bytes, "objects": objects })
    }
}

/// What buckets and users may hold.
#[derive(Debug, Subcommand)]
pub(crate) enum QuotaCommand {
    /// Limit what a bucket or a user may hold; what is not given is not limited.
    Set {
        #[command(flatten)]
        of: Limited,
        #[command(flatten)]
        limits: Limits,
        #[command(flatten)]
        common: Common,
    },
    /// Limit a bucket or a user no more.
    Clear {
        #[command(flatten)]
        of: Limited,
        #[command(flatten)]
        common: Common,
    },
    /// Show what a bucket or a user holds, and may hold; without one of them all buckets of the account.
    Show {
        #[command(flatten)]
        of: Limited,
        #[command(flatten)]
        common: Common,
    },
}

/// Runs `gabion quota`.
///
/// # Errors
/// See [`account`].
pub(crate) fn quota(command: QuotaCommand) -> Result<(), Failure> {
    match command {
        QuotaCommand::Set { of, limits, common } => common.ask("quota/set", of.with(limits.bytes, limits.objects)),
        QuotaCommand::Clear { of, common } => common.ask("quota/clear", of.with(None, None)),
        QuotaCommand::Show { of, common } => common.ask("quota/show", of.with(None, None)),
    }
}

/// Runs `gabion account`.
///
/// # Errors
/// When the server can not be asked, or refuses.
pub(crate) fn account(command: AccountCommand) -> Result<(), Failure> {
    match command {
        AccountCommand::Create { id, canonical_id, display_name, email, account: _, site } => {
            let fields =
                json!({ "id": id, "canonical_id": canonical_id, "display_name": display_name, "email": email });
            site.ask("account/create", fields)
        }
        AccountCommand::List(site) => site.ask("account/list", json!({})),
        AccountCommand::Show(common) => common.ask("account/show", json!({})),
        AccountCommand::Update { display_name, email, common } => {
            common.ask("account/update", json!({ "display_name": display_name, "email": email }))
        }
        AccountCommand::Delete { force, common } => common.ask("account/delete", json!({ "force": force })),
        AccountCommand::Quota { limits, common } => {
            common.ask("account/quota", json!({ "bytes": limits.bytes, "objects": limits.objects }))
        }
    }
}

/// Runs `gabion user`.
///
/// # Errors
/// See [`account`].
pub(crate) fn user(command: UserCommand) -> Result<(), Failure> {
    match command {
        UserCommand::Create { name, path, common } => common.ask("user/create", json!({ "name": name, "path": path })),
        UserCommand::List(common) => common.ask("user/list", json!({})),
        UserCommand::Show { name, common } => common.ask("user/show", json!({ "name": name })),
        UserCommand::Delete { name, force, common } => {
            common.ask("user/delete", json!({ "name": name, "force": force }))
        }
    }
}

/// Runs `gabion key`.
///
/// # Errors
/// See [`account`].
pub(crate) fn key(command: KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::Create { user, access_key, secret_key, policy, description, common } => {
            let policy = policy.map(read).transpose()?;
            let fields = json!({
                "user": user,
                "access_key": access_key,
                "secret_key": secret_key,
                "policy": policy,
                "description": description,
            });
            common.ask("key/create", fields)
        }
        KeyCommand::List { user, common } => common.ask("key/list", json!({ "user": user })),
        KeyCommand::Enable { access_key, common } => common.ask("key/enable", json!({ "access_key": access_key })),
        KeyCommand::Disable { access_key, common } => common.ask("key/disable", json!({ "access_key": access_key })),
        KeyCommand::Delete { access_key, common } => common.ask("key/delete", json!({ "access_key": access_key })),
    }
}

/// Runs `gabion policy`.
///
/// # Errors
/// See [`account`].
pub(crate) fn policy(command: PolicyCommand) -> Result<(), Failure> {
    let held =
        |policy, Holder { user, group, role }| json!({ "policy": policy, "user": user, "group": group, "role": role });
    match command {
        PolicyCommand::Create { name, document, common } => {
            common.ask("policy/create", json!({ "name": name, "document": read(document)? }))
        }
        PolicyCommand::List(common) => common.ask("policy/list", json!({})),
        PolicyCommand::Show { policy, common } => common.ask("policy/show", json!({ "policy": policy })),
        PolicyCommand::Delete { policy, common } => common.ask("policy/delete", json!({ "policy": policy })),
        PolicyCommand::Attach { policy, holder, common } => common.ask("policy/attach", held(policy, holder)),
        PolicyCommand::Detach { policy, holder, common } => common.ask("policy/detach", held(policy, holder)),
    }
}

fn read(path: PathBuf) -> Result<String, Failure> {
    std::fs::read_to_string(&path)
        .map_err(|error| Failure::config(format!("the policy {} can not be read: {error}", path.display())))
}

impl Common {
    fn ask(&self, action: &str, mut fields: Value) -> Result<(), Failure> {
        fields["account"] = json!(self.account);
        self.site.ask(action, fields)
    }
}

impl Site {
    fn ask(&self, action: &str, fields: Value) -> Result<(), Failure> {
        let mut fields = match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        fields.retain(|_, value| !value.is_null());
        let answer = self.admin.post(&format!("/iam/{action}"), &self.token, &Value::Object(fields))?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| Failure::failed(format!("the server's answer is no JSON: {error}")))?;
        if self.json { output::print_json(&answer) } else { output::print(&text(&answer)) }
    }
}

/// An answer for people: a list as a table, all else as names and values.
fn text(answer: &Value) -> String {
    let Value::Object(fields) = answer else { return format!("{answer}\n") };
    if let Some(Value::Array(rows)) = fields.values().find(|value| {
        value.as_array().is_some_and(|rows| rows.iter().all(Value::is_object))
            && value.as_array().is_some_and(|rows| !rows.is_empty())
    }) {
        return table(rows);
    }
    let width = fields.keys().map(String::len).max().unwrap_or(0);
    fields.iter().map(|(name, value)| format!("{name:width$}  {}\n", plain(value))).collect()
}

fn table(rows: &[Value]) -> String {
    let names: Vec<&String> =
        rows.first().and_then(Value::as_object).map(|row| row.keys().collect()).unwrap_or_default();
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| names.iter().map(|name| plain(&row[name.as_str()])).collect()).collect();
    let width = |at: usize| cells.iter().map(|row| row[at].len()).chain([names[at].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let line: String = cells.zip(&widths).map(|(cell, width)| format!("{cell:width$}  ")).collect();
        format!("{}\n", line.trim_end())
    };
    let mut out = line(&mut names.iter().map(|name| name.as_str()));
    for row in &cells {
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    out
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(","),
        Value::Object(fields) if fields.is_empty() => "-".to_owned(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Action, Cli};

    fn parsed(line: &str) -> Result<Action, String> {
        let words = ["gabion"].into_iter().chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.command).map_err(|error| error.to_string())
    }

    #[test]
    fn a_quota_is_lifted_by_name_only() {
        for line in ["account quota", "account quota --account 123456789012", "quota set b"] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains("--bytes") && error.contains("--objects"), "{line}: {error}");
        }
        for line in [
            "account quota --clear",
            "account quota --bytes 1GiB --objects 5",
            "quota set b --objects 5",
            "quota clear b",
        ] {
            parsed(line).unwrap();
        }
        assert!(parsed("account quota --clear --bytes 1GiB").is_err());
    }

    #[test]
    fn quotas_have_units() {
        let Ok(Action::Quota(QuotaCommand::Set { limits, .. })) = parsed("quota set b --bytes 1MiB") else {
            panic!("it is a quota")
        };
        assert_eq!((limits.bytes, limits.objects), (Some(1 << 20), None));
        let error = parsed("quota set b --bytes 1mib").unwrap_err();
        assert!(error.contains("no unit of bytes"), "{error}");
    }

    #[test]
    fn an_account_that_is_made_or_listed_is_not_chosen() {
        let error = parsed("account create --account 123456789012").unwrap_err();
        assert!(error.contains("unexpected argument '--account") && error.contains("'--id'"), "{error}");
        assert!(parsed("account list --account 123456789012").is_err());
        assert!(parsed("account show --account 123456789012").is_ok());
    }

    #[test]
    fn answers_are_names_and_values_or_tables() {
        let one = json!({ "id": "1", "email": null, "quota": { "bytes": 5 }, "groups": ["a", "b"] });
        assert_eq!(text(&one), "email   -\ngroups  a,b\nid      1\nquota   bytes=5\n");
        let many = json!({ "account": "1", "users": [{ "name": "a", "keys": ["k"] }, { "name": "long", "keys": [] }] });
        assert_eq!(text(&many), "keys  name\nk     a\n      long\n");
    }
}
