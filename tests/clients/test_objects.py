"""What AWS answers to requests on objects that are unusual or wrong, as tables."""

import base64
import datetime
import hashlib
import uuid
import zlib

import pytest
from test_boto3 import MIB, refusal

NOW = datetime.datetime.now(datetime.timezone.utc)
DAY = datetime.timedelta(days=1)
INVALID = (400, "InvalidArgument")
BAD_REQUEST = (400, "InvalidRequest")


def crc32(body):
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


def sha256(body):
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


@pytest.fixture
def plain(server):
    """A client that adds no checksums."""
    return server.client(request_checksum_calculation="when_required", response_checksum_validation="when_required")


@pytest.fixture
def locked(s3):
    name = f"locked-{uuid.uuid4()}"
    s3.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return name


@pytest.mark.parametrize(
    "size, header, expected",
    [
        (10, "bytes=0-8", "0-8"),
        (10, "bytes=00-01", "0-1"),
        (10, "bytes=1-", "1-9"),
        (10, "bytes=-2", "8-9"),
        (10, "bytes=-15", "0-9"),
        (10, "bytes=0-100", "0-9"),
        (10, "bytes=1-0", None),
        (10, "bytes=-1-", None),
        (10, "bytes=0--1", None),
        (10, "bytes=0-1,3-4", None),
        (10, "bytes=-", None),
        (10, "bytes= -1", None),
        (10, "0-8", None),
        (10, "bytes=-0", 416),
        (10, "bytes=10-", 416),
        (10, "bytes=100-200", 416),
        (0, "bytes=-1", None),
        (0, "bytes=0-", 416),
        (0, "bytes=0-0", 416),
        (0, "bytes=-0", 416),
    ],
)
def test_ranges(s3, bucket, size, header, expected):
    body = b"0123456789"[:size]
    s3.put_object(Bucket=bucket, Key="k", Body=body, ChecksumAlgorithm="SHA256")
    asked = {"Bucket": bucket, "Key": "k", "Range": header, "ChecksumMode": "ENABLED"}
    if expected == 416:
        assert refusal(s3.get_object, **asked) == (416, "InvalidRange")
        assert refusal(s3.head_object, **asked)[0] == 416
        return
    first, last = map(int, expected.split("-")) if expected else (0, size - 1)
    for read in [s3.get_object(**asked), s3.head_object(**asked)]:
        assert read["ResponseMetadata"]["HTTPStatusCode"] == (206 if expected else 200)
        assert read.get("ContentRange") == (f"bytes {expected}/{size}" if expected else None)
        assert read["ContentLength"] == last - first + 1
        # Of all bytes there is a checksum, whatever range they were asked by.
        assert ("ChecksumSHA256" in read) == (last - first + 1 == size)


@pytest.mark.parametrize(
    "source, expected",
    [
        ("{bucket}/k", None),
        ("/{bucket}/k", None),
        ("{bucket}%2Fk", None),
        ("{bucket}/%6B", None),
        ("{bucket}/none", (404, "NoSuchKey")),
        ("no-such-bucket-here/k", (404, "NoSuchBucket")),
        ("{bucket}", INVALID),
        ("{bucket}/", INVALID),
        ("{bucket}/%ZZ", INVALID),
        ("{bucket}/k%", INVALID),
        ("{bucket}/%ff", INVALID),
        ("192.168.1.1/k", INVALID),
        ("My_Bucket/k", INVALID),
        ("{bucket}/k?versionId=nonsense", INVALID),
        ("{bucket}/k?versionId=", INVALID),
        ("{bucket}/k?versionId=null", None),
    ],
)
def test_sources_of_copies(s3, bucket, source, expected):
    s3.put_object(Bucket=bucket, Key="k", Body=b"body")
    source = source.format(bucket=bucket)

    def as_it_is(params, **_):
        params["headers"]["x-amz-copy-source"] = source

    # Botocore would encode it.
    s3.meta.events.register("before-call.s3.CopyObject", as_it_is)
    s3.meta.events.register("before-call.s3.UploadPartCopy", as_it_is)
    upload = {"Bucket": bucket, "Key": "up", "UploadId": s3.create_multipart_upload(Bucket=bucket, Key="up")["UploadId"]}
    copies = [
        (s3.copy_object, {"Bucket": bucket, "Key": "to", "CopySource": "b/k"}),
        (s3.upload_part_copy, {**upload, "PartNumber": 1, "CopySource": "b/k"}),
    ]
    try:
        for copy, arguments in copies:
            if expected:
                assert refusal(copy, **arguments) == expected
            else:
                copy(**arguments)
    finally:
        s3.meta.events.unregister("before-call.s3.CopyObject", as_it_is)
        s3.meta.events.unregister("before-call.s3.UploadPartCopy", as_it_is)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("bytes=0-8", 9),
        ("bytes=9-9", 1),
        ("bytes=0-9", 10),
        ("0-8", INVALID),
        ("bytes=1-0", INVALID),
        ("bytes=-1-", INVALID),
        ("bytes=0-1,3-4", INVALID),
        ("bytes=-2", INVALID),
        ("bytes=1-", INVALID),
        ("bytes=0-100", INVALID),
        ("bytes=9-10", INVALID),
        ("bytes=100-200", BAD_REQUEST),
    ],
)
def test_ranges_of_sources(s3, bucket, text, expected):
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    upload = {"Bucket": bucket, "Key": "up", "UploadId": s3.create_multipart_upload(Bucket=bucket, Key="up")["UploadId"]}
    copy = {**upload, "PartNumber": 1, "CopySource": {"Bucket": bucket, "Key": "k"}, "CopySourceRange": text}
    if isinstance(expected, tuple):
        assert refusal(s3.upload_part_copy, **copy) == expected
    else:
        s3.upload_part_copy(**copy)
        assert [part["Size"] for part in s3.list_parts(**upload)["Parts"]] == [expected]


@pytest.mark.parametrize("number", [-1, 0, 10001, 2300000])
def test_numbers_of_parts(s3, bucket, number):
    upload = {"Bucket": bucket, "Key": "k", "UploadId": s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]}
    assert refusal(s3.upload_part, **upload, PartNumber=number, Body=b"x") == INVALID
    source = {"Bucket": bucket, "Key": "none"}
    assert refusal(s3.upload_part_copy, **upload, PartNumber=number, CopySource=source) == INVALID
    part = {"PartNumber": number, "ETag": "0" * 32}
    assert refusal(s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": [part]}) == INVALID


@pytest.mark.parametrize(
    "begun, given, expected",
    [
        ({}, {}, None),
        ({}, {"ChecksumCRC32": crc32(b"part")}, None),
        ({}, {"ChecksumCRC32": crc32(b"other")}, (400, "BadDigest")),
        ({}, {"ChecksumCRC32": "none"}, BAD_REQUEST),
        ({}, {"ChecksumCRC32": ""}, BAD_REQUEST),
        ({}, {"ChecksumCRC32": crc32(b"part"), "ChecksumSHA256": sha256(b"part")}, BAD_REQUEST),
        ({}, {"ChecksumCRC32": "", "ChecksumSHA256": ""}, BAD_REQUEST),
        ({"ChecksumAlgorithm": "SHA256"}, {}, BAD_REQUEST),
        ({"ChecksumAlgorithm": "SHA256"}, {"ChecksumCRC32": crc32(b"part")}, BAD_REQUEST),
        ({"ChecksumAlgorithm": "SHA256"}, {"ChecksumSHA256": sha256(b"part")}, None),
        ({"ChecksumAlgorithm": "CRC32", "ChecksumType": "COMPOSITE"}, {}, BAD_REQUEST),
        ({"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"}, {}, None),
        ({"ChecksumAlgorithm": "CRC64NVME"}, {}, None),
    ],
)
def test_checksums_of_parts(plain, bucket, begun, given, expected):
    begun = plain.create_multipart_upload(Bucket=bucket, Key="k", **begun)
    upload = {"Bucket": bucket, "Key": "k", "UploadId": begun["UploadId"]}
    if expected:
        assert refusal(plain.upload_part, **upload, PartNumber=1, Body=b"part", **given) == expected
    else:
        plain.upload_part(**upload, PartNumber=1, Body=b"part", **given)
        shown = plain.list_parts(**upload)["Parts"][0]
        assert any(name.startswith("Checksum") for name in shown) == ("ChecksumAlgorithm" in begun)


SHA_OF_PART = sha256(b"part")
SHA_OF_ALL = base64.b64encode(hashlib.sha256(hashlib.sha256(b"part").digest()).digest()).decode()
NAMED = {"ChecksumSHA256": SHA_OF_PART}


@pytest.mark.parametrize(
    "named, whole, expected",
    [
        (NAMED, {}, None),
        (NAMED, {"ChecksumSHA256": SHA_OF_ALL}, None),
        (NAMED, {"ChecksumSHA256": f"{SHA_OF_ALL}-1"}, None),
        (NAMED, {"ChecksumType": "COMPOSITE"}, None),
        (NAMED, {"MpuObjectSize": 4}, None),
        ({}, {}, BAD_REQUEST),
        ({"ChecksumSHA256": sha256(b"other")}, {}, (400, "InvalidPart")),
        ({"ChecksumSHA256": "none"}, {}, INVALID),
        ({"ChecksumCRC32": crc32(b"part")}, {}, (400, "BadDigest")),
        ({**NAMED, "ChecksumCRC32": crc32(b"part")}, {}, INVALID),
        ({**NAMED, "ETag": "0" * 32}, {}, (400, "InvalidPart")),
        ({**NAMED, "PartNumber": 2}, {}, (400, "InvalidPart")),
        (NAMED, {"ChecksumSHA256": SHA_OF_PART}, (400, "BadDigest")),
        (NAMED, {"ChecksumSHA256": f"{SHA_OF_ALL}-2"}, (400, "BadDigest")),
        (NAMED, {"ChecksumSHA256": f"{SHA_OF_ALL}-x"}, BAD_REQUEST),
        (NAMED, {"ChecksumSHA256": f"{SHA_OF_ALL}--1"}, BAD_REQUEST),
        (NAMED, {"ChecksumSHA256": "none"}, BAD_REQUEST),
        (NAMED, {"ChecksumSHA256": SHA_OF_ALL, "ChecksumCRC32": crc32(b"part")}, BAD_REQUEST),
        (NAMED, {"ChecksumType": "FULL_OBJECT"}, BAD_REQUEST),
        (NAMED, {"ChecksumType": "NONE"}, BAD_REQUEST),
        (NAMED, {"MpuObjectSize": 5}, BAD_REQUEST),
        (NAMED, {"MpuObjectSize": -1}, BAD_REQUEST),
    ],
)
def test_completions(plain, bucket, named, whole, expected):
    begun = plain.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm="SHA256")
    upload = {"Bucket": bucket, "Key": "k", "UploadId": begun["UploadId"]}
    part = plain.upload_part(**upload, PartNumber=1, Body=b"part", ChecksumSHA256=SHA_OF_PART)
    part = {"PartNumber": 1, "ETag": part["ETag"], **named}
    complete = {**upload, "MultipartUpload": {"Parts": [part]}, **whole}
    if expected:
        assert refusal(plain.complete_multipart_upload, **complete) == expected
    else:
        assert plain.complete_multipart_upload(**complete)["ChecksumSHA256"] == f"{SHA_OF_ALL}-1"


def test_checksums_that_were_not_asked_for(s3, bucket):
    """Parts come with the CRC32 that boto3 computes, where the upload is to have none in particular."""
    s3.meta.events.register("before-call.s3.CreateMultipartUpload", without_algorithm)
    try:
        parts_of(s3, bucket, "k", [b"a" * 5 * MIB, b"b"])
    finally:
        s3.meta.events.unregister("before-call.s3.CreateMultipartUpload", without_algorithm)
    part = s3.head_object(Bucket=bucket, Key="k", PartNumber=2, ChecksumMode="ENABLED")
    assert not any(name.startswith("Checksum") for name in part)
    assert s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")["ChecksumType"] == "FULL_OBJECT"


def without_algorithm(params, **_):
    params["headers"].pop("x-amz-checksum-algorithm", None)


def parts_of(s3, bucket, key, bodies, **begun):
    begun = s3.create_multipart_upload(Bucket=bucket, Key=key, **begun)
    upload = {"Bucket": bucket, "Key": key, "UploadId": begun["UploadId"]}
    given = {"ChecksumAlgorithm": begun["ChecksumAlgorithm"]} if "ChecksumAlgorithm" in begun else {}
    parts = []
    for number, body in enumerate(bodies, 1):
        part = s3.upload_part(**upload, PartNumber=number, Body=body, **given)
        checksums = {name: value for name, value in part.items() if name.startswith("Checksum") and given}
        parts.append({"PartNumber": number, "ETag": part["ETag"], **checksums})
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})


@pytest.mark.parametrize(
    "begun, of_part, of_only_part",
    [
        ({"ChecksumAlgorithm": "CRC32", "ChecksumType": "COMPOSITE"}, "COMPOSITE", "COMPOSITE"),
        ({"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"}, "FULL_OBJECT", "FULL_OBJECT"),
        ({}, "FULL_OBJECT", "FULL_OBJECT"),
    ],
)
def test_checksums_by_number_of_part(plain, bucket, begun, of_part, of_only_part):
    parts_of(plain, bucket, "two", [b"a" * 5 * MIB, b"b"], **begun)
    parts_of(plain, bucket, "one", [b"b"], **begun)
    for key, number, kind in [("two", 2, of_part), ("one", 1, of_only_part)]:
        for read in [plain.get_object, plain.head_object]:
            part = read(Bucket=bucket, Key=key, PartNumber=number, ChecksumMode="ENABLED")
            assert (part.get("ChecksumType"), part["ContentLength"], part["PartsCount"]) == (kind, 1, number)
            if begun and kind:
                assert part["ChecksumCRC32"] == crc32(b"b")


@pytest.mark.parametrize(
    "header, expected",
    [
        ("", {}),
        ("&", {}),
        ("key", {"key": ""}),
        ("key=&", {"key": ""}),
        ("a=1&b=2", {"a": "1", "b": "2"}),
        ("key%2E=value%2F", {"key.": "value/"}),
        ("k++k=v++v", {"k  k": "v  v"}),
        ("=", INVALID),
        ("=v", INVALID),
        ("key%", INVALID),
        ("k=v&k=v", INVALID),
        ("a=1,b=2", INVALID),
        ("key?=v", (400, "InvalidTag")),
        ("k=v!", (400, "InvalidTag")),
        ("aws:k=v", (400, "InvalidTag")),
        ("k" * 129, (400, "InvalidTag")),
        ("k=" + "v" * 257, (400, "InvalidTag")),
        ("&".join(f"k{number}" for number in range(11)), (400, "BadRequest")),
    ],
)
def test_tags_in_headers(s3, bucket, header, expected):
    s3.put_object(Bucket=bucket, Key="source", Body=b"x")
    source = {"Bucket": bucket, "Key": "source"}
    writes = [
        lambda **tagging: s3.put_object(Bucket=bucket, Key="k", Body=b"x", **tagging),
        lambda **tagging: s3.copy_object(Bucket=bucket, Key="k", CopySource=source, TaggingDirective="REPLACE", **tagging),
    ]
    for write in writes:
        if isinstance(expected, tuple):
            assert refusal(write, Tagging=header) == expected
        else:
            write(Tagging=header)
            tags = s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]
            assert {tag["Key"]: tag["Value"] for tag in tags} == expected
    begin = {"Bucket": bucket, "Key": "up", "Tagging": header}
    if isinstance(expected, tuple):
        assert refusal(s3.create_multipart_upload, **begin) == expected
    else:
        s3.create_multipart_upload(**begin)


@pytest.mark.parametrize(
    "given, shown",
    [
        ("plain", "plain"),
        ("=?UTF-8?Q?actually-ascii?=", "actually-ascii"),
        ("=?UTF-8?B?YWJj?=", "abc"),
        ("=?UTF-8?Q?=C3=84M=C3=84Z=C3=95=C3=91_S3?=", "=?UTF-8?Q?=C3=84M=C3=84Z=C3=95=C3=91_S3?="),
        ("=?UTF-8?B?w4RNw4Raw5XDkSBTMw==?=", "=?UTF-8?Q?=C3=84M=C3=84Z=C3=95=C3=91_S3?="),
        ("=?UTF-8?B?AAECAw==?=", "=?UTF-8?B?AAECAw==?="),
        ("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    ],
)
def test_encoded_words(s3, bucket, given, shown):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"m": given})
    assert s3.head_object(Bucket=bucket, Key="k")["Metadata"] == {"m": shown}


def test_bounds_of_metadata(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    long = {"m": "v" * 2048}
    source = {"Bucket": bucket, "Key": "k"}
    for refused in [
        refusal(s3.put_object, Bucket=bucket, Key="k", Body=b"x", Metadata=long),
        refusal(s3.create_multipart_upload, Bucket=bucket, Key="k", Metadata=long),
        refusal(s3.copy_object, Bucket=bucket, Key="c", CopySource=source, Metadata=long),
        refusal(s3.copy_object, Bucket=bucket, Key="c", CopySource=source, Metadata=long, MetadataDirective="REPLACE"),
    ]:
        assert refused == (400, "MetadataTooLarge")


LOCKS = [
    ({"ObjectLockMode": "GOVERNANCE"}, INVALID),
    ({"ObjectLockRetainUntilDate": NOW + DAY}, INVALID),
    ({"ObjectLockMode": "NONE", "ObjectLockRetainUntilDate": NOW + DAY}, INVALID),
    ({"ObjectLockMode": "COMPLIANCE", "ObjectLockRetainUntilDate": NOW - DAY}, INVALID),
    ({"ObjectLockLegalHoldStatus": "MAYBE"}, INVALID),
    ({"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": NOW + DAY}, None),
    ({"ObjectLockLegalHoldStatus": "ON"}, None),
    ({"ObjectLockLegalHoldStatus": "OFF"}, None),
]


@pytest.mark.parametrize("lock, expected", LOCKS)
def test_locks_of_what_is_made(s3, bucket, locked, lock, expected):
    for where, expected in [(bucket, expected or BAD_REQUEST), (locked, expected)]:
        s3.put_object(Bucket=where, Key="source", Body=b"x")
        makes = [
            lambda: s3.put_object(Bucket=where, Key="k", Body=b"x", **lock),
            lambda: s3.create_multipart_upload(Bucket=where, Key="k", **lock),
            lambda: s3.copy_object(Bucket=where, Key="k", CopySource={"Bucket": where, "Key": "source"}, **lock),
        ]
        for make in makes:
            if expected:
                assert refusal(make) == expected
            else:
                make()


def test_locks_where_there_are_none(s3, bucket, locked):
    retention = {"Mode": "GOVERNANCE", "RetainUntilDate": NOW + DAY}
    operations = [
        (s3.get_object_retention, {}),
        (s3.get_object_legal_hold, {}),
        (s3.put_object_retention, {"Retention": retention}),
        (s3.put_object_legal_hold, {"LegalHold": {"Status": "ON"}}),
    ]
    for operation, more in operations:
        for where in [bucket, locked]:
            assert refusal(operation, Bucket=where, Key="none", **more) == (404, "NoSuchKey")
        assert refusal(operation, Bucket="no-such-bucket-here", Key="k", **more) == (404, "NoSuchBucket")
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    for operation, more in operations:
        assert refusal(operation, Bucket=bucket, Key="k", **more) == BAD_REQUEST
    s3.put_object(Bucket=locked, Key="k", Body=b"x")
    for operation, _ in operations[:2]:
        assert refusal(operation, Bucket=locked, Key="k") == (404, "NoSuchObjectLockConfiguration")
    for where in [bucket, locked]:
        assert refusal(s3.put_object_legal_hold, Bucket=where, Key="k", LegalHold={"Status": "MAYBE"}) == (400, "MalformedXML")
        wrong = {"Mode": "NONE", "RetainUntilDate": NOW + DAY}
        assert refusal(s3.put_object_retention, Bucket=where, Key="k", Retention=wrong) == (400, "MalformedXML")
        half = {"Mode": "GOVERNANCE"}
        assert refusal(s3.put_object_retention, Bucket=where, Key="k", Retention=half) == (400, "MalformedXML")
        past = {"Mode": "GOVERNANCE", "RetainUntilDate": NOW - DAY}
        assert refusal(s3.put_object_retention, Bucket=where, Key="k", Retention=past) == INVALID
    # AWS refuses this where there are no locks, and many clients send it.
    s3.delete_object(Bucket=bucket, Key="k", BypassGovernanceRetention=True)


@pytest.mark.parametrize(
    "mode, change, bypass, expected",
    [
        ("GOVERNANCE", ("GOVERNANCE", 2), False, None),
        ("GOVERNANCE", ("GOVERNANCE", 1), False, None),
        ("GOVERNANCE", ("GOVERNANCE", 0.5), False, (403, "AccessDenied")),
        ("GOVERNANCE", ("GOVERNANCE", 0.5), True, None),
        ("GOVERNANCE", ("COMPLIANCE", 2), True, None),
        ("GOVERNANCE", None, False, (403, "AccessDenied")),
        ("GOVERNANCE", None, True, None),
        ("COMPLIANCE", ("COMPLIANCE", 2), False, None),
        ("COMPLIANCE", ("COMPLIANCE", 0.5), False, (403, "AccessDenied")),
        ("COMPLIANCE", ("COMPLIANCE", 0.5), True, (403, "AccessDenied")),
        ("COMPLIANCE", ("GOVERNANCE", 2), True, (403, "AccessDenied")),
        ("COMPLIANCE", None, True, (403, "AccessDenied")),
    ],
)
def test_changes_of_retention(s3, locked, mode, change, bypass, expected):
    until = {"ObjectLockMode": mode, "ObjectLockRetainUntilDate": NOW + DAY}
    version = s3.put_object(Bucket=locked, Key="k", Body=b"x", **until)["VersionId"]
    retention = {"Mode": change[0], "RetainUntilDate": NOW + DAY * change[1]} if change else {}
    put = {"Bucket": locked, "Key": "k", "VersionId": version, "Retention": retention, "BypassGovernanceRetention": bypass}
    if expected:
        assert refusal(s3.put_object_retention, **put) == expected
    else:
        s3.put_object_retention(**put)
        head = s3.head_object(Bucket=locked, Key="k")
        assert head.get("ObjectLockMode") == (change[0] if change else None)


def test_delete_markers(s3, locked):
    """Of tags and locks AWS tells a marker as one, also when none was named; reads find nothing."""
    s3.put_object(Bucket=locked, Key="k", Body=b"x")
    marker = s3.delete_object(Bucket=locked, Key="k")["VersionId"]
    tags = {"Tagging": {"TagSet": []}}
    for named in [{}, {"VersionId": marker}]:
        where = {"Bucket": locked, "Key": "k", **named}
        for operation, more in [(s3.get_object_tagging, {}), (s3.put_object_tagging, tags), (s3.delete_object_tagging, {})]:
            assert refusal(operation, **where, **more) == (405, "MethodNotAllowed")
        missing = (405, "MethodNotAllowed") if named else (404, "NoSuchKey")
        assert refusal(s3.get_object, **where) == missing
        assert refusal(s3.get_object_acl, **where) == missing
        assert refusal(s3.get_object_attributes, **where, ObjectAttributes=["ETag"]) == missing
    source = {"Bucket": locked, "Key": "k"}
    assert refusal(s3.copy_object, Bucket=locked, Key="c", CopySource=source) == (404, "NoSuchKey")
    source["VersionId"] = marker
    assert refusal(s3.copy_object, Bucket=locked, Key="c", CopySource=source) == BAD_REQUEST
    assert s3.delete_object(Bucket=locked, Key="k", VersionId=marker)["DeleteMarker"]
    assert s3.get_object(Bucket=locked, Key="k")["Body"].read() == b"x"


@pytest.mark.parametrize("version, expected", [("nonsense", INVALID), ("HPniJFCxqTsMuIH9KX8K8wEjNUgmABCD", INVALID), ("", INVALID)])
def test_ids_that_are_none(s3, bucket, version, expected):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    for operation in [s3.get_object, s3.delete_object, s3.get_object_tagging, s3.get_object_acl]:
        assert refusal(operation, Bucket=bucket, Key="k", VersionId=version) == expected
    if version:
        many = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k", "VersionId": version}]})
        assert [(error["Code"], error["VersionId"]) for error in many["Errors"]] == [("NoSuchVersion", version)]


def test_pages_of_uploads(s3, bucket):
    uploads = [s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"] for key in ["a", "a", "b"]]
    page = s3.list_multipart_uploads(Bucket=bucket)
    assert [upload["UploadId"] for upload in page["Uploads"]] == uploads
    assert (page["IsTruncated"], page["NextKeyMarker"], page["NextUploadIdMarker"]) == (False, "b", uploads[2])
    page = s3.list_multipart_uploads(Bucket=bucket, UploadIdMarker=uploads[0], MaxUploads=1)
    assert (page["UploadIdMarker"], page["NextKeyMarker"], page["NextUploadIdMarker"]) == ("", "a", uploads[0])
    page = s3.list_multipart_uploads(Bucket=bucket, KeyMarker="a", UploadIdMarker=uploads[0], MaxUploads=1)
    assert [upload["UploadId"] for upload in page["Uploads"]] == uploads[1:2]
    page = s3.list_multipart_uploads(Bucket=bucket, KeyMarker="aa")
    assert [upload["Key"] for upload in page["Uploads"]] == ["b"]
    page = s3.list_multipart_uploads(Bucket=bucket, KeyMarker="b")
    assert ("Uploads" in page, page["NextKeyMarker"], page["NextUploadIdMarker"]) == (False, "", "")
    assert refusal(s3.list_multipart_uploads, Bucket=bucket, KeyMarker="a", UploadIdMarker="none") == INVALID
    s3.abort_multipart_upload(Bucket=bucket, Key="a", UploadId=uploads[0])
    # A marker may be gone by the time it is used.
    page = s3.list_multipart_uploads(Bucket=bucket, KeyMarker="a", UploadIdMarker=uploads[0])
    assert [upload["UploadId"] for upload in page["Uploads"]] == uploads[1:]


def test_aborts_by_time(s3, bucket):
    upload = {"Bucket": bucket, "Key": "k", "UploadId": s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]}
    begun = s3.list_multipart_uploads(Bucket=bucket)["Uploads"][0]["Initiated"]
    refused = refusal(s3.abort_multipart_upload, **upload, IfMatchInitiatedTime=begun - DAY)
    assert refused == (412, "PreconditionFailed")
    s3.abort_multipart_upload(**upload, IfMatchInitiatedTime=begun)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
