//! What `gabion config check` prints: every setting, its value, where that came from, what it means.

use std::fmt::Write;

use super::layers::{Given, Resolved};
use super::settings::SETTINGS;

/// The report, one paragraph per setting.
pub(crate) fn report(resolved: &Resolved) -> String {
    let mut out = String::new();
    for setting in SETTINGS {
        let given = resolved.given(setting.key);
        let value = shown(given, setting.list);
        let wrong = (setting.check)(&given.texts).err();
        // Writing to a String can not fail.
        let _ = writeln!(out, "{} = {value}", setting.key);
        let _ = writeln!(out, "    from: {}", given.source);
        let _ = writeln!(out, "    type: {}{}", setting.unit, if setting.list { "; any number" } else { "" });
        let _ = writeln!(out, "    {}", setting.meaning);
        if let Some(wrong) = wrong {
            let _ = writeln!(out, "    ERROR: {wrong}");
        }
        out.push('\n');
    }
    out
}

fn shown(given: &Given, list: bool) -> String {
    match given.texts.as_slice() {
        [] if list => "[]".to_owned(),
        [] => "(none)".to_owned(),
        [text] if !list => format!("{text:?}"),
        texts => format!("{texts:?}"),
    }
}
