//! Conditional headers.

use std::borrow::Cow;

use gabion_store::{EtagMatch, ReadConditions, WriteConditions};

use super::call::Call;
use super::date;
use crate::error::S3Error;
use crate::ops::Ops;

/// `If-Match`, `If-None-Match`, `If-Modified-Since`, `If-Unmodified-Since`, or those of a copy's source when `prefix` is
/// `x-amz-copy-source-`. Dates that are none are ignored, as HTTP has it; so is, as on AWS, a modification since a time that is still to come.
pub(super) fn read(ops: &Ops, call: &Call, prefix: &str) -> ReadConditions {
    if !call.has.may_have(&prefixed(prefix, "if-")) {
        return ReadConditions::default();
    }
    let list = |name| call.list(&prefixed(prefix, name));
    let tags = |name| list(name).map(|list| EtagMatch::parse(&list));
    let date = |name| list(name).and_then(|text| date::parse_http(text.trim()));
    ReadConditions {
        if_match: tags("if-match"),
        if_none_match: tags("if-none-match"),
        if_modified_since_ms: date("if-modified-since").filter(|since| *since <= ops.clock.now_ms()),
        if_unmodified_since_ms: date("if-unmodified-since"),
    }
}

/// `If-Match` and `If-None-Match` of a write. AWS knows only `*` of the latter; tags mean here what they mean in HTTP.
///
/// # Errors
/// `NotImplemented` for conditions on dates, `InvalidArgument` for a list without tags.
pub(super) fn write(call: &Call) -> Result<WriteConditions, S3Error> {
    refuse(call, &["if-modified-since", "if-unmodified-since"])?;
    let (if_match, if_none_match) = both_tags(call, "")?;
    Ok(WriteConditions { if_none_match, if_match })
}

/// Refuses conditions that an operation does not know: who sends one wants nothing to be done unless it holds.
///
/// # Errors
/// `NotImplemented`.
pub(super) fn refuse(call: &Call, names: &[&str]) -> Result<(), S3Error> {
    match names.iter().find(|name| call.list(name).is_some()) {
        Some(name) => Err(S3Error::unsupported(name)),
        None => Ok(()),
    }
}

/// Those of a renaming, of its source or its target: it replaces and takes away.
///
/// # Errors
/// `InvalidArgument` for a list without tags.
pub(super) fn of_rename(ops: &Ops, call: &Call, prefix: &str) -> Result<ReadConditions, S3Error> {
    let (if_match, if_none_match) = both_tags(call, prefix)?;
    Ok(ReadConditions { if_match, if_none_match, ..read(ops, call, prefix) })
}

/// The name of a condition, which is the header's own where there is no prefix.
fn prefixed(prefix: &str, name: &'static str) -> Cow<'static, str> {
    if prefix.is_empty() { name.into() } else { format!("{prefix}{name}").into() }
}

/// Those of `If-Match` and `If-None-Match`; a `*` anywhere in the latter is one.
fn both_tags(call: &Call, prefix: &str) -> Result<(Option<EtagMatch>, Option<EtagMatch>), S3Error> {
    let if_none_match = tags(call, &prefixed(prefix, "if-none-match"))?;
    let if_none_match = if_none_match.map(|tags| if tags.names_any() { EtagMatch::Any } else { tags });
    Ok((tags(call, &prefixed(prefix, "if-match"))?, if_none_match))
}

/// The tags that a condition of a write or a deletion names, a header whose name is in lower case: nobody overwrites by a slip. No tag has other characters than those of ASCII.
///
/// # Errors
/// `InvalidArgument` for a list without tags.
pub(super) fn tags(call: &Call, header: &str) -> Result<Option<EtagMatch>, S3Error> {
    let Some(list) = call.list_or_empty(header) else { return Ok(None) };
    let refused = || {
        let shown = header.replace("if-none-match", "If-None-Match").replace("if-match", "If-Match");
        S3Error::argument(&shown, &list, "The header must name an entity tag, or any by *.")
    };
    match EtagMatch::parse(&list) {
        _ if !list.is_ascii() => Err(refused()),
        EtagMatch::OneOf(tags) if tags.is_empty() => Err(refused()),
        tags => Ok(Some(tags)),
    }
}
