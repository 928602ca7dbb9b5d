//! See [`crate::fuzzing`].

use gabion_store::ChecksumAlgorithm;

use super::{checksums, copies, date, host, posts, query, xml};

pub(crate) fn documents(bytes: &[u8]) {
    let _ = xml::parse_create_bucket(bytes);
    let _ = xml::parse_delete(bytes);
    let _ = xml::parse_complete(bytes);
    posts::fuzz(bytes);
}

pub(crate) fn texts(text: &str) {
    if let Ok(query) = query::Query::parse(text) {
        for (name, _) in query.iter() {
            let _ = query.get(name);
        }
    }
    let _ = copies::parse_source(text);
    let _ = checksums::parse_md5(Some(text));
    for algorithm in ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"] {
        let algorithm: ChecksumAlgorithm = algorithm.parse().expect("it is one of S3's");
        let _ = checksums::parse(algorithm, text);
    }
    let _ = date::parse_http(text);
    let domains = host::Domains::new(&["s3.example.com".to_owned()]).expect("it is a domain");
    let _ = domains.bucket(text);
}
