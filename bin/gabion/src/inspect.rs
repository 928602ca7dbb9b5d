//! `gabion inspect`: what lies on disk, for people and as JSON. Reads only; repairs nothing.

mod layout;
mod object;

use crate::cli::Inspect;
use crate::exit::Failure;
use crate::output;

/// Shows it.
///
/// # Errors
/// When it is not there or can not be read.
pub(crate) fn run(what: Inspect) -> Result<(), Failure> {
    match what {
        Inspect::Target { target, output } => layout::target(target, output.json),
        Inspect::Segment { segment, targets, output } => layout::segment(&segment, &targets, output.json),
        Inspect::Stripe { segment, stripe, targets, output } => layout::stripe(&segment, stripe, &targets, output.json),
        Inspect::Object { bucket, key, state, output } => object::run(&bucket, &key, &state, output.json),
    }
}

/// Prints a report in the wanted form.
fn show<R: serde::Serialize>(report: &R, json: bool, text: impl FnOnce(&R) -> String) -> Result<(), Failure> {
    if json { output::print_json(report) } else { output::print(&text(report)) }
}
