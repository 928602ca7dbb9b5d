"""Versions and object lock, as boto3 speaks of them."""

import datetime
import uuid

import pytest
from test_boto3 import refusal


def keep(s3, bucket, status):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})


@pytest.fixture
def bucket(s3):
    """A bucket that is left as it is: what is kept in it goes with the server."""
    name = f"versions-{uuid.uuid4()}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def locked(s3):
    name = f"locked-{uuid.uuid4()}"
    s3.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return name


def test_versions_are_kept_and_deleted(s3, bucket):
    keep(s3, bucket, "Enabled")
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    ids = [s3.put_object(Bucket=bucket, Key="k", Body=str(number))["VersionId"] for number in range(3)]
    marker = s3.delete_object(Bucket=bucket, Key="k")
    assert marker["DeleteMarker"]
    assert refusal(s3.get_object, Bucket=bucket, Key="k") == (404, "NoSuchKey")
    assert refusal(s3.get_object, Bucket=bucket, Key="k", VersionId=marker["VersionId"]) == (405, "MethodNotAllowed")
    for number, version in enumerate(ids):
        assert s3.get_object(Bucket=bucket, Key="k", VersionId=version)["Body"].read() == str(number).encode()
    listed = s3.list_object_versions(Bucket=bucket)
    assert [version["VersionId"] for version in listed["Versions"]] == ids[::-1]
    assert [marker["IsLatest"] for marker in listed["DeleteMarkers"]] == [True]
    s3.copy_object(Bucket=bucket, Key="k", CopySource={"Bucket": bucket, "Key": "k", "VersionId": ids[0]})
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"0"
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket, PaginationConfig={"PageSize": 2})
    found = [entry for page in pages for entry in page.get("Versions", []) + page.get("DeleteMarkers", [])]
    assert len(found) == 5
    objects = [{"Key": entry["Key"], "VersionId": entry["VersionId"]} for entry in found]
    assert len(s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})["Deleted"]) == 5
    assert "Versions" not in s3.list_object_versions(Bucket=bucket)


def test_suspended_buckets_have_one_null_version(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"before")
    keep(s3, bucket, "Enabled")
    kept = s3.put_object(Bucket=bucket, Key="k", Body=b"kept")["VersionId"]
    keep(s3, bucket, "Suspended")
    assert "VersionId" not in s3.put_object(Bucket=bucket, Key="k", Body=b"null")
    versions = s3.list_object_versions(Bucket=bucket)["Versions"]
    assert [version["VersionId"] for version in versions] == ["null", kept]
    assert s3.get_object(Bucket=bucket, Key="k", VersionId="null")["Body"].read() == b"null"


def test_uploads_tags_and_heads_name_versions(s3, bucket):
    keep(s3, bucket, "Enabled")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    part = s3.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"part")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    first = s3.complete_multipart_upload(Bucket=bucket, Key="k", UploadId=upload, MultipartUpload=parts)["VersionId"]
    s3.put_object(Bucket=bucket, Key="k", Body=b"second")
    tagging = {"TagSet": [{"Key": "of", "Value": "first"}]}
    assert s3.put_object_tagging(Bucket=bucket, Key="k", VersionId=first, Tagging=tagging)["VersionId"] == first
    assert s3.get_object_tagging(Bucket=bucket, Key="k", VersionId=first)["TagSet"] == tagging["TagSet"]
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []
    assert s3.head_object(Bucket=bucket, Key="k", VersionId=first)["ContentLength"] == 4
    attributes = s3.get_object_attributes(Bucket=bucket, Key="k", VersionId=first, ObjectAttributes=["ObjectSize"])
    assert (attributes["VersionId"], attributes["ObjectSize"]) == (first, 4)


@pytest.mark.parametrize("mode, yields", [("GOVERNANCE", True), ("COMPLIANCE", False)])
def test_retained_versions_stay(s3, locked, mode, yields):
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    put = s3.put_object(Bucket=locked, Key="k", Body=b"x", ObjectLockMode=mode, ObjectLockRetainUntilDate=until)
    named = {"Bucket": locked, "Key": "k", "VersionId": put["VersionId"]}
    assert s3.get_object_retention(**named)["Retention"]["Mode"] == mode
    assert refusal(s3.delete_object, **named) == (403, "AccessDenied")
    shorter = {"Mode": mode, "RetainUntilDate": until - datetime.timedelta(hours=1)}
    assert refusal(s3.put_object_retention, **named, Retention=shorter) == (403, "AccessDenied")
    if yields:
        s3.delete_object(**named, BypassGovernanceRetention=True)
    else:
        assert refusal(s3.delete_object, **named, BypassGovernanceRetention=True) == (403, "AccessDenied")


def test_legal_holds_and_rules_of_buckets(s3, locked):
    rule = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}}
    s3.put_object_lock_configuration(Bucket=locked, ObjectLockConfiguration=rule)
    assert s3.get_object_lock_configuration(Bucket=locked)["ObjectLockConfiguration"] == rule
    put = s3.put_object(Bucket=locked, Key="k", Body=b"x", ObjectLockLegalHoldStatus="ON")
    named = {"Bucket": locked, "Key": "k", "VersionId": put["VersionId"]}
    head = s3.head_object(**named)
    assert (head["ObjectLockMode"], head["ObjectLockLegalHoldStatus"]) == ("GOVERNANCE", "ON")
    assert refusal(s3.delete_object, **named, BypassGovernanceRetention=True) == (403, "AccessDenied")
    s3.put_object_legal_hold(**named, LegalHold={"Status": "OFF"})
    s3.delete_object(**named, BypassGovernanceRetention=True)
    suspended = {"Status": "Suspended"}
    refused = refusal(s3.put_bucket_versioning, Bucket=locked, VersioningConfiguration=suspended)
    assert refused == (409, "InvalidBucketState")
