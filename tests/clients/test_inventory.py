"""Inventories of buckets: configured by boto3, read back by pyarrow and by Python's csv, and compared with what ListObjectVersions says."""

import base64
import csv
import gzip
import hashlib
import io
import json
import time
import urllib.parse
import uuid

import pyarrow.parquet
import pytest
from test_boto3 import refusal

FIELDS = [
    "Size", "LastModifiedDate", "ETag", "StorageClass", "IsMultipartUploaded", "ReplicationStatus", "EncryptionStatus",
    "ObjectLockRetainUntilDate", "ObjectLockMode", "ObjectLockLegalHoldStatus", "IntelligentTieringAccessTier", "BucketKeyStatus",
    "ChecksumAlgorithm", "ObjectAccessControlList", "ObjectOwner", "LifecycleExpirationDate",
]  # fmt: skip
KEYS = ["plain", "with space", "plus+and&amp;", "größe/日本", 'quote"comma,', "percent%20", "line\nbreak"]


def configuration(bucket, name="all", **changes):
    place = {"Format": "CSV", "Bucket": f"arn:aws:s3:::{bucket}", "Prefix": "in"}
    place |= changes.pop("destination", {})
    return {
        "Destination": {"S3BucketDestination": place},
        "IsEnabled": True,
        "Id": name,
        "IncludedObjectVersions": "All",
        "Schedule": {"Frequency": "Daily"},
        "OptionalFields": FIELDS,
    } | changes


@pytest.fixture(scope="module")
def buckets(s3):
    """What is listed, and where reports go; they are left as they are."""
    names = [f"{what}-{uuid.uuid4()}" for what in ["listed", "reports"]]
    s3.create_bucket(Bucket=names[0], ObjectLockEnabledForBucket=True)
    s3.create_bucket(Bucket=names[1])
    rule = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "plain"}, "Expiration": {"Days": 9}}
    s3.put_bucket_lifecycle_configuration(Bucket=names[0], LifecycleConfiguration={"Rules": [rule]})
    for number, key in enumerate(KEYS):
        for version in range(3):
            s3.put_object(Bucket=names[0], Key=key, Body=b"x" * (number * 10 + version), ChecksumAlgorithm="SHA256")
    s3.delete_object(Bucket=names[0], Key="with space")
    s3.put_object(Bucket=names[0], Key="held", Body=b"x", ObjectLockLegalHoldStatus="ON", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate="2099-01-01T00:00:00Z")
    upload = s3.create_multipart_upload(Bucket=names[0], Key="parts")["UploadId"]
    part = s3.upload_part(Bucket=names[0], Key="parts", UploadId=upload, PartNumber=1, Body=b"part")
    s3.complete_multipart_upload(Bucket=names[0], Key="parts", UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    for number in range(1000):
        s3.put_object(Bucket=names[0], Key=f"many/{number}", Body=b"x")
    return names


def manifest(s3, source, destination, name):
    """That of the report, when it is there."""
    prefix = f"in/{source}/{name}/"
    for _ in range(300):
        keys = [item["Key"] for item in s3.list_objects_v2(Bucket=destination, Prefix=prefix).get("Contents", [])]
        done = [key for key in keys if key.endswith("manifest.checksum")]
        if done:
            break
        time.sleep(0.1)
    text = s3.get_object(Bucket=destination, Key=done[0].replace(".checksum", ".json"))["Body"].read()
    assert s3.get_object(Bucket=destination, Key=done[0])["Body"].read().decode() == hashlib.md5(text).hexdigest()
    found = json.loads(text)
    assert (found["sourceBucket"], found["destinationBucket"]) == (source, f"arn:aws:s3:::{destination}")
    links = [key for key in keys if key.endswith("symlink.txt")]
    lines = s3.get_object(Bucket=destination, Key=links[0])["Body"].read().decode().splitlines()
    assert lines == [f"s3://{destination}/{file['key']}" for file in found["files"]]
    return found


def files(s3, destination, found):
    for file in found["files"]:
        body = s3.get_object(Bucket=destination, Key=file["key"])["Body"].read()
        assert (file["size"], file["MD5checksum"]) == (len(body), hashlib.md5(body).hexdigest())
        yield body


def listed(s3, bucket):
    """All versions and delete markers as a listing has them, by key and id."""
    found = {}
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for entry in page.get("Versions", []) + page.get("DeleteMarkers", []):
            found[entry["Key"], entry["VersionId"]] = entry
    return found


def test_parquet_says_what_a_listing_says(s3, buckets):
    source, destination = buckets
    asked = configuration(destination, "parquet", destination={"Format": "Parquet"})
    s3.put_bucket_inventory_configuration(Bucket=source, Id="parquet", InventoryConfiguration=asked)
    assert s3.get_bucket_inventory_configuration(Bucket=source, Id="parquet")["InventoryConfiguration"] == asked
    found = manifest(s3, source, destination, "parquet")
    assert found["fileFormat"] == "Parquet"
    rows = [row for body in files(s3, destination, found) for row in pyarrow.parquet.read_table(io.BytesIO(body)).to_pylist()]
    expected = listed(s3, source)
    assert len(rows) == len(expected) == 1000 + 3 * len(KEYS) + 3
    for row in rows:
        entry = expected.pop((row["key"], row["version_id"]))
        assert (row["bucket"], row["is_latest"], row["is_delete_marker"]) == (source, entry["IsLatest"], "ETag" not in entry)
        assert row["last_modified_date"].replace(tzinfo=None) == entry["LastModified"].replace(tzinfo=None)
        if row["is_delete_marker"]:
            assert row["size"] is row["e_tag"] is row["storage_class"] is row["object_owner"] is None
            continue
        assert (row["size"], f'"{row["e_tag"]}"', row["storage_class"]) == (entry["Size"], entry["ETag"], "STANDARD")
        assert row["checksum_algorithm"] == ",".join(entry["ChecksumAlgorithm"])
        assert row["object_owner"] == entry["Owner"]["ID"]
        grants = json.loads(base64.b64decode(row["object_access_control_list"]))["grants"]
        assert grants == [{"canonicalId": entry["Owner"]["ID"], "type": "CanonicalUser", "permission": "FULL_CONTROL"}]
        assert row["is_multipart_uploaded"] == (row["key"] == "parts")
        assert row["encryption_status"] == "NOT-SSE"
        is_held = row["key"] == "held"
        assert (row["object_lock_mode"], row["object_lock_legal_hold_status"]) == (("GOVERNANCE", "ON") if is_held else (None, None))
        assert (row["object_lock_retain_until_date"] is not None) == is_held
        assert (row["lifecycle_expiration_date"] is not None) == (row["key"] == "plain" and row["is_latest"])
        assert row["replication_status"] is row["bucket_key_status"] is row["intelligent_tiering_access_tier"] is None
    assert expected == {}


def test_csv_says_what_a_listing_says(s3, buckets):
    source, destination = buckets
    asked = configuration(destination, "csv", IncludedObjectVersions="Current", Filter={"Prefix": ""})
    s3.put_bucket_inventory_configuration(Bucket=source, Id="csv", InventoryConfiguration=asked)
    found = manifest(s3, source, destination, "csv")
    names = found["fileSchema"].split(", ")
    assert names == ["Bucket", "Key"] + FIELDS
    expected = {key: entry for (key, _), entry in listed(s3, source).items() if entry["IsLatest"] and "ETag" in entry}
    for body in files(s3, destination, found):
        for fields in csv.reader(io.StringIO(gzip.decompress(body).decode(), newline="")):
            row = dict(zip(names, fields, strict=True))
            entry = expected.pop(urllib.parse.unquote_plus(row["Key"]))
            assert (row["Size"], f'"{row["ETag"]}"') == (str(entry["Size"]), entry["ETag"])
            assert row["LastModifiedDate"] == entry["LastModified"].strftime("%Y-%m-%dT%H:%M:%S.000Z")
            assert row["IsMultipartUploaded"] == ("true" if entry["Key"] == "parts" else "false")
    assert expected == {}


REFUSED = [
    ({"destination": {"Format": "ORC"}}, (501, "NotImplemented")),
    ({"destination": {"Format": "Avro"}}, (400, "MalformedXML")),
    ({"destination": {"Bucket": "arn:aws:s3:::missing-bucket"}}, (400, "InvalidS3DestinationBucket")),
    ({"destination": {"Bucket": "missing-bucket"}}, (400, "InvalidS3DestinationBucket")),
    ({"destination": {"AccountId": "000000000001"}}, (400, "InvalidS3DestinationBucket")),
    ({"destination": {"Encryption": {"SSES3": {}, "SSEKMS": {"KeyId": "k"}}}}, (400, "MalformedXML")),
    ({"Schedule": {"Frequency": "Hourly"}}, (400, "MalformedXML")),
    ({"IncludedObjectVersions": "None"}, (400, "MalformedXML")),
    ({"OptionalFields": ["Tags"]}, (400, "MalformedXML")),
    ({"Id": "other"}, (400, "InvalidArgument")),
]


@pytest.mark.parametrize("changes, expected", REFUSED)
def test_what_is_refused(s3, bucket, changes, expected):
    asked = configuration(bucket, **changes)
    assert refusal(s3.put_bucket_inventory_configuration, Bucket=bucket, Id="all", InventoryConfiguration=asked) == expected


def test_inventories_are_listed(s3, bucket):
    assert refusal(s3.get_bucket_inventory_configuration, Bucket=bucket, Id="none") == (404, "NoSuchConfiguration")
    assert "InventoryConfigurationList" not in s3.list_bucket_inventory_configurations(Bucket=bucket)
    asked = configuration(bucket, IsEnabled=False, destination={"Encryption": {"SSES3": {}}})
    s3.put_bucket_inventory_configuration(Bucket=bucket, Id="all", InventoryConfiguration=asked)
    shown = s3.list_bucket_inventory_configurations(Bucket=bucket)
    assert (shown["InventoryConfigurationList"], shown["IsTruncated"]) == ([asked], False)
    s3.delete_bucket_inventory_configuration(Bucket=bucket, Id="all")
    assert refusal(s3.delete_bucket_inventory_configuration, Bucket=bucket, Id="all") == (404, "NoSuchConfiguration")


NONE = [
    ("get_bucket_replication", {}, (404, "ReplicationConfigurationNotFoundError")),
    ("get_bucket_analytics_configuration", {"Id": "x"}, (404, "NoSuchConfiguration")),
    ("get_bucket_metrics_configuration", {"Id": "x"}, (404, "NoSuchConfiguration")),
    ("get_bucket_intelligent_tiering_configuration", {"Id": "x"}, (404, "NoSuchConfiguration")),
]


@pytest.mark.parametrize("operation, more, expected", NONE)
def test_what_no_bucket_has(s3, bucket, operation, more, expected):
    assert refusal(getattr(s3, operation), Bucket=bucket, **more) == expected


def test_lists_of_what_no_bucket_has_are_empty(s3, bucket):
    assert "Status" not in s3.get_bucket_accelerate_configuration(Bucket=bucket)
    for what in ["analytics", "metrics", "intelligent_tiering"]:
        shown = getattr(s3, f"list_bucket_{what}_configurations")(Bucket=bucket)
        assert shown["IsTruncated"] is False
        assert not [name for name in shown if name.endswith("List")]
