//! What the program says on standard output. A reader that goes away (`gabion … | head`) is no error.

use std::io::{self, ErrorKind, Write};

use crate::exit::Failure;

/// Prints a text as it is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::failed(format!("standard output can not be written: {error}"))),
    }
}

/// Prints a value as indented JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::failed(format!("what was found can not be written as JSON: {error}")))?;
    print(&(text + "\n"))
}

/// Says on standard error why the program ends.
pub(crate) fn complain(failure: &Failure) {
    // There is nobody left to tell when this fails.
    let _ = writeln!(io::stderr(), "gabion: {failure}");
}
