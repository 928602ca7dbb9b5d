//! Texts of policies: with wildcards (`*`, `?`) and variables (`${aws:username}`, `${aws:username, 'nobody'}`, `${*}`).
//!
//! What a variable stands for is never a wildcard: a user who calls himself `*` is not everybody.

use crate::error::{PolicyError, shown};
use crate::question::Question;

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

/// A piece of a pattern that is about one character, or about any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Atom {
    Char(char),
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
    pub(crate) fn matches(&self, text: &str, question: &Question<'_>) -> Option<bool> {
        if let [Piece::Text(fixed)] = &self.0[..] {
            return Some(fixed == text);
        }
        let mut atoms = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => atoms.extend(text.chars().map(Atom::Char)),
                Piece::Any => atoms.push(Atom::Any),
                Piece::One => atoms.push(Atom::One),
                Piece::Variable { key, default } => {
                    atoms.extend(value_of(key, default.as_deref(), question)?.chars().map(Atom::Char));
                }
            }
        }
        matches(&atoms, text, question)
    }

    /// The text, its wildcards as they are written; nothing when it has a variable that the request gives no value, or when it gets too long.
    pub(crate) fn expanded(&self, question: &Question<'_>) -> Option<String> {
        let mut expanded = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => expanded.push_str(text),
                Piece::Any => expanded.push('*'),
                Piece::One => expanded.push('?'),
                Piece::Variable { key, default } => expanded.push_str(value_of(key, default.as_deref(), question)?),
            }
        }
        Some(expanded)
    }
}

/// What a variable stands for, which the caller is about to copy.
fn value_of<'a>(key: &str, default: Option<&'a str>, question: &Question<'a>) -> Option<&'a str> {
    let value = match question.context.get(key) {
        Some([value]) => Some(value.as_str()),
        // Of several values there is none that it stands for.
        _ => default,
    };
    value.filter(|value| question.spend(value.len()).is_some())
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

/// Whether a text matches. What follows the last `*` is tried at one place after the other; an earlier `*` never has to take more than it
/// took, so that the steps are at most the product of the lengths; nothing when they are too many.
fn matches(pattern: &[Atom], text: &str, question: &Question<'_>) -> Option<bool> {
    let (mut pattern_at, mut rest) = (0, text.chars());
    // Behind the last `*`, and what was left of the text when it took nothing more.
    let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
    loop {
        question.spend(1)?;
        let mut ahead = rest.clone();
        match (pattern.get(pattern_at), ahead.next()) {
            (Some(Atom::Any), _) => {
                pattern_at += 1;
                if pattern_at == pattern.len() {
                    return Some(true);
                }
                retry = Some((pattern_at, rest.clone()));
                continue;
            }
            (None, None) => return Some(true),
            (Some(Atom::Char(wanted)), Some(character)) if *wanted == character => {
                (pattern_at, rest) = (pattern_at + 1, ahead);
                continue;
            }
            (Some(Atom::One), Some(_)) => {
                (pattern_at, rest) = (pattern_at + 1, ahead);
                continue;
            }
            // No place is left in the text.
            (Some(_), None) => return Some(false),
            _ => {}
        }
        let Some((after, from)) = &mut retry else { return Some(false) };
        if from.next().is_none() {
            return Some(false);
        }
        (pattern_at, rest) = (*after, from.clone());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request::Context;

    const ALL: Marks = Marks { wildcards: true, variables: true };

    fn context() -> Context {
        let mut context = Context::default();
        context.add("aws:username", "jo*n");
        context.add("two", "a");
        context.add("two", "b");
        context
    }

    fn is_match(pattern: &str, text: &str) -> Option<bool> {
        Pattern::parse(pattern, ALL).unwrap().matches(text, &Question::new(&context()))
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
        assert!(literal.is_fixed() && literal.matches("${a*", &Question::new(&context())) == Some(true));
    }

    #[test]
    fn many_wildcards_do_not_take_exponential_time() {
        let pattern = "*a".repeat(2000);
        assert_eq!(is_match(&pattern, &"a".repeat(1999)), Some(false));
        assert_eq!(is_match(&format!("{pattern}*b"), &"a".repeat(4000)), Some(false));
    }

    #[test]
    fn too_much_work_gives_no_answer() {
        let mut context = Context::default();
        context.add("aws:referer", "a".repeat(60_000));
        let (product, sum) = ("*${aws:referer}b*c", "${aws:referer}".repeat(1000));
        for pattern in [product, &sum] {
            let (pattern, question) = (Pattern::parse(pattern, ALL).unwrap(), Question::new(&context));
            assert_eq!(pattern.matches(&"a".repeat(120_000), &question), None);
            assert!(question.is_spent());
        }
        let question = Question::new(&context);
        assert!(Pattern::parse(&sum, ALL).unwrap().expanded(&question).is_none() && question.is_spent());
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
                let _ = (pattern.matches(&text, &Question::new(&context())), pattern.expanded(&Question::new(&context())));
            }
        }
    }
}
