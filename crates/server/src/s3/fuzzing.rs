//! See [`crate::fuzzing`].

use gabion_store::ChecksumAlgorithm;

use super::cors::CorsRules;
use super::logging::Logging;
use super::website::Website;
use super::{checksums, copies, date, host, posts, query, xml};
use crate::error::{S3Code, S3Error};
use crate::inventory::Inventory;
use crate::lifecycle::LifecycleRules;
use crate::notifications::NotificationRules;

pub(crate) fn documents(bytes: &[u8]) {
    let _ = xml::parse_create_bucket(bytes);
    let _ = xml::parse_delete(bytes);
    let _ = xml::parse_complete(bytes);
    posts::fuzz(bytes);
    kept(bytes, CorsRules::parse);
    kept(bytes, LifecycleRules::parse);
    kept(bytes, Inventory::parse);
    kept(bytes, Website::parse);
    kept(bytes, NotificationRules::parse);
    kept(bytes, |document| {
        Logging::parse(document).map(|found| found.ok_or(S3Code::MalformedXML))?.map_err(Into::into)
    });
}

/// What is kept of a document says the same, and is kept as it is.
fn kept<T: PartialEq + std::fmt::Debug>(bytes: &[u8], parse: impl Fn(&[u8]) -> Result<(T, String), S3Error>) {
    if let Ok((found, kept)) = parse(bytes) {
        let again = parse(kept.as_bytes()).expect("what was kept can be read");
        assert_eq!(again, (found, kept));
    }
}

pub(crate) fn texts(text: &str) {
    if let Ok(query) = query::Query::parse(text) {
        for (name, _) in query.iter() {
            let _ = query.get(name);
        }
    }
    let _ = copies::parse_source(text);
    let _ = checksums::parse_md5(Some(text));
    for algorithm in
        ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256", "SHA512", "MD5", "XXHASH64", "XXHASH3", "XXHASH128"]
    {
        let algorithm: ChecksumAlgorithm = algorithm.parse().expect("it is one of S3's");
        let _ = checksums::parse(algorithm, text);
    }
    let _ = date::parse_http(text);
    let domains = host::Domains::new(&["s3.example.com".to_owned()]).expect("it is a domain");
    let _ = domains.bucket(text);
}
