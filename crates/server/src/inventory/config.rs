//! An inventory as a bucket has it, from the document that a client sends, with all the checks that AWS makes.

use gabion_store::{Encrypt, EncryptionScheme};
use gabion_types::BucketName;
use s3s::dto;

use super::columns::Column;
use crate::error::{S3Code, S3Error};
use crate::s3::xml;

/// Most inventories of a bucket. All documents of a bucket are kept in memory together while it is in use (`gabion_store::Configs`).
pub(crate) const IDS_MAX: usize = 200;
/// Longest document of an inventory in bytes, for the same reason.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 2048;
/// Longest id of an inventory in bytes.
const ID_BYTES_MAX: usize = 64;
/// Longest prefix of what is listed, in bytes.
const PREFIX_BYTES_MAX: usize = 1024;
/// Longest prefix of reports in bytes: there must be room for the rest of a key.
const DESTINATION_PREFIX_BYTES_MAX: usize = 800;
/// Longest id of a key of encryption, in bytes.
const KEY_ID_BYTES_MAX: usize = 2048;

/// An inventory of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inventory {
    pub(crate) id: String,
    pub(crate) is_enabled: bool,
    pub(crate) destination: Destination,
    /// Only keys that begin with it; empty for all.
    pub(super) prefix: String,
    /// Whether it lists versions that are not current, and delete markers.
    pub(super) all_versions: bool,
    pub(super) schedule: Schedule,
    /// What is said of each object, in its order.
    pub(super) columns: Vec<Column>,
}

/// Where reports go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) bucket: BucketName,
    /// The account that must own it.
    pub(crate) account: Option<String>,
    prefix: String,
    pub(super) format: Format,
    encryption: Option<Encryption>,
}

/// How data files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Csv,
    Parquet,
}

/// How reports are encrypted; where nothing is said, as their bucket says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Encryption {
    Master,
    KeyService(String),
}

/// How often there is a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    Daily,
    Weekly,
}

impl Schedule {
    /// The number of the day or week that a moment lies in, with days of `day_ms`. Weeks begin on Sundays: Unix time began on a Thursday.
    pub(super) fn period(self, unix_ms: u64, day_ms: u64) -> u64 {
        let day = unix_ms / day_ms.max(1);
        match self {
            Schedule::Daily => day,
            Schedule::Weekly => (day + 4) / 7,
        }
    }
}

impl Destination {
    /// What the keys of all reports begin with.
    pub(crate) fn place(&self, source: &str) -> String {
        let slash = if self.prefix.is_empty() || self.prefix.ends_with('/') { "" } else { "/" };
        format!("{}{slash}{source}/", self.prefix)
    }

    /// How reports are encrypted, if it says so.
    pub(super) fn encrypt(&self) -> Option<Encrypt> {
        self.encryption.as_ref().map(|encryption| match encryption {
            Encryption::Master => Encrypt::by(EncryptionScheme::Master),
            Encryption::KeyService(id) => {
                Encrypt { key_id: Some(id.clone()), ..Encrypt::by(EncryptionScheme::KeyService) }
            }
        })
    }

    fn of(destination: &dto::InventoryS3BucketDestination) -> Result<Self, S3Error> {
        let prefix = destination.prefix.clone().unwrap_or_default();
        if prefix.len() > DESTINATION_PREFIX_BYTES_MAX {
            let message = format!("The prefix must not be longer than {DESTINATION_PREFIX_BYTES_MAX} bytes.");
            return Err(S3Error::argument("Prefix", &prefix, message));
        }
        let format = match destination.format.as_str() {
            "CSV" => Format::Csv,
            "Parquet" => Format::Parquet,
            "ORC" => {
                let message = "Reports in the ORC format are not implemented: ask for Parquet or CSV.";
                return Err(S3Error::with(S3Code::NotImplemented, message));
            }
            _ => return Err(malformed()),
        };
        let account = destination.account_id.clone().filter(|id| !id.is_empty());
        Ok(Self {
            bucket: bucket_of(&destination.bucket)?,
            account,
            prefix,
            format,
            encryption: destination.encryption.as_ref().map(Encryption::of).transpose()?,
        })
    }
}

impl Encryption {
    fn of(encryption: &dto::InventoryEncryption) -> Result<Self, S3Error> {
        match (&encryption.sses3, &encryption.ssekms) {
            (Some(_), None) => Ok(Self::Master),
            (None, Some(service)) => match service.key_id.as_str() {
                id if (1..=KEY_ID_BYTES_MAX).contains(&id.len()) && !id.chars().any(char::is_control) => {
                    Ok(Self::KeyService(id.to_owned()))
                }
                id => Err(S3Error::argument("KeyId", id, "The id of the key is not valid.")),
            },
            _ => Err(malformed()),
        }
    }
}

/// The bucket that an ARN names.
fn bucket_of(arn: &str) -> Result<BucketName, S3Error> {
    let invalid =
        |message: &'static str| S3Error::with(S3Code::InvalidS3DestinationBucket, message).detail("Bucket", arn);
    let mut parts = arn.splitn(6, ':');
    let is_s3 = parts.next() == Some("arn")
        && parts.next().is_some_and(|partition| partition.starts_with("aws"))
        && parts.next() == Some("s3");
    let (Some(region), Some(account), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(invalid("Invalid bucket ARN."));
    };
    if !is_s3 {
        return Err(invalid("Invalid bucket ARN."));
    }
    if !region.is_empty() || !account.is_empty() {
        return Err(invalid("Bucket ARN should not specify a namespace."));
    }
    BucketName::new(name).map_err(|_| invalid("Invalid bucket ARN."))
}

/// Whether a text can be the id of an inventory.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn check_id(id: &str) -> Result<(), S3Error> {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_usual) {
        return Ok(());
    }
    let message = "An inventory id has 1 to 64 characters: letters, digits, periods, dashes and underscores.";
    Err(S3Error::argument("id", id, message))
}

fn malformed() -> S3Error {
    S3Code::MalformedXML.into()
}

impl Inventory {
    /// Reads and checks a document; gives it as it is kept, too.
    ///
    /// # Errors
    /// `MalformedXML`, `InvalidArgument`, `InvalidS3DestinationBucket`; `NotImplemented` for what is not served.
    pub(crate) fn parse(document: &[u8]) -> Result<(Self, String), S3Error> {
        let configuration = xml::parse_inventory(document)?;
        check_id(&configuration.id)?;
        let destination = Destination::of(&configuration.destination.s3_bucket_destination)?;
        let prefix = configuration.filter.as_ref().map(|filter| filter.prefix.clone()).unwrap_or_default();
        if prefix.len() > PREFIX_BYTES_MAX {
            let message = format!("The prefix must not be longer than {PREFIX_BYTES_MAX} bytes.");
            return Err(S3Error::argument("Prefix", &prefix, message));
        }
        let all_versions = match configuration.included_object_versions.as_str() {
            "All" => true,
            "Current" => false,
            _ => return Err(malformed()),
        };
        let schedule = match configuration.schedule.frequency.as_str() {
            "Daily" => Schedule::Daily,
            "Weekly" => Schedule::Weekly,
            _ => return Err(malformed()),
        };
        let mut asked = Vec::new();
        for field in configuration.optional_fields.iter().flatten() {
            asked.push(Column::optional(field.as_str()).ok_or_else(malformed)?);
        }
        let inventory = Self {
            id: configuration.id.clone(),
            is_enabled: configuration.is_enabled,
            destination,
            prefix,
            all_versions,
            schedule,
            columns: Column::of(all_versions, &asked),
        };
        Ok((inventory, xml::canonical("InventoryConfiguration", &configuration)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An inventory in which some texts are replaced by others.
    fn parse(changes: &[(&str, &str)]) -> Result<(Inventory, String), S3Error> {
        let mut document = "<InventoryConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Id>list-1</Id>\
             <IsEnabled>true</IsEnabled><Filter><Prefix>a/</Prefix></Filter><Destination><S3BucketDestination>\
             <Format>CSV</Format><AccountId>123456789012</AccountId><Bucket>arn:aws:s3:::reports</Bucket><Prefix>p</Prefix>\
             <Encryption><SSE-S3></SSE-S3></Encryption></S3BucketDestination></Destination>\
             <Schedule><Frequency>Weekly</Frequency></Schedule><IncludedObjectVersions>All</IncludedObjectVersions>\
             <OptionalFields><Field>ETag</Field><Field>Size</Field><Field>ETag</Field></OptionalFields></InventoryConfiguration>"
            .to_owned();
        for (from, to) in changes {
            assert!(document.contains(from), "{from}");
            document = document.replace(from, to);
        }
        Inventory::parse(document.as_bytes())
    }

    #[test]
    fn documents_are_read() {
        let (inventory, kept) = parse(&[]).unwrap();
        assert_eq!((inventory.id.as_str(), inventory.prefix.as_str(), inventory.is_enabled), ("list-1", "a/", true));
        assert_eq!(inventory.destination.bucket.as_str(), "reports");
        assert_eq!(inventory.destination.encrypt().unwrap().scheme, EncryptionScheme::Master);
        assert_eq!((inventory.schedule, inventory.all_versions), (Schedule::Weekly, true));
        let names: Vec<_> = inventory.columns.iter().map(|column| column.name()).collect();
        let expected = ["Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size", "ETag"];
        assert_eq!(names, expected, "in AWS's order, each once");
        assert_eq!(Inventory::parse(kept.as_bytes()).unwrap(), (inventory, kept));
        let (inventory, _) = parse(&[
            ("<SSE-S3></SSE-S3>", "<SSE-KMS><KeyId>mine</KeyId></SSE-KMS>"),
            (">CSV<", ">Parquet<"),
            (">All<", ">Current<"),
            ("<Filter><Prefix>a/</Prefix></Filter>", ""),
        ])
        .unwrap();
        assert_eq!(inventory.destination.encrypt().unwrap().key_id.as_deref(), Some("mine"));
        assert_eq!((inventory.destination.format, inventory.prefix.as_str()), (Format::Parquet, ""));
        assert_eq!(inventory.columns.len(), 4);
    }

    #[test]
    fn documents_are_refused_as_on_aws() {
        let long = "p".repeat(1025);
        for (from, to, code) in [
            ("<Id>list-1</Id>", "<Id></Id>", S3Code::InvalidArgument),
            ("<Id>list-1</Id>", "<Id>a/b</Id>", S3Code::InvalidArgument),
            ("<Id>list-1</Id>", "", S3Code::MalformedXML),
            (">CSV<", ">csv<", S3Code::MalformedXML),
            (">CSV<", ">ORC<", S3Code::NotImplemented),
            (">Weekly<", ">Hourly<", S3Code::MalformedXML),
            (">All<", ">Some<", S3Code::MalformedXML),
            (">ETag<", ">Tags<", S3Code::MalformedXML),
            (">Size<", ">Key<", S3Code::MalformedXML),
            ("<IsEnabled>true</IsEnabled>", "", S3Code::MalformedXML),
            ("<SSE-S3></SSE-S3>", "", S3Code::MalformedXML),
            ("<SSE-S3></SSE-S3>", "<SSE-KMS><KeyId></KeyId></SSE-KMS>", S3Code::InvalidArgument),
            ("arn:aws:s3:::reports", "reports", S3Code::InvalidS3DestinationBucket),
            ("arn:aws:s3:::reports", "arn:aws:s3::123456789012:reports", S3Code::InvalidS3DestinationBucket),
            ("arn:aws:s3:::reports", "arn:aws:iam:::reports", S3Code::InvalidS3DestinationBucket),
            ("arn:aws:s3:::reports", "arn:aws:s3:::REPORTS", S3Code::InvalidS3DestinationBucket),
            ("<Prefix>a/</Prefix>", &format!("<Prefix>{long}</Prefix>"), S3Code::InvalidArgument),
            ("<Prefix>p</Prefix>", &format!("<Prefix>{}</Prefix>", &long[..801]), S3Code::InvalidArgument),
        ] {
            assert_eq!(parse(&[(from, to)]).unwrap_err().code, code, "{from} {to}");
        }
    }

    #[test]
    fn weeks_begin_on_sundays() {
        let day_ms = crate::lifecycle::DAY_MS;
        // 1970-01-04 was a Sunday.
        let week = |day: u64| Schedule::Weekly.period(day * day_ms, day_ms);
        assert_eq!((week(2), week(3), week(9), week(10)), (0, 1, 1, 2));
        assert_eq!(Schedule::Daily.period(day_ms * 3 - 1, day_ms), 2);
        assert_eq!(Schedule::Daily.period(5, 0), 5);
    }
}
