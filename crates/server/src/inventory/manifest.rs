//! What a report is made up of, and what its objects are called.

use serde::Serialize;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::config::Inventory;

/// A report that is being made.
pub(super) struct Report<'a> {
    pub(super) source: &'a str,
    pub(super) inventory: &'a Inventory,
    /// When it was begun.
    pub(super) begun_ms: u64,
    pub(super) files: Vec<File>,
}

/// A data file of a report.
#[derive(Serialize)]
pub(super) struct File {
    pub(super) key: String,
    pub(super) size: u64,
    #[serde(rename = "MD5checksum")]
    pub(super) md5: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    source_bucket: &'a str,
    destination_bucket: String,
    version: &'static str,
    creation_timestamp: String,
    file_format: &'static str,
    file_schema: String,
    files: &'a [File],
}

impl Report<'_> {
    /// What the keys of all objects begin with.
    fn place(&self) -> String {
        format!("{}{}", self.inventory.destination.place(self.source), self.inventory.id)
    }

    /// The key of the next data file: when a report is made again after it was cut off, the files have the same names.
    pub(super) fn next_key(&self) -> String {
        let digest = Sha256::new()
            .chain_update(self.source)
            .chain_update([0])
            .chain_update(&self.inventory.id)
            .chain_update(self.begun_ms.to_be_bytes())
            .chain_update((self.files.len() as u64).to_be_bytes())
            .finalize();
        let mut uuid: [u8; 16] = std::array::from_fn(|at| digest[at]);
        // Version 8 of RFC 9562: made of what only its maker knows.
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let hex = hex::encode(uuid);
        let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
        format!("{}/data/{uuid}.{}", self.place(), self.inventory.destination.format.extension())
    }

    /// The key of the manifest, without its ending.
    pub(super) fn manifest_key(&self) -> String {
        format!("{}/{}/manifest", self.place(), stamp(self.begun_ms, 'T', "Z"))
    }

    pub(super) fn manifest(&self) -> String {
        let (destination, columns) = (&self.inventory.destination, &self.inventory.columns);
        let manifest = Manifest {
            source_bucket: self.source,
            destination_bucket: format!("arn:aws:s3:::{}", destination.bucket),
            version: "2016-11-30",
            creation_timestamp: self.begun_ms.to_string(),
            file_format: destination.format.name(),
            file_schema: destination.format.schema(columns),
            files: &self.files,
        };
        serde_json::to_string_pretty(&manifest).expect("it has only texts and numbers")
    }

    /// The key of the list for Apache Hive.
    pub(super) fn symlink_key(&self) -> String {
        format!("{}/hive/dt={}/symlink.txt", self.place(), stamp(self.begun_ms, '-', ""))
    }

    /// The list for Apache Hive: a line per data file.
    pub(super) fn symlink(&self) -> String {
        let bucket = &self.inventory.destination.bucket;
        self.files.iter().map(|file| format!("s3://{bucket}/{}\n", file.key)).collect()
    }
}

/// `2016-11-06T21-32Z`.
fn stamp(unix_ms: u64, between: char, end: &str) -> String {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    format!("{year:04}-{month:02}-{day:02}{between}{:02}-{:02}{end}", at.hour(), at.minute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_called_as_on_aws() {
        let document = "<InventoryConfiguration><Id>all</Id><IsEnabled>true</IsEnabled><Destination><S3BucketDestination>\
             <Format>Parquet</Format><Bucket>arn:aws:s3:::reports</Bucket><Prefix>PREFIX</Prefix></S3BucketDestination>\
             </Destination><Schedule><Frequency>Daily</Frequency></Schedule><IncludedObjectVersions>Current\
             </IncludedObjectVersions></InventoryConfiguration>";
        for (prefix, place) in [("in", "in/src/all"), ("in/", "in/src/all"), ("", "src/all")] {
            let (inventory, _) = Inventory::parse(document.replace("PREFIX", prefix).as_bytes()).unwrap();
            // 2016-11-06 21:32:05.
            let begun_ms = 1_478_467_925_000;
            let mut report = Report { source: "src", inventory: &inventory, begun_ms, files: Vec::new() };
            let key = report.next_key();
            assert_eq!(key, report.next_key());
            let name = key.strip_prefix(&format!("{place}/data/")).unwrap().strip_suffix(".parquet").unwrap();
            assert_eq!(name.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
            report.files.push(File { key: key.clone(), size: 3, md5: "00".into() });
            assert_ne!(report.next_key(), key);
            assert_eq!(report.manifest_key(), format!("{place}/2016-11-06T21-32Z/manifest"));
            assert_eq!(report.symlink_key(), format!("{place}/hive/dt=2016-11-06-21-32/symlink.txt"));
            assert_eq!(report.symlink(), format!("s3://reports/{key}\n"));
            let manifest: serde_json::Value = serde_json::from_str(&report.manifest()).unwrap();
            assert_eq!(manifest["destinationBucket"], "arn:aws:s3:::reports");
            assert_eq!(manifest["creationTimestamp"], "1478467925000");
            assert_eq!(manifest["files"][0]["MD5checksum"], "00");
            assert!(manifest["fileSchema"].as_str().unwrap().starts_with("message s3.inventory {"));
        }
    }
}
