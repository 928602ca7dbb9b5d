//! The little XML that a load needs: texts of flat elements, and escaping.

/// The texts of all elements of this name that have no children and no attributes, in order, still escaped.
pub(crate) fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let begin = rest.find(&open)? + open.len();
        let end = begin + rest[begin..].find(&close)?;
        let text = &rest[begin..end];
        rest = &rest[end + close.len()..];
        Some(text)
    })
}

/// A text as the content of an element.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // As they are, a parser takes line ends for others, and most of the rest for no XML.
            c if c.is_ascii_control() => out.push_str(&format!("&#{};", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// What an element's text means.
pub(crate) fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find('&') {
        out.push_str(&rest[..begin]);
        rest = &rest[begin..];
        // What is no reference stands for itself.
        let (c, len) = reference(rest).unwrap_or(('&', 1));
        out.push(c);
        rest = &rest[len..];
    }
    out + rest
}

/// The character that a text begins with a reference to, and the length of that.
fn reference(text: &str) -> Option<(char, usize)> {
    let end = text.find(';')?;
    let c = match &text[1..end] {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        name => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix('x') {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    };
    Some((c, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_a_listing() {
        let xml = "<R><Contents><Key>a&amp;b</Key><Size>1</Size></Contents><Contents><Key>c</Key></Contents>\
                   <NextContinuationToken>t==</NextContinuationToken></R>";
        assert_eq!(elements(xml, "Key").map(unescape).collect::<Vec<_>>(), ["a&b", "c"]);
        assert_eq!(elements(xml, "NextContinuationToken").next(), Some("t=="));
        assert_eq!(elements(xml, "Code").next(), None);
        assert_eq!(elements("<Key>cut", "Key").next(), None);
    }

    #[test]
    fn names_survive_xml() {
        for key in ["plain", "a&b<c>d", "&amp;", "&lt;", "\"quoted\"", "a\rb\nc\u{1}d", "&#13;", "a & b; ä"] {
            assert_eq!(unescape(&escape(key)), key);
        }
        let text = "&#13;&#xD;&#39;&apos;&#x1F980; &#xD800; &unknown; &";
        assert_eq!(unescape(text), "\r\r''🦀 &#xD800; &unknown; &");
    }
}
