"""Conditions of reads, writes, copies and deletions, as tables."""

import datetime

import pytest
from test_boto3 import MIB, content, refusal

LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)
OTHER = '"0123456789abcdef0123456789abcdef"'
TAG = "the object's tag"
WHEN = "when it was written"

FAILED = (412, "PreconditionFailed")


@pytest.fixture
def there(s3, bucket):
    """An object; returns what conditions are filled in from."""
    tag = s3.put_object(Bucket=bucket, Key="k", Body=b"body")["ETag"]
    head = s3.head_object(Bucket=bucket, Key="k")
    return {TAG: tag, WHEN: head["LastModified"]}


def filled(conditions, there):
    return {name: there.get(value, value) if isinstance(value, str) else value for name, value in conditions.items()}


@pytest.mark.parametrize(
    "conditions, status",
    [
        ({"IfMatch": TAG}, 200),
        ({"IfMatch": "*"}, 200),
        ({"IfMatch": OTHER}, 412),
        ({"IfMatch": f"{OTHER}, *"}, 412),
        ({"IfNoneMatch": TAG}, 304),
        ({"IfNoneMatch": "*"}, 304),
        ({"IfNoneMatch": OTHER}, 200),
        ({"IfModifiedSince": LONG_AGO}, 200),
        ({"IfModifiedSince": WHEN}, 304),
        ({"IfUnmodifiedSince": LONG_AGO}, 412),
        ({"IfUnmodifiedSince": WHEN}, 200),
        # A tag says more than a time.
        ({"IfMatch": TAG, "IfUnmodifiedSince": LONG_AGO}, 200),
        ({"IfMatch": OTHER, "IfUnmodifiedSince": WHEN}, 412),
        ({"IfNoneMatch": OTHER, "IfModifiedSince": WHEN}, 200),
        ({"IfNoneMatch": TAG, "IfModifiedSince": LONG_AGO}, 304),
        ({"IfMatch": TAG, "IfNoneMatch": TAG}, 304),
        ({"IfMatch": TAG, "Range": "bytes=1-2"}, 206),
        ({"IfMatch": OTHER, "Range": "bytes=1-2"}, 412),
        ({"IfNoneMatch": TAG, "Range": "bytes=1-2"}, 304),
    ],
)
def test_reads(s3, bucket, there, conditions, status):
    conditions = filled(conditions, there)
    for read in [s3.get_object, s3.head_object]:
        if status < 300:
            assert read(Bucket=bucket, Key="k", **conditions)["ResponseMetadata"]["HTTPStatusCode"] == status
        else:
            assert refusal(read, Bucket=bucket, Key="k", **conditions)[0] == status
    # A condition on what is not there is not what is wrong.
    assert refusal(s3.get_object, Bucket=bucket, Key="none", **conditions) == (404, "NoSuchKey")


def put(s3, bucket, key, conditions):
    return s3.put_object(Bucket=bucket, Key=key, Body=b"new", **conditions)


def complete(s3, bucket, key, conditions):
    where = {"Bucket": bucket, "Key": key, "UploadId": s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]}
    part = s3.upload_part(**where, PartNumber=1, Body=b"new")
    return s3.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}, **conditions)


def copy(s3, bucket, key, conditions):
    s3.put_object(Bucket=bucket, Key="source", Body=b"new")
    return s3.copy_object(Bucket=bucket, Key=key, CopySource={"Bucket": bucket, "Key": "source"}, **conditions)


@pytest.mark.parametrize("write", [put, complete, copy], ids=lambda write: write.__name__)
@pytest.mark.parametrize(
    "key, conditions, expected",
    [
        ("k", {"IfMatch": TAG}, None),
        ("k", {"IfMatch": OTHER}, FAILED),
        ("k", {"IfNoneMatch": "*"}, FAILED),
        ("none", {"IfNoneMatch": "*"}, None),
        ("none", {"IfMatch": OTHER}, (404, "NoSuchKey")),
    ],
)
def test_writes(s3, bucket, there, write, key, conditions, expected):
    conditions = filled(conditions, there)
    if expected:
        assert refusal(write, s3, bucket, key, conditions) == expected
        assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"body"
    else:
        write(s3, bucket, key, conditions)
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"new"


@pytest.mark.parametrize(
    "conditions, expected",
    [
        ({"CopySourceIfMatch": TAG}, None),
        ({"CopySourceIfMatch": OTHER}, FAILED),
        ({"CopySourceIfNoneMatch": TAG}, FAILED),
        ({"CopySourceIfNoneMatch": OTHER}, None),
        ({"CopySourceIfModifiedSince": LONG_AGO}, None),
        ({"CopySourceIfUnmodifiedSince": LONG_AGO}, FAILED),
        ({"CopySourceIfMatch": TAG, "CopySourceIfUnmodifiedSince": LONG_AGO}, None),
        ({"CopySourceIfNoneMatch": TAG, "CopySourceIfModifiedSince": LONG_AGO}, FAILED),
    ],
)
def test_sources_of_copies(s3, bucket, there, conditions, expected):
    source = {"Bucket": bucket, "Key": "k"}
    upload = s3.create_multipart_upload(Bucket=bucket, Key="part")["UploadId"]
    for call, where in [(s3.copy_object, {"Key": "copy"}), (s3.upload_part_copy, {"Key": "part", "UploadId": upload, "PartNumber": 1})]:
        arguments = {"Bucket": bucket, "CopySource": source} | where | filled(conditions, there)
        if expected:
            assert refusal(call, **arguments) == expected
        else:
            call(**arguments)


@pytest.mark.parametrize(
    "conditions, expected",
    [
        ({"IfMatch": TAG}, None),
        ({"IfMatch": "*"}, None),
        ({"IfMatch": OTHER}, FAILED),
    ],
)
def test_deletions(s3, bucket, there, conditions, expected):
    conditions = filled(conditions, there)
    if expected:
        assert refusal(s3.delete_object, Bucket=bucket, Key="k", **conditions) == expected
        assert s3.head_object(Bucket=bucket, Key="k")["ContentLength"] == 4
    else:
        s3.delete_object(Bucket=bucket, Key="k", **conditions)
        assert refusal(s3.head_object, Bucket=bucket, Key="k")[0] == 404


def test_deletions_of_many_with_tags(s3, bucket, there):
    s3.put_object(Bucket=bucket, Key="other", Body=b"x")
    objects = [{"Key": "k", "ETag": there[TAG]}, {"Key": "other", "ETag": OTHER}]
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})
    assert [item["Key"] for item in answer["Deleted"]] == ["k"]
    assert [(item["Key"], item["Code"]) for item in answer["Errors"]] == [("other", "PreconditionFailed")]


def test_of_many_writers_one_is_first(s3, bucket):
    """Who creates a key on the condition that it is not there is alone in it, whatever the others do at that time."""
    from concurrent.futures import ThreadPoolExecutor

    from botocore.exceptions import ClientError

    def attempt(number):
        try:
            s3.put_object(Bucket=bucket, Key="lock", Body=str(number), IfNoneMatch="*")
            return number
        except ClientError as error:
            assert error.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict")
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [number for number in pool.map(attempt, range(32)) if number is not None]
    assert [s3.get_object(Bucket=bucket, Key="lock")["Body"].read().decode()] == [str(number) for number in won]


def test_large_bodies_find_their_refusal(server, s3, bucket):
    """The answer comes before the body was read: none is lost to a connection that is reset."""
    s3.put_object(Bucket=bucket, Key="k", Body=b"1")
    for size in [1, 100_000, MIB - 1, 3 * MIB]:
        assert refusal(s3.put_object, Bucket=bucket, Key="k", Body=content(size), IfNoneMatch="*") == FAILED
