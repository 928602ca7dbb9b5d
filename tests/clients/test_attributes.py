"""What is told of objects: GetObjectAttributes, heads of parts, checksums of every kind; and who pays."""

import json
import uuid

import pytest
from test_access import client
from test_boto3 import MIB, content, refusal

ALL = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]

# Algorithms, and which kinds of checksum an upload in parts may have.
KINDS = [
    (algorithm, kind, allowed)
    for algorithm, allows in {
        "CRC32": {"COMPOSITE", "FULL_OBJECT"},
        "CRC32C": {"COMPOSITE", "FULL_OBJECT"},
        "CRC64NVME": {"FULL_OBJECT"},
        "SHA1": {"COMPOSITE"},
        "SHA256": {"COMPOSITE"},
        "SHA512": {"COMPOSITE"},
        "XXHASH64": {"COMPOSITE"},
        "XXHASH3": {"COMPOSITE"},
        "XXHASH128": {"COMPOSITE"},
    }.items()
    for kind in ["COMPOSITE", "FULL_OBJECT"]
    for allowed in [kind in allows]
]


def in_parts(s3, bucket, key, bodies, algorithm=None, kind=None):
    """Uploads; returns the answers to the parts and to the completion."""
    more = {"ChecksumAlgorithm": algorithm} if algorithm else {}
    create = more | ({"ChecksumType": kind} if kind else {})
    where = {"Bucket": bucket, "Key": key, "UploadId": s3.create_multipart_upload(Bucket=bucket, Key=key, **create)["UploadId"]}
    answers = [s3.upload_part(**where, PartNumber=number, Body=body, **more) for number, body in enumerate(bodies, 1)]
    field = f"Checksum{algorithm}"
    parts = [{"PartNumber": number, "ETag": part["ETag"]} | ({field: part[field]} if algorithm else {}) for number, part in enumerate(answers, 1)]
    return answers, s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})


@pytest.mark.parametrize("algorithm, kind, allowed", KINDS)
def test_kinds_of_checksums(s3, bucket, algorithm, kind, allowed):
    create = {"Bucket": bucket, "Key": "k", "ChecksumAlgorithm": algorithm, "ChecksumType": kind}
    if not allowed:
        assert refusal(s3.create_multipart_upload, **create)[0] == 400
        return
    bodies, field = [content(5 * MIB, 1), content(1000, 2)], f"Checksum{algorithm}"
    answers, done = in_parts(s3, bucket, "k", bodies, algorithm, kind)
    assert (done["ChecksumType"], done[field].endswith("-2")) == (kind, kind == "COMPOSITE")
    got = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=ALL)
    assert got["Checksum"]["ChecksumType"] == kind
    assert got["Checksum"][field] == done[field].removesuffix("-2")
    assert (got["ObjectSize"], got["ObjectParts"]["TotalPartsCount"], got["ETag"]) == (5 * MIB + 1000, 2, done["ETag"].strip('"'))
    if kind == "COMPOSITE":
        shown = [(part["PartNumber"], part["Size"], part[field]) for part in got["ObjectParts"]["Parts"]]
        assert shown == [(number, len(body), answer[field]) for number, (body, answer) in enumerate(zip(bodies, answers), 1)]
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert head[field] == done[field]
    body = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")["Body"].read()
    assert body == b"".join(bodies)
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "k"})
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == body


@pytest.mark.parametrize("asked", [["ETag"], ["ObjectSize"], ["StorageClass"], ["Checksum"], ["ETag", "ObjectSize"], ALL])
def test_only_what_is_asked_for_is_told(s3, bucket, asked):
    s3.put_object(Bucket=bucket, Key="k", Body=b"body", ChecksumAlgorithm="SHA256")
    got = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=asked)
    # An object that came as one body has no parts.
    assert {name for name in ALL if name in got} == set(asked) - {"ObjectParts"}
    assert got["LastModified"]


def test_parts_come_in_pages(s3, bucket):
    bodies = [content(5 * MIB, 1), content(5 * MIB, 2), content(7, 3)]
    in_parts(s3, bucket, "k", bodies, "CRC32", "COMPOSITE")
    first = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["ObjectParts"], MaxParts=2)["ObjectParts"]
    assert ([part["PartNumber"] for part in first["Parts"]], first["IsTruncated"], first["NextPartNumberMarker"]) == ([1, 2], True, 2)
    rest = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["ObjectParts"], MaxParts=2, PartNumberMarker=2)["ObjectParts"]
    assert ([part["Size"] for part in rest["Parts"]], rest["IsTruncated"], rest["TotalPartsCount"]) == ([7], False, 3)
    for number, body in enumerate(bodies, 1):
        got = s3.get_object(Bucket=bucket, Key="k", PartNumber=number)
        assert (got["PartsCount"], got["ContentLength"], got["ResponseMetadata"]["HTTPStatusCode"]) == (3, len(body), 206)
        assert got["Body"].read() == body
    assert refusal(s3.get_object, Bucket=bucket, Key="k", PartNumber=4) == (416, "InvalidPartNumber")
    assert refusal(s3.get_object, Bucket=bucket, Key="k", PartNumber=1, Range="bytes=0-1")[0] == 400


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"Key": "none"}, (404, "NoSuchKey")),
        ({"Key": "k", "VersionId": "01a2009c6fa30000"}, (404, "NoSuchVersion")),
        ({"Key": "k", "ObjectAttributes": ["Nothing"]}, (400, "InvalidArgument")),
        ({"Bucket": "no-such-bucket-here", "Key": "k"}, (404, "NoSuchBucket")),
    ],
)
def test_attributes_that_are_refused(s3, bucket, arguments, expected):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert refusal(s3.get_object_attributes, **({"Bucket": bucket, "ObjectAttributes": ["ETag"]} | arguments)) == expected


@pytest.mark.parametrize(
    "operation, arguments",
    [
        ("get_object", {"Key": "k"}),
        ("head_object", {"Key": "k"}),
        ("put_object", {"Key": "new", "Body": b"x"}),
        ("list_objects_v2", {}),
        ("get_object_tagging", {"Key": "k"}),
        ("delete_object", {"Key": "new"}),
    ],
)
def test_requesters_say_that_they_pay(server, s3, bucket, operation, arguments):
    """Others than the owner, who are let in by a policy."""
    iam = client(server, "iam", server.access_key, server.secret_key)
    statement = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    s3.put_bucket_request_payment(Bucket=bucket, RequestPaymentConfiguration={"Payer": "Requester"})
    assert s3.get_bucket_request_payment(Bucket=bucket)["Payer"] == "Requester"
    nobody = client(server, "s3")
    assert refusal(getattr(nobody, operation), Bucket=bucket, **arguments)[0] == 403
    name = f"payer-{uuid.uuid4().hex[:12]}"
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    # A user of the owner's account is the owner here: nobody asks him.
    user = client(server, "s3", key["AccessKeyId"], key["SecretAccessKey"])
    assert "RequestCharged" not in getattr(user, operation)(Bucket=bucket, **arguments)
    iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
    iam.delete_user(UserName=name)
    s3.put_bucket_request_payment(Bucket=bucket, RequestPaymentConfiguration={"Payer": "BucketOwner"})
    assert getattr(nobody, operation)(Bucket=bucket, **arguments)["ResponseMetadata"]["HTTPStatusCode"] < 300
