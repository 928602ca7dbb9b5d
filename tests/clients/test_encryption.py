"""Server-side encryption with boto3: tables over kinds of keys, sizes, ranges, parts and copies."""

import base64
import hashlib
import os

import pytest
from boto3.s3.transfer import TransferConfig
from conftest import content, serving
from test_boto3 import MIB, refusal

SIZES = [0, 1, 65_536, 100_001, MIB, 9 * MIB + 5]


def customer(seed, copy=False):
    """Parameters of a customer's key; boto3 adds the MD5 and the encoding."""
    prefix = "CopySource" if copy else ""
    return {f"{prefix}SSECustomerAlgorithm": "AES256", f"{prefix}SSECustomerKey": bytes([seed]) * 32}


# What a request says to write, and to read again.
KINDS = {
    "plain": ({}, {}),
    "master": ({"ServerSideEncryption": "AES256"}, {}),
    "named": ({"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k2"}, {}),
    "customer": (customer(1), customer(1)),
    "other": (customer(2), customer(2)),
}
# With an MD5 boto3 sends both as they are given.
WRONG = base64.b64encode(b"k" * 32).decode()
ENCRYPTED = ["master", "named", "customer"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    place = tmp_path_factory.mktemp("encrypting")
    keys = place / "keys"
    with open(os.open(keys, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        for name in ("k1", "k2"):
            file.write(f"{name} {base64.b64encode(os.urandom(32)).decode()}\n")
    with serving(place, "--encryption-keys", keys) as server:
        yield server


@pytest.fixture(scope="module")
def s3(server):
    return server.client()


def is_told(kind, answer):
    told = {
        "plain": (None, None, None),
        "master": ("AES256", None, None),
        "named": ("aws:kms", "k2", None),
        "customer": (None, None, "AES256"),
        "other": (None, None, "AES256"),
    }
    names = ("ServerSideEncryption", "SSEKMSKeyId", "SSECustomerAlgorithm")
    assert tuple(answer.get(name) for name in names) == told[kind], kind


@pytest.mark.parametrize("kind", ENCRYPTED)
@pytest.mark.parametrize("size", SIZES)
def test_put_get_ranges(s3, bucket, kind, size):
    write, read = KINDS[kind]
    body = content(size)
    put = s3.put_object(Bucket=bucket, Key="k", Body=body, **write)
    is_told(kind, put)
    assert (put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"') == (kind == "master")
    got = s3.get_object(Bucket=bucket, Key="k", **read)
    is_told(kind, got)
    assert got["Body"].read() == body
    head = s3.head_object(Bucket=bucket, Key="k", **read)
    is_told(kind, head)
    assert (head["ContentLength"], head["ETag"]) == (size, put["ETag"])
    for first, last in [(0, 0), (1, 65_536), (65_535, 65_535), (size // 2, size)]:
        if first < size:
            part = s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={first}-{last}", **read)
            assert part["Body"].read() == body[first : last + 1], (first, last)
    assert s3.list_objects_v2(Bucket=bucket)["Contents"][0]["Size"] == size


@pytest.mark.parametrize("kind", ENCRYPTED)
def test_transfers_in_parts(s3, bucket, tmp_path, kind):
    write, read = KINDS[kind]
    body = content(17 * MIB + 3)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(body)
    parts = TransferConfig(multipart_threshold=MIB, multipart_chunksize=5 * MIB + 1)
    s3.upload_file(str(source), bucket, "k", ExtraArgs=write, Config=parts)
    s3.download_file(bucket, "k", str(target), ExtraArgs=read, Config=parts)
    assert target.read_bytes() == body
    second = s3.get_object(Bucket=bucket, Key="k", PartNumber=2, **read)
    assert second["Body"].read() == body[5 * MIB + 1 : 10 * MIB + 2]
    is_told(kind, second)


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
def test_copies(s3, bucket, source, target):
    body = content(200_000)
    s3.put_object(Bucket=bucket, Key="from", Body=body, **KINDS[source][0])
    shown = {"customer": customer(1, copy=True), "other": customer(2, copy=True)}.get(source, {})
    write, read = KINDS[target]
    is_told(target, s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/from", **shown, **write))
    got = s3.get_object(Bucket=bucket, Key="to", **read)
    is_told(target, got)
    assert got["Body"].read() == body


@pytest.mark.parametrize(
    ("written", "shown", "expected"),
    [
        ("customer", {}, (400, "InvalidRequest")),
        ("customer", customer(2), (400, "InvalidRequest")),
        ("plain", customer(1), (400, "InvalidRequest")),
        ("master", customer(1), (400, "InvalidRequest")),
        ("named", customer(1), (400, "InvalidRequest")),
        ("customer", customer(1) | {"SSECustomerAlgorithm": "AES128"}, (400, "InvalidEncryptionAlgorithmError")),
        ("customer", customer(1) | {"SSECustomerKey": b"short"}, (400, "InvalidArgument")),
        ("customer", customer(1) | {"SSECustomerKey": WRONG, "SSECustomerKeyMD5": WRONG}, (400, "InvalidArgument")),
    ],
)
def test_reads_are_refused(s3, bucket, written, shown, expected):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", **KINDS[written][0])
    assert refusal(s3.get_object, Bucket=bucket, Key="k", **shown) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "none"}, (400, "KMS.NotFoundException")),
        ({"ServerSideEncryption": "aws:kms"}, (400, "KMS.NotFoundException")),
        ({"ServerSideEncryption": "AES256", "SSEKMSKeyId": "k1"}, (400, "InvalidArgument")),
        ({"ServerSideEncryption": "AES257"}, (400, "InvalidArgument")),
        ({"ServerSideEncryption": "aws:kms:dsse", "SSEKMSKeyId": "k1"}, (501, "NotImplemented")),
        (customer(1) | {"ServerSideEncryption": "AES256"}, (400, "InvalidArgument")),
    ],
)
def test_writes_are_refused(s3, bucket, asked, expected):
    assert refusal(s3.put_object, Bucket=bucket, Key="k", Body=b"x", **asked) == expected
    assert refusal(s3.create_multipart_upload, Bucket=bucket, Key="k", **asked) == expected
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_encryption_of_a_bucket(s3, bucket):
    missing = (404, "ServerSideEncryptionConfigurationNotFoundError")
    assert refusal(s3.get_bucket_encryption, Bucket=bucket) == missing
    for rule, kind in [
        ({"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": False}, "master"),
        (
            {
                "ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "k2"},
                "BlockedEncryptionTypes": {"EncryptionType": ["SSE-C"]},
                "BucketKeyEnabled": True,
            },
            "named",
        ),
    ]:
        s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
        assert s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"] == {"Rules": [rule]}
        is_told(kind, s3.put_object(Bucket=bucket, Key="k", Body=b"x"))
        is_told(kind, s3.head_object(Bucket=bucket, Key="k"))
    assert refusal(s3.put_object, Bucket=bucket, Key="c", Body=b"x", **customer(1)) == (403, "AccessDenied")
    s3.delete_bucket_encryption(Bucket=bucket)
    assert refusal(s3.get_bucket_encryption, Bucket=bucket) == missing
    is_told("plain", s3.put_object(Bucket=bucket, Key="k", Body=b"x"))
