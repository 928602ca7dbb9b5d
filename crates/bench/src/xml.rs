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
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// What an element's text means.
pub(crate) fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#34;", "\"")
        .replace("&apos;", "'")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
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
        for key in ["plain", "a&b<c>d", "&amp;", "&lt;", "\"quoted\""] {
            assert_eq!(unescape(&escape(key)), key);
        }
    }
}
