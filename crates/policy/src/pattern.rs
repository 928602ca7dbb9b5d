//! Texts of policies: with wildcards (`*`, `?`) and variables (`${aws:username}`, `${aws:username, 'nobody'}`, `${*}`).
//!
//! What a variable stands for is never a wildcard: a user who calls himself `*` is not everybody.

use crate::error::{PolicyError, shown};
use crate::request::Context;

/// Which marks a text may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) wildcards: bool,
    pub(crate) variables: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// `*`: any characters.
    Any,
    /// `?`: one character.
    One,
    Variable {
        key: String,
        default: Option<String>,
    },
}

/// What a text must look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Piece>);

/// Steps of looking a key up.
pub(crate) const LOOKUP_STEPS: usize = 16;
/// Bytes that are compared in one step.
const STEP_BYTES: usize = 16;
/// Longest text that variables may be put in.
const EXPANDED_BYTES_MAX: usize = 64 * 1024;

/// The steps of looking at so many bytes.
pub(crate) const fn paid_for(bytes: usize) -> usize {
    1 + bytes / STEP_BYTES
}

/// A piece of a pattern, with what its variable stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    Any,
    One,
}

impl Pattern {
    /// # Errors
    /// When a variable does not end, or is none.
    pub(crate) fn parse(text: &str, marks: Marks) -> Result<Self, PolicyError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            if marks.variables && rest.starts_with("${") {
                let (inside, after) = variable_at(rest).ok_or_else(|| bad_variable(text))?;
                pieces.push(variable(inside).ok_or_else(|| bad_variable(text))?);
                rest = after;
                continue;
            }
            match character {
                '*' if marks.wildcards => {
                    // One after another is one.
                    if pieces.last() != Some(&Piece::Any) {
                        pieces.push(Piece::Any);
                    }
                }
                '?' if marks.wildcards => pieces.push(Piece::One),
                character => push_text(&mut pieces, character),
            }
            rest = &rest[character.len_utf8()..];
        }
        Ok(Self(pieces))
    }

    pub(crate) fn from_pieces(pieces: Vec<Piece>) -> Self {
        Self(pieces)
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Whether it stands for one text alone, whatever is asked.
    pub(crate) fn is_fixed(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// Whether one of its variables has a key that begins so, in lower case.
    pub(crate) fn mentions(&self, prefix: &str) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Variable { key, .. } if key.starts_with(prefix)))
    }

    /// Whether it matches any text.
    pub(crate) fn is_any(&self) -> bool {
        self.0 == [Piece::Any]
    }

    /// Whether a text looks like it; nothing when it has a variable that the request gives no value, or when that takes too much.
    pub(crate) fn matches(&self, text: &str, context: &Context) -> Option<bool> {
        context.spend(1 + self.0.len())?;
        if let [Piece::Text(fixed)] = &self.0[..] {
            return Some(fixed == text);
        }
        let part = |piece| {
            Some(match piece {
                &Piece::Any => Part::Any,
                &Piece::One => Part::One,
                Piece::Text(text) => Part::Text(text),
                Piece::Variable { key, default } => Part::Text(value_of(key, default.as_deref(), context)?),
            })
        };
        matches(&self.0.iter().map(part).collect::<Option<Vec<_>>>()?, text, context)
    }

    /// The text, its wildcards as they are written; nothing when it has a variable that the request gives no value, or when it gets too long.
    pub(crate) fn expanded(&self, context: &Context) -> Option<String> {
        let mut expanded = String::new();
        for piece in &self.0 {
            let piece = match piece {
                Piece::Text(text) => text,
                Piece::Any => "*",
                Piece::One => "?",
                Piece::Variable { key, default } => value_of(key, default.as_deref(), context)?,
            };
            let is_too_long = expanded.len() + piece.len() > EXPANDED_BYTES_MAX;
            context.spend(if is_too_long { usize::MAX } else { piece.len() })?;
            expanded.push_str(piece);
        }
        Some(expanded)
    }
}

fn value_of<'a>(key: &str, default: Option<&'a str>, context: &'a Context) -> Option<&'a str> {
    context.spend(LOOKUP_STEPS)?;
    match context.get(key) {
        Some([value]) => Some(value),
        // Of several values there is none that it stands for.
        _ => default,
    }
}

fn bad_variable(text: &str) -> PolicyError {
    PolicyError::new(format!("Invalid policy variable in: {}", shown(text)))
}

fn push_text(pieces: &mut Vec<Piece>, character: char) {
    if let Some(Piece::Text(text)) = pieces.last_mut() {
        text.push(character);
    } else {
        pieces.push(Piece::Text(character.into()));
    }
}

/// What stands between the braces at the beginning of a text, and what follows. A default may hold braces.
fn variable_at(text: &str) -> Option<(&str, &str)> {
    let inside = text.strip_prefix("${")?;
    let mut quoted = false;
    for (at, character) in inside.char_indices() {
        match character {
            '\'' => quoted = !quoted,
            '}' if !quoted => return Some((&inside[..at], &inside[at + 1..])),
            _ => {}
        }
    }
    None
}

fn variable(inside: &str) -> Option<Piece> {
    if matches!(inside, "*" | "?" | "$") {
        return Some(Piece::Text(inside.to_owned()));
    }
    let (key, default) = match inside.split_once(',') {
        None => (inside, None),
        Some((key, default)) => (key, Some(default.trim().strip_prefix('\'')?.strip_suffix('\'')?.to_owned())),
    };
    let key = key.trim();
    let is_key = !key.is_empty() && !key.contains(['{', '}', '$', '*', '?', '\'']);
    is_key.then(|| Piece::Variable { key: key.to_lowercase(), default })
}

/// Whether a text matches; nothing when that takes too much. What stands between two `*` is looked for from left to right, and taken where it is first
/// found: no later place would leave more to what follows.
fn matches(parts: &[Part<'_>], text: &str, context: &Context) -> Option<bool> {
    let mut runs = parts.split(|part| *part == Part::Any).peekable();
    let first = runs.next().unwrap_or_default();
    let Some(mut rest) = behind(first, text, context)? else { return Some(false) };
    if runs.peek().is_none() {
        return Some(rest.is_empty());
    }
    while let Some(run) = runs.next() {
        if runs.peek().is_none() {
            return ends_with(run, rest, context);
        }
        match behind_first(run, rest, context)? {
            Some(behind) => rest = behind,
            None => return Some(false),
        }
    }
    Some(true)
}

/// What of a text is behind a run of parts without `*`, if it begins with one; the outer nothing says that this takes too much.
fn behind<'a>(run: &[Part<'_>], text: &'a str, context: &Context) -> Option<Option<&'a str>> {
    let mut rest = text;
    for part in run {
        let behind = match part {
            Part::Text(wanted) => {
                context.spend(paid_for(wanted.len().min(rest.len())))?;
                rest.strip_prefix(wanted)
            }
            Part::One | Part::Any => {
                context.spend(1)?;
                let mut chars = rest.chars();
                chars.next().map(|_| chars.as_str())
            }
        };
        match behind {
            Some(behind) => rest = behind,
            None => return Some(None),
        }
    }
    Some(Some(rest))
}

/// What is behind the first place in a text where a run stands.
fn behind_first<'a>(run: &[Part<'_>], text: &'a str, context: &Context) -> Option<Option<&'a str>> {
    let mut rest = text;
    loop {
        if let Some(Part::Text(wanted)) = run.first() {
            // It is looked for in time that both lengths bound.
            let found = rest.find(wanted);
            context.spend(paid_for(wanted.len() + found.unwrap_or(rest.len())))?;
            let Some(at) = found else { return Some(None) };
            rest = &rest[at..];
        }
        if let Some(behind) = behind(run, rest, context)? {
            return Some(Some(behind));
        }
        let mut chars = rest.chars();
        if chars.next().is_none() {
            return Some(None);
        }
        rest = chars.as_str();
    }
}

/// Whether a text ends with a run.
fn ends_with(run: &[Part<'_>], text: &str, context: &Context) -> Option<bool> {
    let mut rest = text;
    for part in run.iter().rev() {
        let before = match part {
            Part::Text(wanted) => {
                context.spend(paid_for(wanted.len().min(rest.len())))?;
                rest.strip_suffix(wanted)
            }
            Part::One | Part::Any => {
                context.spend(1)?;
                let mut chars = rest.chars();
                chars.next_back().map(|_| chars.as_str())
            }
        };
        match before {
            Some(before) => rest = before,
            None => return Some(false),
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: Marks = Marks { wildcards: true, variables: true };

    fn context() -> Context {
        let mut context = Context::default();
        context.add("aws:username", "jo*n");
        context.add("two", "a");
        context.add("two", "b");
        context
    }

    fn is_match(pattern: &str, text: &str) -> Option<bool> {
        Pattern::parse(pattern, ALL).unwrap().matches(text, &context())
    }

    #[test]
    fn wildcards_and_variables_match() {
        let table = [
            ("", "", Some(true)),
            ("", "a", Some(false)),
            ("*", "", Some(true)),
            ("**", "abc", Some(true)),
            ("a*c", "abbc", Some(true)),
            ("a*c", "abbcd", Some(false)),
            ("a*b*c", "a-b-b-c", Some(true)),
            ("?", "ü", Some(true)),
            ("?", "", Some(false)),
            ("a?c", "ac", Some(false)),
            ("*.jpg", "x.jpg.jpg", Some(true)),
            ("home/${aws:username}/*", "home/jo*n/x", Some(true)),
            ("home/${aws:username}/*", "home/joxn/x", Some(false)),
            ("home/${AWS:UserName}/*", "home/jo*n/", Some(true)),
            ("${aws:userid}", "x", None),
            ("${aws:userid, 'nobody'}", "nobody", Some(true)),
            ("${aws:userid,'a}b'}", "a}b", Some(true)),
            ("${two}", "a", None),
            ("a${*}c", "a*c", Some(true)),
            ("a${*}c", "abc", Some(false)),
            ("a${?}${$}", "a?$", Some(true)),
            ("$a{b}", "$a{b}", Some(true)),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(is_match(pattern, text), expected, "{pattern} {text}");
        }
        for bad in ["${", "${a", "${}", "${a,b}", "${a,'b}", "${${a}}", "x${a,'"] {
            assert!(Pattern::parse(bad, ALL).is_err(), "{bad}");
        }
        let literal = Pattern::parse("${a*", Marks { wildcards: false, variables: false }).unwrap();
        assert!(literal.is_fixed() && literal.matches("${a*", &context()) == Some(true));
    }

    #[test]
    fn many_wildcards_do_not_take_exponential_time() {
        let pattern = "*a".repeat(2000);
        assert_eq!(is_match(&pattern, &"a".repeat(1999)), Some(false));
        assert_eq!(is_match(&format!("{pattern}*b"), &"a".repeat(4000)), Some(false));
    }

    #[test]
    fn too_much_work_gives_no_answer() {
        let long = "a".repeat(60_000);
        let gives_none = |give: &dyn Fn(&Context) -> bool| {
            let mut context = Context::default();
            context.add("aws:referer", &*long);
            assert!(give(&context) && context.is_spent());
        };
        let parse = |text: &str| Pattern::parse(text, ALL).unwrap();
        gives_none(&|context| parse("*${aws:referer}?b*c").matches(&long.repeat(2), context).is_none());
        gives_none(&|context| parse(&"${aws:referer}".repeat(1000)).expanded(context).is_none());
        gives_none(&|context| {
            let pattern = parse(&"${aws:userid,''}".repeat(1000));
            (0..3000).any(|_| pattern.matches("a", context).is_none())
        });
    }

    /// What wildcards mean, in two lines.
    fn oracle(pattern: &[char], text: &[char]) -> bool {
        match (pattern.first(), text.first()) {
            (None, first) => first.is_none(),
            (Some('*'), first) => oracle(&pattern[1..], text) || first.is_some() && oracle(pattern, &text[1..]),
            (Some(wanted), Some(got)) => (*wanted == '?' || wanted == got) && oracle(&pattern[1..], &text[1..]),
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn wildcards_match_what_they_mean(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(is_match(&pattern, &text), Some(oracle(&chars(&pattern), &chars(&text))));
        }

        #[test]
        fn no_text_makes_a_pattern_panic(pattern in ".{0,40}", text in ".{0,40}") {
            if let Ok(pattern) = Pattern::parse(&pattern, ALL) {
                let _ = (pattern.matches(&text, &context()), pattern.expanded(&context()));
            }
        }
    }
}
