//! How the program ends: a code for scripts, a sentence for people.

use std::fmt;
use std::process::ExitCode;

/// Why the program ends without having done its work.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    sentence: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Failed,
    Config,
    Held,
    Targets,
    Impaired,
}

impl Failure {
    /// Something failed: what, where, what to do.
    pub(crate) fn failed(sentence: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, sentence: sentence.into() }
    }

    /// The command line or the configuration is wrong.
    pub(crate) fn config(sentence: impl Into<String>) -> Self {
        Self { kind: Kind::Config, sentence: sentence.into() }
    }

    /// The same, with a sentence on a line for each thing that is wrong.
    pub(crate) fn configs(sentences: impl IntoIterator<Item = String>) -> Self {
        Self::config(sentences.into_iter().collect::<Vec<_>>().join("\ngabion: "))
    }

    /// Another process owns what is needed.
    pub(crate) fn held(sentence: impl Into<String>) -> Self {
        Self { kind: Kind::Held, sentence: sentence.into() }
    }

    /// The targets can not be used as they are.
    pub(crate) fn targets(sentence: impl Into<String>) -> Self {
        Self { kind: Kind::Targets, sentence: sentence.into() }
    }

    /// A running server needs attention.
    pub(crate) fn impaired(sentence: impl Into<String>) -> Self {
        Self { kind: Kind::Impaired, sentence: sentence.into() }
    }

    /// The process' exit code, as the help lists them.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self.kind {
            Kind::Failed => 1,
            Kind::Config => 2,
            Kind::Held => 3,
            Kind::Targets => 4,
            Kind::Impaired => 5,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::failed(format!("{error:#}"))
    }
}
