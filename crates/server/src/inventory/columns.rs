//! What an inventory says of each object: columns, in AWS's order, and their values.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gabion_store::{ChecksumAlgorithm, Encryption, EncryptionScheme, RetentionMode, VersionDetails, VersionId};
use serde::Serialize;

use crate::access::acl::{Acl, Grantee};
use crate::lifecycle::LifecycleRules;
use crate::lifecycle::due::Subject;

macro_rules! columns {
    ($($column:ident $parquet:literal $kind:ident,)*) => {
        /// A column; the order is that in which they stand in a report.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Column { $($column,)* }

        impl Column {
            const ALL: &'static [Column] = &[$(Column::$column,)*];

            /// The name in CSV, and of an optional one in AWS's API.
            pub(super) const fn name(self) -> &'static str {
                match self { $(Column::$column => stringify!($column),)* }
            }

            /// The name in Parquet.
            pub(super) const fn parquet_name(self) -> &'static str {
                match self { $(Column::$column => $parquet,)* }
            }

            /// What values it has.
            pub(super) const fn kind(self) -> Kind {
                match self { $(Column::$column => Kind::$kind,)* }
            }
        }
    };
}

columns! {
    Bucket "bucket" Text,
    Key "key" Text,
    VersionId "version_id" Text,
    IsLatest "is_latest" Flag,
    IsDeleteMarker "is_delete_marker" Flag,
    Size "size" Number,
    LastModifiedDate "last_modified_date" Moment,
    ETag "e_tag" Text,
    StorageClass "storage_class" Text,
    IsMultipartUploaded "is_multipart_uploaded" Flag,
    ReplicationStatus "replication_status" Text,
    EncryptionStatus "encryption_status" Text,
    ObjectLockRetainUntilDate "object_lock_retain_until_date" Moment,
    ObjectLockMode "object_lock_mode" Text,
    ObjectLockLegalHoldStatus "object_lock_legal_hold_status" Text,
    IntelligentTieringAccessTier "intelligent_tiering_access_tier" Text,
    BucketKeyStatus "bucket_key_status" Text,
    ChecksumAlgorithm "checksum_algorithm" Text,
    ObjectAccessControlList "object_access_control_list" Text,
    ObjectOwner "object_owner" Text,
    LifecycleExpirationDate "lifecycle_expiration_date" Moment,
}

/// What values a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Flag,
    Number,
    Moment,
}

/// A value; nothing where there is nothing to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Nothing,
    Text(String),
    Flag(bool),
    Number(u64),
    /// Unix time in milliseconds, of which S3 shows whole seconds.
    Moment(u64),
}

impl Value {
    fn optional(text: Option<impl Into<String>>) -> Self {
        text.map_or(Self::Nothing, |text| Self::Text(text.into()))
    }

    fn moment(unix_ms: u64) -> Self {
        Self::Moment(unix_ms / 1000 * 1000)
    }
}

impl Column {
    /// One that is there only when it is asked for, by its name.
    pub(super) fn optional(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|column| *column >= Column::Size && column.name() == name)
    }

    /// Those of a report: what each has, and what is asked for.
    pub(super) fn of(all_versions: bool, asked: &[Self]) -> Vec<Self> {
        let is_there = |column: &Self| match column {
            Column::Bucket | Column::Key => true,
            Column::VersionId | Column::IsLatest | Column::IsDeleteMarker => all_versions,
            optional => asked.contains(optional),
        };
        Self::ALL.iter().copied().filter(is_there).collect()
    }

    /// Whether each row has a value.
    pub(super) const fn is_required(self) -> bool {
        matches!(self, Column::Bucket | Column::Key)
    }
}

/// What is listed, as far as it matters to all rows.
pub(super) struct Listed {
    pub(super) bucket: String,
    /// Canonical id of the bucket's owner.
    pub(super) owner: String,
    /// Whether objects have owners and ACLs of their own.
    pub(super) has_acls: bool,
    pub(super) lifecycle: Option<LifecycleRules>,
}

impl Listed {
    /// What a column says of a version.
    pub(super) fn value(&self, column: Column, version: &VersionDetails) -> Value {
        let info = &version.info;
        let always = match column {
            Column::Bucket => Some(Value::Text(self.bucket.clone())),
            Column::Key => Some(Value::Text(version.key.clone())),
            // As on AWS, the id of a `null` version is empty.
            Column::VersionId => Some(Value::Text(match info.version {
                VersionId::Null => String::new(),
                id => id.to_string(),
            })),
            Column::IsLatest => Some(Value::Flag(version.is_latest)),
            Column::IsDeleteMarker => Some(Value::Flag(version.is_marker)),
            Column::LastModifiedDate => Some(Value::moment(info.modified_ms)),
            _ if version.is_marker => Some(Value::Nothing),
            _ => None,
        };
        always.unwrap_or_else(|| self.of_object(column, version))
    }

    /// The same of what is no delete marker.
    fn of_object(&self, column: Column, version: &VersionDetails) -> Value {
        let (info, said) = (&version.info, &version.info.attributes);
        match column {
            Column::Size => Value::Number(info.size),
            Column::ETag => Value::Text(info.etag.to_string()),
            Column::StorageClass => Value::Text(said.storage_class.clone().unwrap_or_else(|| "STANDARD".to_owned())),
            Column::IsMultipartUploaded => Value::Flag(info.parts_count.is_some()),
            Column::EncryptionStatus => Value::Text(encryption_status(said.encryption.as_deref()).to_owned()),
            Column::ObjectLockRetainUntilDate => {
                said.retention.map_or(Value::Nothing, |retention| Value::moment(retention.until_ms))
            }
            Column::ObjectLockMode => Value::optional(said.retention.map(|retention| match retention.mode {
                RetentionMode::Governance => "GOVERNANCE",
                RetentionMode::Compliance => "COMPLIANCE",
            })),
            Column::ObjectLockLegalHoldStatus => {
                Value::optional(said.legal_hold.map(|is_held| if is_held { "ON" } else { "OFF" }))
            }
            Column::BucketKeyStatus => Value::optional(
                said.encryption
                    .as_deref()
                    .filter(|encryption| encryption.scheme == EncryptionScheme::KeyService)
                    .map(|encryption| if encryption.bucket_key { "ENABLED" } else { "DISABLED" }),
            ),
            Column::ChecksumAlgorithm => {
                let stored = info.checksums.iter();
                let known = stored.filter_map(|checksum| ChecksumAlgorithm::from_index(checksum.algorithm));
                let names: Vec<&str> = known.map(|algorithm| algorithm.as_str()).collect();
                Value::optional((!names.is_empty()).then(|| names.join(",")))
            }
            Column::ObjectAccessControlList => Value::Text(self.acl(version)),
            Column::ObjectOwner => Value::Text(self.owner_of(version).to_owned()),
            Column::LifecycleExpirationDate => self.ends(version),
            // What there is not: replicas and tiers.
            Column::ReplicationStatus | Column::IntelligentTieringAccessTier => Value::Nothing,
            // Of every version, also of a delete marker.
            Column::Bucket
            | Column::Key
            | Column::VersionId
            | Column::IsLatest
            | Column::IsDeleteMarker
            | Column::LastModifiedDate => Value::Nothing,
        }
    }

    fn owner_of<'a>(&'a self, version: &'a VersionDetails) -> &'a str {
        version.info.attributes.owner.as_deref().filter(|_| self.has_acls).unwrap_or(&self.owner)
    }

    /// When lifecycle rules end a current object.
    fn ends(&self, version: &VersionDetails) -> Value {
        let Some(rules) = self.lifecycle.as_ref().filter(|_| version.is_latest) else { return Value::Nothing };
        let info = &version.info;
        let subject = Subject { key: &version.key, size: info.size, tags: &info.attributes.tags };
        rules.object_ends(subject, info.modified_ms).map_or(Value::Nothing, |(ends_ms, _)| Value::moment(ends_ms))
    }

    /// The grants, as AWS writes them: JSON in base64.
    fn acl(&self, version: &VersionDetails) -> String {
        let owner = self.owner_of(version);
        let stored = version.info.attributes.acl.as_deref().filter(|_| self.has_acls);
        let acl = stored.map_or_else(|| Acl::private(owner), |stored| Acl::decode(stored).unwrap_or_default());
        let grants = acl.grants().iter().map(|grant| {
            let permission = grant.permission.as_str();
            match &grant.grantee {
                Grantee::Account(id) => {
                    ShownGrant { canonical_id: Some(id), uri: None, kind: "CanonicalUser", permission }
                }
                group => ShownGrant { canonical_id: None, uri: group.uri(), kind: "Group", permission },
            }
        });
        let shown = ShownAcl { version: "2022-11-10", status: "AVAILABLE", grants: grants.collect() };
        BASE64_STANDARD.encode(serde_json::to_vec(&shown).expect("it has only texts"))
    }
}

fn encryption_status(encryption: Option<&Encryption>) -> &'static str {
    match encryption.map(|encryption| encryption.scheme) {
        None => "NOT-SSE",
        Some(EncryptionScheme::Master) => "SSE-S3",
        Some(EncryptionScheme::KeyService) => "SSE-KMS",
        Some(EncryptionScheme::Customer) => "SSE-C",
    }
}

#[derive(Serialize)]
struct ShownAcl<'a> {
    version: &'static str,
    status: &'static str,
    grants: Vec<ShownGrant<'a>>,
}

#[derive(Serialize)]
struct ShownGrant<'a> {
    #[serde(rename = "canonicalId", skip_serializing_if = "Option::is_none")]
    canonical_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    permission: &'static str,
}

#[cfg(test)]
pub(super) mod tests {
    use gabion_store::{Attributes, Etag, ObjectInfo};
    use gabion_types::Seq;

    use super::*;

    pub(in crate::inventory) fn version(key: &str, size: u64) -> VersionDetails {
        let info = ObjectInfo {
            size,
            etag: Etag::Md5([1; 16]),
            modified_ms: 1_445_412_480_999,
            seq: Seq::from_u64(7),
            version: VersionId::Of(Seq::from_u64(7)),
            attributes: Attributes::default(),
            checksums: Vec::new(),
            parts_count: None,
        };
        VersionDetails { key: key.to_owned(), info, is_latest: true, is_marker: false }
    }

    pub(in crate::inventory) fn listed() -> Listed {
        Listed { bucket: "bkt".into(), owner: "me".into(), has_acls: true, lifecycle: None }
    }

    #[test]
    fn optional_columns_are_asked_for_by_name() {
        assert_eq!(Column::optional("ETag"), Some(Column::ETag));
        assert_eq!(Column::optional("LifecycleExpirationDate"), Some(Column::LifecycleExpirationDate));
        for name in ["", "Key", "IsLatest", "etag", "e_tag"] {
            assert_eq!(Column::optional(name), None, "{name}");
        }
    }

    #[test]
    fn of_delete_markers_little_is_said() {
        let marker = VersionDetails { is_marker: true, ..version("k", 0) };
        let said: Vec<&str> = Column::ALL
            .iter()
            .filter(|column| listed().value(**column, &marker) != Value::Nothing)
            .map(|column| column.name())
            .collect();
        assert_eq!(said, ["Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "LastModifiedDate"]);
    }

    #[test]
    fn grants_are_json_in_base64() {
        let mut version = version("k", 1);
        version.info.attributes.owner = Some("you".into());
        version.info.attributes.acl = Some("READ @all\nFULL_CONTROL =you".into());
        let shown = |listed: &Listed| match listed.value(Column::ObjectAccessControlList, &version) {
            Value::Text(text) => String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            shown(&listed()),
            "{\"version\":\"2022-11-10\",\"status\":\"AVAILABLE\",\"grants\":[\
             {\"uri\":\"http://acs.amazonaws.com/groups/global/AllUsers\",\"type\":\"Group\",\"permission\":\"READ\"},\
             {\"canonicalId\":\"you\",\"type\":\"CanonicalUser\",\"permission\":\"FULL_CONTROL\"}]}"
        );
        let enforced = Listed { has_acls: false, ..listed() };
        assert!(shown(&enforced).contains("\"canonicalId\":\"me\""), "the bucket's owner owns all");
        assert_eq!(enforced.value(Column::ObjectOwner, &version), Value::Text("me".into()));
        assert_eq!(listed().value(Column::ObjectOwner, &version), Value::Text("you".into()));
    }
}
