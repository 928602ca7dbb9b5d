//! Flags over environment over file over defaults: for each setting, the value that applies and where it came from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::settings::{SETTINGS, Setting};
use super::values::Value;

/// What every environment variable of ours begins with.
pub(crate) const ENVIRONMENT_PREFIX: &str = "GABION_";

/// Variables with the prefix that are no settings: secrets, the path of the file, the load generator's, those of commands that ask a server, a test harness's.
const OTHER_VARIABLES: [&str; 9] = [
    "GABION_ADMIN",
    "GABION_ADMIN_TOKEN",
    "GABION_CONFIG",
    "GABION_ROOT_ACCESS_KEY",
    "GABION_ROOT_SECRET_KEY",
    "GABION_ENDPOINT",
    "GABION_ACCESS_KEY",
    "GABION_SECRET_KEY",
    "GABION_SESSION_TOKEN",
];
const OTHER_PREFIXES: [&str; 2] = ["GABION_TEST_", "GABION_BENCH_"];

/// Something that is wrong with the configuration, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem(pub(crate) String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nobody said anything.
    Default,
    /// The file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag or an argument.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(path) => write!(f, "file {}", path.display()),
            Source::Environment(name) => write!(f, "environment {name}"),
            Source::Flag(flag) => f.write_str(flag),
        }
    }
}

/// The texts of a value and where they came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// One text; any number for a list.
    pub(crate) texts: Vec<String>,
    /// Where they stand.
    pub(crate) source: Source,
}

/// What was said, before it is merged.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// From the command line, by key.
    pub(crate) flags: BTreeMap<&'static str, Vec<String>>,
    /// The environment, names and values.
    pub(crate) environment: Vec<(String, String)>,
    /// The file's path and content.
    pub(crate) file: Option<(PathBuf, String)>,
}

/// The value of every setting.
#[derive(Debug)]
pub(crate) struct Resolved {
    given: BTreeMap<&'static str, Given>,
    /// Every name that is unknown and everything in the file that is no setting.
    problems: Vec<Problem>,
}

impl Layers {
    /// Merges the layers; what is wrong with them is part of the result, so that the rest can be shown.
    pub(crate) fn resolve(self) -> Resolved {
        let mut problems = Vec::new();
        let mut given = BTreeMap::new();
        for setting in SETTINGS {
            given.insert(setting.key, Given { texts: list(setting.default), source: Source::Default });
        }
        if let Some((path, content)) = &self.file {
            from_file(path, content, &mut given, &mut problems);
        }
        from_environment(&self.environment, &mut given, &mut problems);
        for (key, texts) in self.flags {
            let flag = if key == "targets" {
                "arguments".to_owned()
            } else {
                format!("flag --{}", Setting::find(key).map(Setting::flag).unwrap_or_default())
            };
            given.insert(key, Given { texts, source: Source::Flag(flag) });
        }
        Resolved { given, problems }
    }
}

impl Resolved {
    /// Every name that is unknown and everything in the file that is no setting.
    pub(crate) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// What applies to `key` and where it came from.
    ///
    /// # Panics
    /// When there is no such setting.
    pub(crate) fn given(&self, key: &str) -> &Given {
        self.given.get(key).expect("every setting of the table has a value")
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// When its text can not be read.
    pub(crate) fn value<T: Value>(&self, key: &str) -> Result<T, Problem> {
        let given = self.given(key);
        T::parse(&given.texts).map_err(|why| Problem(format!("{key} (from {}): {why}", given.source)))
    }
}

/// The values of a list as they stand in one text.
fn list(text: &str) -> Vec<String> {
    if text.is_empty() { Vec::new() } else { text.split(',').map(|part| part.trim().to_owned()).collect() }
}

fn from_environment(
    environment: &[(String, String)],
    given: &mut BTreeMap<&'static str, Given>,
    problems: &mut Vec<Problem>,
) {
    for (name, value) in environment {
        let other =
            || OTHER_VARIABLES.contains(&name.as_str()) || OTHER_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if !name.starts_with(ENVIRONMENT_PREFIX) || other() {
            continue;
        }
        let Some(setting) = SETTINGS.iter().find(|setting| setting.variable() == *name) else {
            let names = SETTINGS.iter().map(Setting::variable).chain(OTHER_VARIABLES.map(str::to_owned));
            let hint = nearest(name, names);
            problems.push(Problem(format!("the environment variable {name} is unknown{hint}")));
            continue;
        };
        let texts = if setting.list { list(value) } else { vec![value.clone()] };
        given.insert(setting.key, Given { texts, source: Source::Environment(name.clone()) });
    }
}

fn from_file(path: &Path, content: &str, given: &mut BTreeMap<&'static str, Given>, problems: &mut Vec<Problem>) {
    let table = match content.parse::<toml::Table>() {
        Ok(table) => table,
        Err(error) => {
            let error = error.to_string();
            problems.push(Problem(format!("{} is not valid TOML: {}", path.display(), error.trim_end())));
            return;
        }
    };
    let (root, mut leaves) = (toml::Value::Table(table), Vec::new());
    flatten("", &root, &mut leaves);
    for (key, value) in leaves {
        let Some(setting) = Setting::find(&key) else {
            let keys = SETTINGS.iter().map(|setting| setting.key.to_owned());
            let hint = nearest(&key, keys);
            problems.push(Problem(format!("{}: the key {key} is unknown{hint}", path.display())));
            continue;
        };
        match texts(value) {
            Ok(texts) => {
                given.insert(setting.key, Given { texts, source: Source::File(path.to_owned()) });
            }
            Err(why) => problems.push(Problem(format!("{}: {key}: {why}", path.display()))),
        }
    }
}

fn flatten<'a>(prefix: &str, value: &'a toml::Value, leaves: &mut Vec<(String, &'a toml::Value)>) {
    let toml::Value::Table(table) = value else {
        leaves.push((prefix.to_owned(), value));
        return;
    };
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        flatten(&key, value, leaves);
    }
}

fn texts(value: &toml::Value) -> Result<Vec<String>, String> {
    match value {
        toml::Value::Array(items) => items.iter().map(text).collect(),
        other => Ok(vec![text(other)?]),
    }
}

fn text(value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(choice) => Ok(choice.to_string()),
        other => Err(format!("a value must be a text, a whole number, true or false, not a {}", other.type_str())),
    }
}

/// Names the candidate that looks most like `name`, if one does.
fn nearest(name: &str, candidates: impl Iterator<Item = String>) -> String {
    /// Below this two names have little in common.
    const SIMILAR: f64 = 0.75;
    let score = |candidate: &str| strsim::normalized_damerau_levenshtein(name, candidate);
    // A name without its section is a common slip: compare the last parts, too, and count that a little less.
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let scored = candidates.map(|candidate| {
        let whole = score(&candidate);
        let part = strsim::normalized_damerau_levenshtein(&last(name), &last(&candidate)) * 0.95;
        (candidate, whole.max(part))
    });
    match scored.max_by(|(_, a), (_, b)| a.total_cmp(b)) {
        Some((candidate, score)) if score >= SIMILAR => format!("; did you mean {candidate}?"),
        _ => "; see gabion config check for all settings".to_owned(),
    }
}
