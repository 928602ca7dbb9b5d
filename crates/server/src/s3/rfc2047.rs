//! Text that a header can not carry as it is: encoded words, both ways.
//!
//! Source: RFC 2047; AWS, "Working with object metadata": user metadata is decoded before it is stored, and encoded before it is returned.
//! Which of the two encodings is taken follows what AWS returns: that for text which is mostly ASCII, or that for bytes.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

const BEGIN: &str = "=?";
const END: &str = "?=";

/// As a header can carry it.
pub(super) fn encoded(value: &str) -> Cow<'_, str> {
    let is_plain = |c: &char| *c == '\t' || (' '..='~').contains(c);
    let plain = value.chars().filter(is_plain).count();
    let others = value.chars().count() - plain;
    match others {
        0 => value.into(),
        _ if plain > others => format!("{BEGIN}UTF-8?Q?{}{END}", quoted(value)).into(),
        _ => format!("{BEGIN}UTF-8?B?{}{END}", BASE64_STANDARD.encode(value)).into(),
    }
}

fn quoted(value: &str) -> String {
    let mut text = String::with_capacity(value.len() * 2);
    for byte in value.bytes() {
        match byte {
            b' ' => text.push('_'),
            b'=' | b'_' | b'?' => text.push_str(&format!("={byte:02X}")),
            b'!'..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("={byte:02X}")),
        }
    }
    text
}

/// What encoded words mean; what is none of them stays as it is. White space between two of them is no part of the text.
pub(super) fn decoded(value: &str) -> Cow<'_, str> {
    if !value.contains(BEGIN) {
        return value.into();
    }
    let mut text = String::with_capacity(value.len());
    let (mut gap, mut after_word) = (String::new(), false);
    for token in value.split_inclusive([' ', '\t']) {
        let word = token.trim_end_matches([' ', '\t']);
        let space = &token[word.len()..];
        if word.is_empty() {
            gap.push_str(space);
            continue;
        }
        let decoded = decoded_word(word);
        if !(after_word && decoded.is_some()) {
            text.push_str(&gap);
        }
        after_word = decoded.is_some();
        text.push_str(decoded.as_deref().unwrap_or(word));
        gap = space.to_owned();
    }
    text.push_str(&gap);
    text.into()
}

/// The text of an encoded word, if it is one that can be read.
fn decoded_word(word: &str) -> Option<String> {
    let inner = word.strip_prefix(BEGIN)?.strip_suffix(END)?;
    let mut fields = inner.splitn(3, '?');
    let (charset, encoding, text) = (fields.next()?, fields.next()?, fields.next()?);
    let bytes = match encoding {
        "B" | "b" => BASE64_STANDARD.decode(text).ok()?,
        "Q" | "q" => unquoted(text)?,
        _ => return None,
    };
    match charset.to_ascii_lowercase().as_str() {
        "utf-8" | "us-ascii" => String::from_utf8(bytes).ok(),
        "iso-8859-1" => Some(bytes.into_iter().map(char::from).collect()),
        _ => None,
    }
}

fn unquoted(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text.bytes();
    while let Some(byte) = left.next() {
        bytes.push(match byte {
            b'?' => return None,
            b'_' => b' ',
            b'=' => {
                let digits = [left.next()?, left.next()?];
                // A sign is no digit, though it is read with them.
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_encoded_as_on_aws() {
        let table = [
            ("plain ~!\"#=?_", "plain ~!\"#=?_"),
            ("tab\there", "tab\there"),
            ("test_—_file%E2%80%94_é_2?.pdf", "=?UTF-8?Q?test=5F=E2=80=94=5Ffile%E2%80%94=5F=C3=A9=5F2=3F.pdf?="),
            ("ÄMÄZÕÑ S3", "=?UTF-8?Q?=C3=84M=C3=84Z=C3=95=C3=91_S3?="),
            ("\u{0}\u{1}\u{2}\u{3}", "=?UTF-8?B?AAECAw==?="),
            ("���", "=?UTF-8?B?77+977+977+9?="),
            ("aé", "=?UTF-8?B?YcOp?="),
            ("two\nlines", "=?UTF-8?Q?two=0Alines?="),
        ];
        for (text, expected) in table {
            assert_eq!(encoded(text), expected);
            assert_eq!(decoded(&encoded(text)), text);
        }
    }

    #[test]
    fn words_are_decoded_and_all_else_stays() {
        let table = [
            ("=?UTF-8?Q?actually-ascii?=", "actually-ascii"),
            ("=?UTF-8?B?YWJj?=", "abc"),
            ("=?utf-8?q?a=20b?= =?utf-8?b?Yw==?=", "a bc"),
            ("see =?UTF-8?Q?a?=  b", "see a  b"),
            ("=?ISO-8859-1?Q?=E9?=", "é"),
            ("=?UTF-8?B?=GGG?=", "=?UTF-8?B?=GGG?="),
            ("=?UTF-8?Q?=E9?=", "=?UTF-8?Q?=E9?="),
            ("=?UTF-8?Q?=4?=", "=?UTF-8?Q?=4?="),
            ("=?UTF-8?Q?=+1?=", "=?UTF-8?Q?=+1?="),
            ("=?UTF-8?Q?a?b?=", "=?UTF-8?Q?a?b?="),
            ("=?KOI8-R?Q?a?=", "=?KOI8-R?Q?a?="),
            ("=?UTF-8?X?a?=", "=?UTF-8?X?a?="),
            ("x=?UTF-8?Q?a?=", "x=?UTF-8?Q?a?="),
            ("=?", "=?"),
            ("=?=", "=?="),
            ("no words", "no words"),
        ];
        for (text, expected) in table {
            assert_eq!(decoded(text), expected, "{text}");
        }
    }
}
