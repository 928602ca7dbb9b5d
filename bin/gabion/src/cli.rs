//! The command line. Flags of settings come from their table.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand};

use crate::admin::iam::{AccountCommand, KeyCommand, PolicyCommand, QuotaCommand, UserCommand};
use crate::admin::target::TargetCommand;
use crate::admin::{AdminArgs, TokenArgs};
use crate::config::{Layers, SETTINGS, Setting};
use crate::exit::Failure;

/// An S3-compatible object server over an erasure-coded log.
#[derive(Debug, Parser)]
#[command(name = "gabion", version, max_term_width = 120, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Action,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed; 2 the command line or the configuration is wrong; \
3 another process holds the state directory; 4 the targets can not be used as they are; 5 a running server needs attention.";

#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub(crate) enum Action {
    /// Serve S3 from the given targets.
    ///
    /// At the first start the directories are formatted (those whose last component is missing are made), root credentials are generated, and where
    /// they are stored is printed. Later starts find what is there: the order of targets does not matter, up to m of k+m may be missing.
    ///
    /// Every setting is a flag, an environment variable (GABION_ and its key in capitals, dots as underscores) and a key of the TOML file; flags come first,
    /// then the environment, then the file. `gabion config check` shows what applies and why. Root credentials are taken from
    /// GABION_ROOT_ACCESS_KEY and GABION_ROOT_SECRET_KEY if both are set.
    ///
    /// SIGTERM and SIGINT finish what is in flight and stop; a second one stops at once. SIGHUP opens the access log anew.
    Server(SettingArgs),
    /// Build the index anew from the segments; the server must not run.
    ///
    /// A server does this by itself when the index is missing or fails its check. Takes the settings of the server.
    RebuildIndex(RebuildArgs),
    /// Show what lies on disk.
    #[command(subcommand)]
    Inspect(Inspect),
    /// Explain the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show how a running server does, and what needs attention.
    ///
    /// Ends with code 5 when service or redundancy is impaired, so that a monitor can call it.
    Status {
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        output: Output,
    },
    /// Show and change the targets of a running server.
    #[command(subcommand)]
    Target(TargetCommand),
    /// Have a running server read and check all segments now, and repair what is wrong.
    ///
    /// Those that are still written to are read as far as they are when it is their turn; what is wrong with one is repaired once it is sealed: when it is full, and at the next start. It does so by itself every scrub.interval_hours. With --wait it ends with code 5 when something was found.
    Scrub {
        /// Wait until it is complete.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        admin: AdminArgs,
        #[command(flatten)]
        token: TokenArgs,
    },
    /// Show and change the accounts of a running server.
    #[command(subcommand)]
    Account(AccountCommand),
    /// Show and change the users of an account.
    #[command(subcommand)]
    User(UserCommand),
    /// Show and change access keys.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Show, change and attach managed policies.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Show and limit what buckets and users of a running server hold; `gabion account quota` limits accounts.
    #[command(subcommand)]
    Quota(QuotaCommand),
    /// Put a load on an S3 endpoint and measure it.
    ///
    /// The bucket is created when it does not exist, objects that the operation needs are written before the measurement, and what was written is removed
    /// at the end. Credentials come from the flags, or GABION_ACCESS_KEY and GABION_SECRET_KEY, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
    ///
    /// The first SIGINT ends the measurement, which is reported, and what was written is removed; the second ends the program.
    Bench(Box<gabion_bench::Cli>),
    /// Print the completions of a shell.
    ///
    /// For example: gabion completions bash > /etc/bash_completion.d/gabion
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RebuildArgs {
    /// Keep the index that is there, build another beside it, and name the rows that differ; fail if there are any.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Read all mutations in the log, and not the newest snapshot of the index with what came later.
    #[arg(long)]
    pub(crate) without_snapshot: bool,
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting with its value, where that came from, and what it means; fail if anything is wrong.
    ///
    /// Takes the flags and targets of the server, so that a command line can be checked before it is used. Certificates, keys and tokens that
    /// settings name are read, as whoever runs this; but not Vault's token, which may come later.
    Check(SettingArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Inspect {
    /// A target: its place in the deployment, and the segments that have a shard on it.
    Target {
        /// The target's directory.
        target: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// A segment: its shards with headers and seals, and its stripes.
    Segment {
        /// The segment's id, 32 hexadecimal digits.
        segment: String,
        /// Directories of the targets; those not given count as missing.
        #[arg(required = true)]
        targets: Vec<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// A stripe: its chunks with all checksums checked, and its records.
    Stripe {
        /// The segment's id, 32 hexadecimal digits.
        segment: String,
        /// Index of the stripe in the segment, from 0.
        stripe: u32,
        /// Directories of the targets; those not given count as missing.
        #[arg(required = true)]
        targets: Vec<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// An object: its row in the index, and where its bytes lie. The server must not run.
    Object {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// The state directory.
        #[arg(long, value_name = "DIR", env = "GABION_STATE")]
        state: PathBuf,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Targets as arguments, every setting as a flag, and the file.
#[derive(Debug, Default)]
pub(crate) struct SettingArgs {
    flags: BTreeMap<&'static str, Vec<String>>,
    file: Option<PathBuf>,
}

const TARGETS: &str = "targets";
const CONFIG: &str = "config";

impl SettingArgs {
    /// What applies: these flags over the environment over the file.
    ///
    /// # Errors
    /// When the file can not be read or the environment is not text.
    pub(crate) fn layers(self) -> Result<Layers, Failure> {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(crate::config::ENVIRONMENT_PREFIX))
            .map(|(name, value)| match value.into_string() {
                Ok(value) => Ok((name, value)),
                Err(_) => Err(Failure::config(format!("the environment variable {name} is not UTF-8 text"))),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let file = match self.file {
            None => None,
            Some(path) => {
                let content = std::fs::read_to_string(&path).map_err(|error| {
                    Failure::config(format!("the configuration file {} can not be read: {error}", path.display()))
                })?;
                Some((path, content))
            }
        };
        Ok(Layers { flags: self.flags, environment, file })
    }
}

impl FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut this = Self::default();
        this.update_from_arg_matches(matches)?;
        Ok(this)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for setting in SETTINGS {
            if let Some(texts) = matches.get_many::<String>(setting.key) {
                self.flags.insert(setting.key, texts.cloned().collect());
            }
        }
        self.file = matches.get_one::<PathBuf>(CONFIG).cloned();
        Ok(())
    }
}

impl Args for SettingArgs {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("FILE")
            .env("GABION_CONFIG")
            .value_parser(clap::value_parser!(PathBuf))
            .help("TOML file with settings");
        SETTINGS.iter().fold(command.arg(file), |command, setting| command.arg(argument(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(setting: &'static Setting) -> Arg {
    if setting.key == TARGETS {
        return Arg::new(TARGETS).value_name("TARGET").num_args(0..).action(ArgAction::Append).help(format!(
            "{} [env: {}]",
            setting.meaning,
            setting.variable()
        ));
    }
    let default = match setting.default {
        "" => String::new(),
        text => format!(" [default: {text}]"),
    };
    let name = setting.key.rsplit('.').next().unwrap_or(setting.key).to_uppercase();
    let arg = Arg::new(setting.key)
        .long(setting.flag())
        .value_name(name)
        .help(setting.meaning)
        .long_help(format!("{}\n{}{default} [env: {}]", setting.meaning, setting.unit, setting.variable()))
        .help_heading(heading(setting.key));
    let arg =
        if setting.list { arg.action(ArgAction::Append).value_delimiter(',') } else { arg.action(ArgAction::Set) };
    match setting.key {
        // With a value, as everywhere else: a bare switch would take a target for one.
        "sigv2" => arg.value_parser(PossibleValuesParser::new(["true", "false"])),
        "durability" => arg.value_parser(PossibleValuesParser::new(["sync", "relaxed"])),
        "etag" => arg.value_parser(PossibleValuesParser::new(["md5", "crc64nvme"])),
        "driver" => arg.value_parser(PossibleValuesParser::new(["auto", "io_uring", "threads"])),
        "log.format" => arg.value_parser(PossibleValuesParser::new(["text", "json"])),
        "log.level" => arg.value_parser(PossibleValuesParser::new(["error", "warn", "info", "debug", "trace"])),
        _ => arg,
    }
}

fn heading(key: &'static str) -> &'static str {
    match key.split_once('.').map(|(section, _)| section) {
        None => "Settings",
        Some("log") => "Log",
        Some("tls") => "TLS",
        Some("limits") => "Limits on clients",
        Some("lanes" | "segment") => "Data",
        Some("memory") => "Memory",
        Some("index" | "checkpoint") => "Index",
        Some("iam") => "Users",
        Some("audit") => "Log",
        Some("repair" | "scrub" | "compaction") => "Upkeep",
        Some(_) => "Other",
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_setting_is_a_flag_and_targets_are_arguments() {
        let line = [
            "gabion",
            "server",
            "/a",
            "/b",
            "--geometry",
            "1+1",
            "--domain",
            "x,y",
            "--domain",
            "z",
            "--sigv2",
            "true",
        ];
        let Action::Server(args) = Cli::try_parse_from(line).unwrap().command else { panic!("it is a server") };
        let texts = |key| args.flags.get(key).map(|texts| texts.join(" "));
        assert_eq!(texts("targets").as_deref(), Some("/a /b"));
        assert_eq!(texts("geometry").as_deref(), Some("1+1"));
        assert_eq!(texts("domain").as_deref(), Some("x y z"));
        assert_eq!(texts("sigv2").as_deref(), Some("true"));
        assert_eq!(texts("region"), None);
        for setting in SETTINGS.iter().filter(|setting| setting.key != TARGETS) {
            let help = Cli::command().find_subcommand_mut("server").unwrap().render_long_help().to_string();
            assert!(help.contains(&format!("--{}", setting.flag())), "{}", setting.key);
        }
    }

    #[test]
    fn a_mistyped_flag_is_answered_with_the_nearest() {
        let error = Cli::try_parse_from(["gabion", "server", "/a", "--regoin", "x"]).unwrap_err().to_string();
        assert!(error.contains("--region"), "{error}");
    }
}
