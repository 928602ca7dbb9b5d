//! Documents of answers, and those that requests carry.
//!
//! s3s's writer refuses control characters, which keys may hold; AWS writes them as character references, and so does this.

use std::borrow::Cow;

use s3s::dto;

use crate::error::{S3Code, S3Error};

const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// A document being written.
pub(crate) struct Xml(String);

impl Xml {
    /// A document in S3's namespace.
    pub(crate) fn document(root: &str, content: impl FnOnce(&mut Xml)) -> String {
        let mut xml = Xml(String::with_capacity(1024));
        xml.raw(&[DECLARATION, "<", root, " xmlns=\"", NAMESPACE, "\">"]);
        content(&mut xml);
        xml.raw(&["</", root, ">"]);
        xml.0
    }

    /// A document in another namespace.
    pub(crate) fn in_namespace(root: &str, namespace: &str, content: impl FnOnce(&mut Xml)) -> String {
        let mut xml = Xml(String::with_capacity(1024));
        xml.raw(&[DECLARATION, "<", root, " xmlns=\"", namespace, "\">"]);
        content(&mut xml);
        xml.raw(&["</", root, ">"]);
        xml.0
    }

    /// Elements, of which a document is made later.
    pub(crate) fn fragment(content: impl FnOnce(&mut Xml)) -> String {
        let mut xml = Xml(String::new());
        content(&mut xml);
        xml.0
    }

    /// A document in no namespace.
    pub(crate) fn plain(root: &str, content: impl FnOnce(&mut Xml)) -> String {
        let mut xml = Xml(DECLARATION.to_owned());
        xml.element(root, content);
        xml.0
    }

    /// An element with elements in it.
    pub(crate) fn element(&mut self, name: &str, content: impl FnOnce(&mut Xml)) {
        self.raw(&["<", name, ">"]);
        content(self);
        self.raw(&["</", name, ">"]);
    }

    /// An element with a text.
    pub(crate) fn text(&mut self, name: &str, text: impl AsRef<str>) {
        self.element(name, |xml| xml.escaped(text.as_ref()));
    }

    /// An element with a value that needs no escaping.
    pub(crate) fn value(&mut self, name: &str, value: impl std::fmt::Display) {
        use std::fmt::Write;
        self.element(name, |xml| write!(xml.0, "{value}").expect("a string takes all that is written"));
    }

    /// An element with a text that is written as it is made.
    pub(crate) fn display(&mut self, name: &str, text: impl std::fmt::Display) {
        use std::fmt::Write;
        self.element(name, |xml| write!(Escaping(xml), "{text}").expect("a string takes all that is written"));
    }

    /// A text if there is one.
    pub(crate) fn optional(&mut self, name: &str, text: Option<impl AsRef<str>>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    /// A text that stands alone in its element.
    pub(crate) fn escaped(&mut self, text: &str) {
        let mut rest = text;
        while let Some((at, character)) = rest.char_indices().find(|(_, character)| is_markup(*character)) {
            self.0.push_str(&rest[..at]);
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                control => self.raw(&["&#x", &format!("{:x}", control as u32), ";"]),
            }
            rest = &rest[at + character.len_utf8()..];
        }
        self.0.push_str(rest);
    }

    /// Markup that is already escaped.
    pub(crate) fn raw(&mut self, parts: &[&str]) {
        for part in parts {
            self.0.push_str(part);
        }
    }
}

/// Whether a character must not stand in a text as it is.
fn is_markup(character: char) -> bool {
    match character {
        '&' | '<' | '>' | '"' => true,
        '\t' | '\n' => false,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => true,
        _ => false,
    }
}

/// Writes into an element.
struct Escaping<'a>(&'a mut Xml);

impl std::fmt::Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.escaped(text);
        Ok(())
    }
}

fn parse<T: for<'xml> s3s::xml::Deserialize<'xml>>(document: &[u8]) -> Result<T, S3Error> {
    let document = plain(document);
    let mut reader = s3s::xml::Deserializer::new(&document);
    let malformed = |_| S3Error::new(S3Code::MalformedXML);
    let value = T::deserialize(&mut reader).map_err(malformed)?;
    reader.expect_eof().map_err(malformed)?;
    Ok(value)
}

/// The document without what s3s does not understand: it passes over CDATA sections, and refuses references to characters that do not fit in 16 bits. Whatever is not well formed stays as it is.
fn plain(document: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(document) else { return document.into() };
    if !text.contains("<![CDATA[") && !text.contains("&#") {
        return document.into();
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(['<', '&']) {
        let (before, markup) = rest.split_at(at);
        out += before;
        rest = markup;
        if let Some(begun) = rest.strip_prefix("<!--") {
            // What has no end has none further on either: it is not looked for again.
            let Some((comment, behind)) = begun.split_once("-->") else { break };
            out.extend(["<!--", comment, "-->"]);
            rest = behind;
        } else if let Some(begun) = rest.strip_prefix("<![CDATA[") {
            let Some((section, behind)) = begun.split_once("]]>") else { break };
            let mut escaped = Xml(out);
            escaped.escaped(section);
            out = escaped.0;
            rest = behind;
        } else if let Some((character, behind)) = reference(rest) {
            out.push(character);
            rest = behind;
        } else {
            // As a whole: what begins it is ASCII.
            let (markup, behind) = rest.split_at(1);
            out += markup;
            rest = behind;
        }
    }
    out += rest;
    out.into_bytes().into()
}

/// The character that a text begins with a reference to, if it is one that does not fit in 16 bits, and what follows.
fn reference(text: &str) -> Option<(char, &str)> {
    /// Most digits, and what ends them.
    const BYTES_MAX: usize = 16;
    let text = text.strip_prefix("&#")?;
    let end = text.bytes().take(BYTES_MAX).position(|byte| byte == b';')?;
    let (number, behind) = (&text[..end], &text[end + 1..]);
    let number = match number.strip_prefix('x') {
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => u32::from_str_radix(hex, 16).ok()?,
        None if number.bytes().all(|byte| byte.is_ascii_digit()) => number.parse().ok()?,
        _ => return None,
    };
    Some((char::from_u32(number).filter(|_| number > 0xffff)?, behind))
}

/// Refuses numbers that are none, and those with fractions: s3s reads them as far as they have digits.
fn whole_numbers(document: &[u8]) -> Result<(), S3Error> {
    const NUMBERS: [&str; 8] = [
        "Days",
        "DaysAfterInitiation",
        "MaxAgeSeconds",
        "NewerNoncurrentVersions",
        "NoncurrentDays",
        "ObjectSizeGreaterThan",
        "ObjectSizeLessThan",
        "Years",
    ];
    let text = std::str::from_utf8(document).map_err(|_| S3Error::new(S3Code::MalformedXML))?;
    let is_one = |element: &str| match element.split_once('>') {
        Some((name, number)) if NUMBERS.contains(&name) => number.trim().parse::<i64>().is_ok(),
        _ => true,
    };
    if without_comments(text).split('<').all(is_one) { Ok(()) } else { Err(S3Code::MalformedXML.into()) }
}

fn without_comments(text: &str) -> Cow<'_, str> {
    let Some((before, mut rest)) = text.split_once("<!--") else { return text.into() };
    let mut kept = before.to_owned();
    while let Some((_, behind)) = rest.split_once("-->") {
        let (before, comment) = behind.split_once("<!--").unwrap_or((behind, ""));
        kept += before;
        rest = comment;
    }
    kept.into()
}

/// Reads the document of CreateBucket.
pub(crate) fn parse_create_bucket(document: &[u8]) -> Result<dto::CreateBucketConfiguration, S3Error> {
    parse(document)
}

/// Reads the document of DeleteObjects.
pub(crate) fn parse_delete(document: &[u8]) -> Result<dto::Delete, S3Error> {
    parse(document)
}

/// Reads the document of PutObjectTagging.
pub(crate) fn parse_tagging(document: &[u8]) -> Result<dto::Tagging, S3Error> {
    parse(document)
}

/// Reads the document of PutBucketCors.
pub(crate) fn parse_cors(document: &[u8]) -> Result<dto::CORSConfiguration, S3Error> {
    whole_numbers(document)?;
    parse(document)
}

/// Reads the document of PutBucketLifecycleConfiguration.
pub(crate) fn parse_lifecycle(document: &[u8]) -> Result<dto::BucketLifecycleConfiguration, S3Error> {
    whole_numbers(document)?;
    parse(document)
}

/// Reads the document of PutBucketInventoryConfiguration.
pub(crate) fn parse_inventory(document: &[u8]) -> Result<dto::InventoryConfiguration, S3Error> {
    parse(document)
}

/// Reads the document of PutBucketRequestPayment.
pub(crate) fn parse_payment(document: &[u8]) -> Result<dto::RequestPaymentConfiguration, S3Error> {
    parse(document)
}

/// Reads the document of PutBucketLogging.
pub(crate) fn parse_logging(document: &[u8]) -> Result<dto::BucketLoggingStatus, S3Error> {
    parse(document)
}

/// Reads the document of PutBucketNotificationConfiguration.
pub(crate) fn parse_notification(document: &[u8]) -> Result<dto::NotificationConfiguration, S3Error> {
    parse::<KnownNotifications>(document)?;
    parse(document)
}

/// That there is nothing in the document that s3s skips: one of which nothing is understood would be taken for an empty one, which removes what is there.
struct KnownNotifications;

impl<'xml> s3s::xml::Deserialize<'xml> for KnownNotifications {
    fn deserialize(reader: &mut s3s::xml::Deserializer<'xml>) -> s3s::xml::DeResult<Self> {
        reader.named_element("NotificationConfiguration", |reader| {
            reader.for_each_element(|reader, name| match name {
                b"TopicConfiguration" => reader.content::<dto::TopicConfiguration>().map(drop),
                b"QueueConfiguration" => reader.content::<dto::QueueConfiguration>().map(drop),
                b"CloudFunctionConfiguration" => reader.content::<dto::LambdaFunctionConfiguration>().map(drop),
                b"EventBridgeConfiguration" => reader.content::<dto::EventBridgeConfiguration>().map(drop),
                _ => Err(s3s::xml::DeError::UnexpectedTagName),
            })
        })?;
        Ok(Self)
    }
}

/// Reads the document of PutBucketWebsite.
pub(crate) fn parse_website(document: &[u8]) -> Result<dto::WebsiteConfiguration, S3Error> {
    parse(document)
}

/// A configuration as it is kept and shown: what was understood of it, and nothing else.
///
/// # Errors
/// `MalformedXML` when it holds what no document can.
pub(crate) fn canonical<T: s3s::xml::SerializeContent>(root: &str, content: &T) -> Result<String, S3Error> {
    let mut bytes = DECLARATION.as_bytes().to_vec();
    let written = s3s::xml::Serializer::new(&mut bytes).content_with_ns(root, NAMESPACE, content);
    let malformed = || S3Error::new(S3Code::MalformedXML);
    written.map_err(|_| malformed())?;
    String::from_utf8(bytes).map_err(|_| malformed())
}

/// Reads the document of PutBucketEncryption.
pub(crate) fn parse_encryption(document: &[u8]) -> Result<dto::ServerSideEncryptionConfiguration, S3Error> {
    parse(document)
}

/// Reads the document of PutBucketAcl and PutObjectAcl.
pub(crate) fn parse_acl(document: &[u8]) -> Result<dto::AccessControlPolicy, S3Error> {
    parse(document)
}

/// Reads the document of PutPublicAccessBlock.
pub(crate) fn parse_public_access_block(document: &[u8]) -> Result<dto::PublicAccessBlockConfiguration, S3Error> {
    parse(document)
}

/// Reads the document of PutBucketOwnershipControls.
pub(crate) fn parse_ownership_controls(document: &[u8]) -> Result<dto::OwnershipControls, S3Error> {
    parse(document)
}

/// Reads the document of PutBucketVersioning.
pub(crate) fn parse_versioning(document: &[u8]) -> Result<dto::VersioningConfiguration, S3Error> {
    parse(document)
}

/// Reads the document of PutObjectLockConfiguration.
pub(crate) fn parse_lock(document: &[u8]) -> Result<dto::ObjectLockConfiguration, S3Error> {
    whole_numbers(document)?;
    parse::<KnownLock>(document)?;
    parse(document)
}

/// As [`KnownNotifications`].
struct KnownLock;

impl<'xml> s3s::xml::Deserialize<'xml> for KnownLock {
    fn deserialize(reader: &mut s3s::xml::Deserializer<'xml>) -> s3s::xml::DeResult<Self> {
        reader.named_element("ObjectLockConfiguration", |reader| {
            reader.for_each_element(|reader, name| match name {
                b"ObjectLockEnabled" => reader.content::<dto::ObjectLockEnabled>().map(drop),
                b"Rule" => reader.content::<dto::ObjectLockRule>().map(drop),
                _ => Err(s3s::xml::DeError::UnexpectedTagName),
            })
        })?;
        Ok(Self)
    }
}

/// Reads the document of PutObjectRetention.
pub(crate) fn parse_retention(document: &[u8]) -> Result<dto::ObjectLockRetention, S3Error> {
    parse::<KnownRetention>(document)?;
    parse(document)
}

/// As [`KnownNotifications`].
struct KnownRetention;

impl<'xml> s3s::xml::Deserialize<'xml> for KnownRetention {
    fn deserialize(reader: &mut s3s::xml::Deserializer<'xml>) -> s3s::xml::DeResult<Self> {
        reader.named_element("Retention", |reader| {
            reader.for_each_element(|reader, name| match name {
                b"Mode" => reader.content::<dto::ObjectLockRetentionMode>().map(drop),
                b"RetainUntilDate" => reader.timestamp(dto::TimestampFormat::DateTime).map(drop),
                _ => Err(s3s::xml::DeError::UnexpectedTagName),
            })
        })?;
        Ok(Self)
    }
}

/// Reads the document of PutObjectLegalHold.
pub(crate) fn parse_legal_hold(document: &[u8]) -> Result<dto::ObjectLockLegalHold, S3Error> {
    parse(document)
}

/// Reads the document of CompleteMultipartUpload.
pub(crate) fn parse_complete(document: &[u8]) -> Result<dto::CompletedMultipartUpload, S3Error> {
    parse(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let document = Xml::plain("R", |xml| xml.text("K", "a<b>&\"'\u{1}\r\n\u{7f}ü"));
        assert_eq!(
            document,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<R><K>a&lt;b&gt;&amp;&quot;'&#x1;&#xd;\n&#x7f;ü</K></R>"
        );
    }

    #[test]
    fn documents_of_requests_are_read() {
        let complete = parse_complete(
            b"<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n <Part><PartNumber>1</PartNumber>\
              <ETag>&quot;abc&quot;</ETag></Part><Part><ETag>def</ETag><PartNumber>2</PartNumber></Part>\
              </CompleteMultipartUpload>",
        )
        .unwrap();
        let tags: Vec<_> =
            complete.parts.unwrap().into_iter().map(|part| part.e_tag.unwrap().value().to_owned()).collect();
        assert_eq!(tags, ["abc", "def"]);
        let delete = parse_delete(b"<Delete><Quiet>true</Quiet><Object><Key>a&amp;b </Key></Object></Delete>").unwrap();
        assert_eq!((delete.quiet, delete.objects[0].key.as_str()), (Some(true), "a&b "));
        let bucket = parse_create_bucket(
            b"<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>",
        );
        assert_eq!(bucket.unwrap().location_constraint.unwrap().as_str(), "eu-west-1");
    }

    #[test]
    fn all_that_xml_writes_texts_with_is_read() {
        let key = |text: &str| {
            let document = format!("<!-- <![CDATA[ &#128512; --><Delete><Object><Key>{text}</Key></Object></Delete>");
            parse_delete(document.as_bytes()).map(|delete| delete.objects[0].key.clone())
        };
        let table = [
            ("&#233;&#128512;.txt", "é😀.txt"),
            ("&#x1F600;", "😀"),
            ("<![CDATA[a<b>&amp;]]>", "a<b>&amp;"),
            ("a<![CDATA[b]]>c", "abc"),
            ("a<![CDATA[b]]><![CDATA[]]]]><![CDATA[>]]>", "ab]]>"),
            ("<![CDATA[&#128512;]]>", "&#128512;"),
        ];
        for (text, expected) in table {
            assert_eq!(key(text).unwrap(), expected, "{text}");
        }
        for text in ["&#x110000;", "&#128512", "&#+128512;", "<![CDATA[a", "&#;", "&#99999999999999999999;"] {
            assert!(key(text).is_err(), "{text}");
        }
        // None of them is looked through to its end again and again.
        for begun in ["<!--", "<![CDATA[", "&#", "&#x"] {
            assert!(key(&begun.repeat((4 << 20) / begun.len())).is_err(), "{begun}");
        }
        let rules = parse_lifecycle(
            b"<LifecycleConfiguration><Rule><Filter><Prefix><![CDATA[tmp/]]></Prefix></Filter><Status>Enabled</Status>\
              <Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>",
        );
        let filter = rules.unwrap().rules.into_iter().next().unwrap().filter.unwrap();
        assert_eq!(filter.prefix.as_deref(), Some("tmp/"));
    }

    #[test]
    fn documents_that_are_none_are_refused() {
        for document in
            ["", "<", "<Delete>", "<Delete></Delete>", "<Other/>", "<Delete><Object></Object></Delete>", "\u{1}"]
        {
            assert_eq!(parse_delete(document.as_bytes()).unwrap_err().code, S3Code::MalformedXML, "{document}");
        }
        let bomb = "<!DOCTYPE d [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;\">]><Delete><Object><Key>&b;</Key></Object></Delete>";
        assert!(parse_delete(bomb.as_bytes()).is_err());
    }
}
