//! Why an operation failed, and how it is counted.

use std::io;

use rustix::io::Errno;

use crate::http::HttpError;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The endpoint answered with an error.
    Status { status: u16, code: String },
    /// The connection could not be opened or broke.
    Connection { fault: Fault, reason: String },
    /// What came back is not an answer of S3.
    Malformed(String),
    /// No answer within the time limit.
    Timeout,
    /// The body read is not the one that was written.
    Mismatch,
    /// A listing came to its end, and objects that exist were not on it.
    Incomplete,
    /// The run was stopped before its end: it is in none of the figures.
    Stopped,
}

/// What is wrong with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nobody listens.
    Refused,
    /// The peer broke it.
    Reset,
    /// The peer closed it before its answer was whole.
    CutShort,
    /// This process, or this machine, has as many files open as it may.
    TooManyOpenFiles,
    Other,
}

impl Fault {
    fn words(self) -> &'static str {
        match self {
            Fault::Refused => "connection refused",
            Fault::Reset => "connection reset",
            Fault::CutShort => "connection cut short",
            Fault::TooManyOpenFiles => "too many open files (ulimit -n)",
            Fault::Other => "connection",
        }
    }
}

impl From<&io::Error> for Fault {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Fault::Refused,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => {
                Fault::Reset
            }
            io::ErrorKind::UnexpectedEof => Fault::CutShort,
            _ if [Errno::MFILE, Errno::NFILE].contains(&Errno::from_io_error(error).unwrap_or(Errno::IO)) => {
                Fault::TooManyOpenFiles
            }
            _ => Fault::Other,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Status { status, code } if code.is_empty() => write!(f, "{status}"),
            Failure::Status { status, code } => write!(f, "{status} {code}"),
            Failure::Connection { fault, reason } => write!(f, "{}: {reason}", fault.words()),
            Failure::Malformed(reason) => f.write_str(reason),
            Failure::Timeout => f.write_str("timeout"),
            Failure::Mismatch => f.write_str("content mismatch"),
            Failure::Incomplete => f.write_str("listing without all keys"),
            Failure::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        let fault = match &error {
            HttpError::Malformed(_) => return Failure::Malformed(error.to_string()),
            HttpError::Io(error) => error.into(),
            HttpError::Closed | HttpError::CutShort => Fault::CutShort,
        };
        Failure::Connection { fault, reason: error.to_string() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        HttpError::Io(error).into()
    }
}

impl Failure {
    /// The name under which it is counted.
    pub(crate) fn kind(&self) -> String {
        match self {
            Failure::Connection { fault, .. } => fault.words().to_owned(),
            other => other.to_string(),
        }
    }

    /// Whether the endpoint may go on with what it had of the request, and nobody hears of its end.
    pub(crate) fn leaves_pending(&self) -> bool {
        matches!(self, Failure::Timeout | Failure::Connection { fault: Fault::Reset | Fault::CutShort, .. })
    }

    /// Whether nobody answered.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Failure::Connection { .. } | Failure::Timeout | Failure::Stopped)
    }

    /// Whether the same request may succeed a little later: nobody answered, or one who can not do it now.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Failure::Status { status: 200, code } => {
                matches!(code.as_str(), "InternalError" | "ServiceUnavailable" | "SlowDown")
            }
            Failure::Status { status, .. } => *status == 429 || *status >= 500 && *status != 501,
            Failure::Connection { .. } | Failure::Timeout => true,
            Failure::Malformed(_) | Failure::Mismatch | Failure::Incomplete | Failure::Stopped => false,
        }
    }
}

/// One error of all that there are.
///
/// # Errors
/// That of the only one that failed, or what all have to say, line by line.
pub(crate) fn all_of(outcomes: impl IntoIterator<Item = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut errors: Vec<anyhow::Error> = outcomes.into_iter().filter_map(Result::err).collect();
    match errors.len() {
        0 => Ok(()),
        1 => Err(errors.remove(0)),
        _ => {
            let lines: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
            Err(anyhow::anyhow!(lines.join("\n")))
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn what_is_wrong_with_connections_is_told_apart() {
        let of = |errno: Errno| Failure::from(io::Error::from_raw_os_error(errno.raw_os_error())).kind();
        for (errno, kind) in [
            (Errno::CONNREFUSED, "connection refused"),
            (Errno::CONNRESET, "connection reset"),
            (Errno::PIPE, "connection reset"),
            (Errno::MFILE, "too many open files (ulimit -n)"),
            (Errno::NFILE, "too many open files (ulimit -n)"),
            (Errno::NETUNREACH, "connection"),
        ] {
            assert_eq!(of(errno), kind);
        }
        for error in [HttpError::Closed, HttpError::CutShort] {
            assert_eq!(Failure::from(error).kind(), "connection cut short");
        }
    }

    #[test]
    fn no_error_hides_another() {
        assert!(all_of([Ok(()), Ok(())]).is_ok());
        let one = all_of([Ok(()), Err(anyhow!("why").context("what"))]).unwrap_err();
        assert_eq!(format!("{one:#}"), "what: why");
        let two = all_of([Err(anyhow!("why").context("what")), Ok(()), Err(anyhow!("also"))]).unwrap_err();
        assert_eq!(format!("{two:#}"), "what: why\nalso");
    }
}
