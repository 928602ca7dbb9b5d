"""boto3 with the defaults of its newest release."""

import base64
import hashlib
import io
import socket
import urllib.error
import urllib.request
import zlib

import awscrt.checksums
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from conftest import DOMAIN, content

MIB = 1 << 20


def refusal(call, *arguments, **keywords):
    """(HTTP status, error code) of a call that must fail."""
    with pytest.raises(ClientError) as caught:
        call(*arguments, **keywords)
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


@pytest.mark.parametrize("size", [0, 1, 4096, MIB, MIB + 1, 9 * MIB + 5])
def test_put_get_head(s3, bucket, size):
    body = content(size)
    put = s3.put_object(Bucket=bucket, Key="k", Body=body, ContentType="text/x", Metadata={"a": "1"})
    assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    got = s3.get_object(Bucket=bucket, Key="k")
    assert got["Body"].read() == body
    assert (got["ContentType"], got["Metadata"]) == ("text/x", {"a": "1"})
    head = s3.head_object(Bucket=bucket, Key="k")
    assert (head["ContentLength"], head["ETag"]) == (size, put["ETag"])
    assert head["ResponseMetadata"]["RequestId"]


def test_default_checksum_of_the_newest_sdk(s3, bucket):
    """Since 1.36 boto3 sends a CRC of its own accord, in a trailer for streams, and checks what it reads."""
    body = content(3 * MIB)
    put = s3.put_object(Bucket=bucket, Key="k", Body=body)
    assert [name for name in put if name.startswith("Checksum") and name != "ChecksumType"], put
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    for name in put:
        if name.startswith("Checksum"):
            assert head[name] == put[name]
    s3.put_object(Bucket=bucket, Key="stream", Body=io.BytesIO(body))
    assert s3.get_object(Bucket=bucket, Key="stream")["Body"].read() == body


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_checksum_algorithms(s3, bucket, algorithm):
    body = content(100_000)
    expected = {
        "CRC32": lambda: zlib.crc32(body).to_bytes(4, "big"),
        "CRC32C": lambda: awscrt.checksums.crc32c(body).to_bytes(4, "big"),
        "CRC64NVME": lambda: awscrt.checksums.crc64nvme(body).to_bytes(8, "big"),
        "SHA1": lambda: hashlib.sha1(body).digest(),
        "SHA256": lambda: hashlib.sha256(body).digest(),
    }[algorithm]()
    value = base64.b64encode(expected).decode()
    put = s3.put_object(Bucket=bucket, Key="k", Body=body, ChecksumAlgorithm=algorithm)
    assert put[f"Checksum{algorithm}"] == value
    s3.put_object(Bucket=bucket, Key="given", Body=body, **{f"Checksum{algorithm}": value})
    for key in ["k", "given"]:
        got = s3.get_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        assert got[f"Checksum{algorithm}"] == value
        assert got["Body"].read() == body
    wrong = base64.b64encode(bytes(len(expected))).decode()
    assert refusal(s3.put_object, Bucket=bucket, Key="bad", Body=body, **{f"Checksum{algorithm}": wrong}) == (400, "BadDigest")
    attributes = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["Checksum", "ObjectSize", "ETag"])
    assert attributes["Checksum"][f"Checksum{algorithm}"] == value
    assert attributes["ObjectSize"] == len(body)


@pytest.mark.parametrize(
    "config", [{"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}, {"s3": {"payload_signing_enabled": True}}]
)
def test_other_ways_to_send_a_body(server, bucket, config):
    s3 = server.client(**config)
    for size in [0, 1000, 2 * MIB]:
        body = content(size)
        s3.put_object(Bucket=bucket, Key="k", Body=io.BytesIO(body))
        assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == body


@pytest.mark.parametrize("part_mib, size", [(5, 5 * MIB), (5, 12 * MIB + 7), (8, 33 * MIB)])
def test_multipart_by_upload_fileobj(s3, bucket, part_mib, size):
    body = content(size)
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=part_mib * MIB, max_concurrency=4)
    s3.upload_fileobj(io.BytesIO(body), bucket, "k", Config=config, ExtraArgs={"Metadata": {"m": "1"}})
    into = io.BytesIO()
    s3.download_fileobj(bucket, "k", into, Config=config)
    assert into.getvalue() == body
    head = s3.head_object(Bucket=bucket, Key="k")
    parts = -(-size // (part_mib * MIB))
    assert head["ETag"].endswith(f'-{parts}"')
    assert head["Metadata"] == {"m": "1"}
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    s3.copy({"Bucket": bucket, "Key": "k"}, bucket, "copy", Config=config)
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == body


@pytest.mark.parametrize("algorithm, kind", [("CRC32", "COMPOSITE"), ("CRC32", "FULL_OBJECT"), ("CRC32C", "COMPOSITE"), ("CRC64NVME", "FULL_OBJECT"), ("SHA256", "COMPOSITE")])
def test_multipart_checksums(s3, bucket, algorithm, kind):
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm=algorithm, ChecksumType=kind)["UploadId"]
    where = {"Bucket": bucket, "Key": "k", "UploadId": upload}
    bodies, parts = [content(5 * MIB, 1), content(100, 2)], []
    for number, body in enumerate(bodies, 1):
        part = s3.upload_part(**where, PartNumber=number, Body=body, ChecksumAlgorithm=algorithm)
        name = f"Checksum{algorithm}"
        parts.append({"PartNumber": number, "ETag": part["ETag"], name: part[name]})
    listed = s3.list_parts(**where)
    assert [(part["PartNumber"], part["Size"]) for part in listed["Parts"]] == [(1, 5 * MIB), (2, 100)]
    done = s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts}, ChecksumType=kind)
    assert done["ChecksumType"] == kind
    value = done[f"Checksum{algorithm}"]
    if (algorithm, kind) == ("CRC32", "FULL_OBJECT"):
        assert value == base64.b64encode(zlib.crc32(b"".join(bodies)).to_bytes(4, "big")).decode()
    assert value.endswith("-2") == (kind == "COMPOSITE")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"".join(bodies)


def test_ranges(s3, bucket):
    body = content(3 * MIB)
    s3.put_object(Bucket=bucket, Key="k", Body=body)
    for text, part in [("0-9", body[:10]), ("-5", body[-5:]), ("3000000-", body[3_000_000:]), ("1048570-1048590", body[1048570:1048591])]:
        got = s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={text}")
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
        assert got["Body"].read() == part, text
    assert refusal(s3.get_object, Bucket=bucket, Key="k", Range=f"bytes={len(body)}-") == (416, "InvalidRange")


def test_conditional_writes(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    assert refusal(s3.put_object, Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*") == (412, "PreconditionFailed")
    assert refusal(s3.put_object, Bucket=bucket, Key="k", Body=b"2", IfMatch='"other"') == (412, "PreconditionFailed")
    s3.put_object(Bucket=bucket, Key="k", Body=b"2", IfMatch=etag)
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"2"
    assert refusal(s3.get_object, Bucket=bucket, Key="k", IfMatch=etag) == (412, "PreconditionFailed")
    now = s3.head_object(Bucket=bucket, Key="k")["ETag"]
    assert refusal(s3.get_object, Bucket=bucket, Key="k", IfNoneMatch=now)[0] == 304


def test_copy(s3, bucket):
    body = content(2 * MIB)
    s3.put_object(Bucket=bucket, Key="dir/söurce +%", Body=body, Metadata={"a": "1"})
    source = {"Bucket": bucket, "Key": "dir/söurce +%"}
    s3.copy_object(Bucket=bucket, Key="same", CopySource=source)
    s3.copy_object(Bucket=bucket, Key="new", CopySource=source, MetadataDirective="REPLACE", Metadata={"b": "2"})
    s3.delete_object(Bucket=bucket, Key="dir/söurce +%")
    for key, metadata in [("same", {"a": "1"}), ("new", {"b": "2"})]:
        got = s3.get_object(Bucket=bucket, Key=key)
        assert (got["Body"].read(), got["Metadata"]) == (body, metadata)


def test_paginators(s3, bucket):
    keys = sorted(f"{group}/{index:03}" for group in "abc" for index in range(25))
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key)
    for name in ["list_objects_v2", "list_objects"]:
        pages = list(s3.get_paginator(name).paginate(Bucket=bucket, PaginationConfig={"PageSize": 10}))
        assert [item["Key"] for page in pages for item in page["Contents"]] == keys
        assert len(pages) == 8
        pages = s3.get_paginator(name).paginate(Bucket=bucket, Delimiter="/", PaginationConfig={"PageSize": 2})
        assert [item["Prefix"] for page in pages for item in page.get("CommonPrefixes", [])] == ["a/", "b/", "c/"]
    # boto3 asks for URL encoding and decodes it again.
    s3.put_object(Bucket=bucket, Key="d/ü &+\x01")
    assert s3.list_objects_v2(Bucket=bucket, Prefix="d/")["Contents"][0]["Key"] == "d/ü &+\x01"
    s3.delete_object(Bucket=bucket, Key="d/ü &+\x01")  # DeleteObjects could not: XML has no such character


def test_delete_objects(s3, bucket):
    keys = [f"k{index}" for index in range(50)] + ["ü <&>"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key)
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys + ["missing"]]})
    assert {item["Key"] for item in answer["Deleted"]} == set(keys) | {"missing"}
    assert "Errors" not in answer
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_presigned_urls(server, s3, bucket):
    put = s3.generate_presigned_url("put_object", {"Bucket": bucket, "Key": "a b/ü"}, ExpiresIn=60)
    request = urllib.request.Request(put, data=b"presigned", method="PUT")
    assert urllib.request.urlopen(request).status == 200
    get = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "a b/ü", "ResponseContentType": "text/z"}, ExpiresIn=60)
    with urllib.request.urlopen(get) as answer:
        assert (answer.read(), answer.headers["Content-Type"]) == (b"presigned", "text/z")
    forged = get.replace("response-content-type=text%2Fz", "response-content-type=text%2Fhtml")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(forged)
    assert caught.value.code == 403
    attack = urllib.request.Request(put, data=b"", method="PUT", headers={"x-amz-copy-source": f"{bucket}/a%20b/%C3%BC"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(attack)
    assert caught.value.code in (400, 403)


def test_virtual_host_addressing(server, bucket, monkeypatch):
    """`bucket.s3.gabion.test` is resolved to the server here, as a wildcard DNS entry would."""
    resolve = socket.getaddrinfo

    def resolver(host, *arguments, **keywords):
        return resolve("127.0.0.1" if str(host).endswith(DOMAIN) else host, *arguments, **keywords)

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    plain = server.endpoint
    server.endpoint = f"http://{DOMAIN}:{server.port}"
    try:
        s3 = server.client(s3={"addressing_style": "virtual"})
    finally:
        server.endpoint = plain
    s3.put_object(Bucket=bucket, Key="dir/k", Body=b"virtual")
    assert s3.get_object(Bucket=bucket, Key="dir/k")["Body"].read() == b"virtual"
    assert [item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["dir/k"]
    assert bucket in [item["Name"] for item in s3.list_buckets()["Buckets"]]
    url = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "dir/k"})
    assert url.startswith(f"http://{bucket}.{DOMAIN}")
    assert urllib.request.urlopen(url).read() == b"virtual"


@pytest.mark.parametrize(
    "operation, arguments, expected",
    [
        ("get_object", {"Key": "none"}, (404, "NoSuchKey")),
        ("head_object", {"Key": "none"}, (404, "404")),
        ("get_object", {"Bucket": "no-such-bucket-here", "Key": "k"}, (404, "NoSuchBucket")),
        ("list_objects_v2", {"Bucket": "no-such-bucket-here"}, (404, "NoSuchBucket")),
        ("upload_part", {"Key": "k", "UploadId": "none", "PartNumber": 1, "Body": b""}, (404, "NoSuchUpload")),
        ("list_objects_v2", {"ContinuationToken": "!"}, (400, "InvalidArgument")),
        ("put_object", {"Key": "k" * 1025}, (400, "KeyTooLongError")),
        ("put_object", {"Key": "k", "ContentMD5": "AAAAAAAAAAAAAAAAAAAAAA=="}, (400, "BadDigest")),
        ("put_bucket_versioning", {"VersioningConfiguration": {"Status": "On"}}, (400, "MalformedXML")),
        ("put_bucket_policy", {"Policy": "{}"}, (400, "MalformedPolicy")),
        ("get_object_torrent", {"Key": "k"}, (501, "NotImplemented")),
    ],
)
def test_errors(s3, bucket, operation, arguments, expected):
    assert refusal(getattr(s3, operation), **({"Bucket": bucket} | arguments)) == expected


def test_wrong_secret(server):
    secret, server.secret_key = server.secret_key, "wrong"
    try:
        liar = server.client()
    finally:
        server.secret_key = secret
    assert refusal(liar.list_buckets) == (403, "SignatureDoesNotMatch")


def test_streaming_reads_can_be_left_early(s3, bucket):
    body = content(16 * MIB)
    s3.put_object(Bucket=bucket, Key="k", Body=body)
    for _ in range(20):
        stream = s3.get_object(Bucket=bucket, Key="k")["Body"]
        assert stream.read(1000) == body[:1000]
        stream.close()
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == body


def test_tags(s3, bucket):
    """Tags in the header, on their own, and of copies."""
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="project=nhr%2F42&stage=raw")
    shown = lambda key: {tag["Key"]: tag["Value"] for tag in s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]}
    assert shown("k") == {"project": "nhr/42", "stage": "raw"}
    assert s3.get_object(Bucket=bucket, Key="k")["TagCount"] == 2
    tags = {"stage": "done", "größe": "ä b"}
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]})
    assert shown("k") == tags
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "k"})
    assert shown("copy") == tags
    s3.copy_object(Bucket=bucket, Key="other", CopySource={"Bucket": bucket, "Key": "k"}, TaggingDirective="REPLACE", Tagging="a=1")
    assert shown("other") == {"a": "1"}
    s3.delete_object_tagging(Bucket=bucket, Key="k")
    assert shown("k") == {} and s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"
    many = {"TagSet": [{"Key": str(number), "Value": ""} for number in range(11)]}
    assert refusal(s3.put_object_tagging, Bucket=bucket, Key="k", Tagging=many) == (400, "BadRequest")
    assert refusal(s3.get_object_tagging, Bucket=bucket, Key="none") == (404, "NoSuchKey")
