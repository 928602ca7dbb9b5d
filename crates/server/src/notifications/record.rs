//! What a notification says: one record per event.
//!
//! Source: AWS, "Event message structure".

use gabion_store::VersionId;
use gabion_types::Seq;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::event::EventName;
use crate::s3::date;

/// Who does what lifecycle rules ask for.
const LIFECYCLE: &str = "s3.amazonaws.com";
/// What a key may hold as it is; a space becomes a plus.
const KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'*').remove(b' ');

/// Something that happened to an object.
#[derive(Clone, Debug)]
pub(crate) struct Happened {
    pub(crate) event: EventName,
    pub(crate) key: String,
    pub(crate) size: Option<u64>,
    pub(crate) etag: Option<String>,
    /// If the bucket keeps versions.
    pub(crate) version: Option<VersionId>,
    /// The commit that did it, if it made or removed the object.
    pub(crate) seq: Option<Seq>,
}

/// By whom and where it was done.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) region: String,
    pub(crate) bucket: String,
    /// Canonical id of the bucket's owner.
    pub(crate) owner: String,
    /// Id of the owner's account, if there is one.
    pub(crate) account: Option<String>,
    /// `aws:userid` of who asked for it.
    pub(crate) principal: String,
    pub(crate) source: String,
    pub(crate) request_id: String,
    /// Unix time in milliseconds.
    pub(crate) time_ms: u64,
}

impl Origin {
    /// Of what nobody asked for but a rule of the bucket.
    pub(crate) fn of_lifecycle(region: &str, bucket: &str, owner: &str, account: Option<String>, time_ms: u64) -> Self {
        Self {
            region: region.to_owned(),
            bucket: bucket.to_owned(),
            owner: owner.to_owned(),
            account,
            principal: LIFECYCLE.to_owned(),
            source: LIFECYCLE.to_owned(),
            request_id: String::new(),
            time_ms,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    event_version: &'static str,
    event_source: &'static str,
    aws_region: &'a str,
    event_time: String,
    event_name: &'static str,
    user_identity: Principal<'a>,
    request_parameters: RequestParameters<'a>,
    response_elements: ResponseElements<'a>,
    s3: S3<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Principal<'a> {
    principal_id: &'a str,
}

#[derive(Serialize)]
struct RequestParameters<'a> {
    #[serde(rename = "sourceIPAddress")]
    source_ip_address: &'a str,
}

#[derive(Serialize)]
struct ResponseElements<'a> {
    #[serde(rename = "x-amz-request-id")]
    request_id: &'a str,
    #[serde(rename = "x-amz-id-2")]
    host_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct S3<'a> {
    #[serde(rename = "s3SchemaVersion")]
    schema_version: &'static str,
    configuration_id: &'a str,
    bucket: Bucket<'a>,
    object: Object<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bucket<'a> {
    name: &'a str,
    owner_identity: Principal<'a>,
    arn: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e_tag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequencer: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Test<'a> {
    service: &'static str,
    event: &'static str,
    time: String,
    bucket: &'a str,
    request_id: &'a str,
    host_id: &'a str,
}

/// The record of an event, because of the configuration with this id.
pub(super) fn record(happened: &Happened, origin: &Origin, configuration: &str) -> Vec<u8> {
    let record = Record {
        event_version: happened.event.record_version(),
        event_source: "aws:s3",
        aws_region: &origin.region,
        event_time: date::iso_ms(origin.time_ms).to_string(),
        event_name: happened.event.in_record(),
        user_identity: Principal { principal_id: &origin.principal },
        request_parameters: RequestParameters { source_ip_address: &origin.source },
        response_elements: ResponseElements { request_id: &origin.request_id, host_id: &origin.request_id },
        s3: S3 {
            schema_version: "1.0",
            configuration_id: configuration,
            bucket: Bucket {
                name: &origin.bucket,
                owner_identity: Principal { principal_id: &origin.owner },
                arn: format!("arn:aws:s3:::{}", origin.bucket),
            },
            object: Object {
                key: utf8_percent_encode(&happened.key, KEY).to_string().replace(' ', "+"),
                size: happened.size,
                e_tag: happened.etag.as_deref(),
                version_id: happened.version.map(|version| version.to_string()),
                sequencer: happened.seq.map(|seq| format!("{:016X}", seq.as_u64())),
            },
        },
    };
    serde_json::to_vec(&record).expect("a record has only texts and numbers")
}

/// What is sent when a bucket is told to notify a topic or a queue.
pub(super) fn test_event(origin: &Origin) -> Vec<u8> {
    let test = Test {
        service: "Amazon S3",
        event: "s3:TestEvent",
        time: date::iso_ms(origin.time_ms).to_string(),
        bucket: &origin.bucket,
        request_id: &origin.request_id,
        host_id: &origin.request_id,
    };
    serde_json::to_vec(&test).expect("an event has only texts")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin {
            region: "us-west-2".into(),
            bucket: "bkt".into(),
            owner: "A3NL".into(),
            account: None,
            principal: "AWS:AIDA1".into(),
            source: "127.0.0.1".into(),
            request_id: "C3D1".into(),
            time_ms: 1_700_000_000_123,
        }
    }

    #[test]
    fn a_record_is_as_on_aws() {
        let happened = Happened {
            event: EventName::CreatedPut,
            key: "red flower/ü+\"é.jpg".into(),
            size: Some(1024),
            etag: Some("d41d".into()),
            version: Some(VersionId::Of(Seq::from_u64(5))),
            seq: Some(Seq::from_u64(0xab)),
        };
        let record = String::from_utf8(record(&happened, &origin(), "rule")).unwrap();
        assert_eq!(
            record,
            "{\"eventVersion\":\"2.1\",\"eventSource\":\"aws:s3\",\"awsRegion\":\"us-west-2\",\"eventTime\":\"2023-11-14T22:13:20.123Z\",\
             \"eventName\":\"ObjectCreated:Put\",\"userIdentity\":{\"principalId\":\"AWS:AIDA1\"},\
             \"requestParameters\":{\"sourceIPAddress\":\"127.0.0.1\"},\
             \"responseElements\":{\"x-amz-request-id\":\"C3D1\",\"x-amz-id-2\":\"C3D1\"},\
             \"s3\":{\"s3SchemaVersion\":\"1.0\",\"configurationId\":\"rule\",\
             \"bucket\":{\"name\":\"bkt\",\"ownerIdentity\":{\"principalId\":\"A3NL\"},\"arn\":\"arn:aws:s3:::bkt\"},\
             \"object\":{\"key\":\"red+flower/%C3%BC%2B%22%C3%A9.jpg\",\"size\":1024,\"eTag\":\"d41d\",\
             \"versionId\":\"0000000000000005\",\"sequencer\":\"00000000000000AB\"}}}"
        );
    }

    #[test]
    fn what_is_removed_has_no_size() {
        let happened = Happened {
            event: EventName::ExpiredDelete,
            key: "k".into(),
            size: None,
            etag: None,
            version: None,
            seq: Some(Seq::from_u64(1)),
        };
        let origin = Origin::of_lifecycle("r", "bkt", "o", None, 0);
        let record = String::from_utf8(record(&happened, &origin, "id")).unwrap();
        assert!(record.contains("\"object\":{\"key\":\"k\",\"sequencer\":\"0000000000000001\"}"), "{record}");
        assert!(record.starts_with("{\"eventVersion\":\"2.3\""), "{record}");
        assert!(record.contains("\"principalId\":\"s3.amazonaws.com\""), "{record}");
    }

    #[test]
    fn a_test_event_is_no_record() {
        assert_eq!(
            String::from_utf8(test_event(&origin())).unwrap(),
            "{\"Service\":\"Amazon S3\",\"Event\":\"s3:TestEvent\",\"Time\":\"2023-11-14T22:13:20.123Z\",\"Bucket\":\"bkt\",\
             \"RequestId\":\"C3D1\",\"HostId\":\"C3D1\"}"
        );
    }
}
