"""Presigned URLs of every kind of request, sent by a client that knows no S3."""

import hashlib
import json
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET

import pytest
from conftest import content

MIB = 1 << 20
SPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"


def send(url, method="GET", body=None, headers=()):
    """(status, body, headers) of a plain request."""
    request = urllib.request.Request(url, data=body, method=method, headers={"Content-Type": ""} | dict(headers))
    request.remove_header("Content-type") if "Content-Type" not in dict(headers) else None
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


def code(body):
    return ET.fromstring(body).findtext("Code")


@pytest.fixture
def sign(s3):
    return lambda operation, seconds=60, **arguments: s3.generate_presigned_url(operation, arguments, ExpiresIn=seconds)


# operation, its arguments, method, body, status, what the answer holds
TABLE = [
    ("list_objects_v2", {"Prefix": "d/", "Delimiter": "/", "MaxKeys": 5}, "GET", None, 200, b"<KeyCount>1</KeyCount>"),
    ("list_objects", {"Prefix": "d/"}, "GET", None, 200, b"<Key>d/k%20%C3%BC%2B</Key>"),
    ("list_object_versions", {}, "GET", None, 200, b"<VersionId>null</VersionId>"),
    ("list_multipart_uploads", {}, "GET", None, 200, b"ListMultipartUploadsResult"),
    ("head_bucket", {}, "HEAD", None, 200, b""),
    ("get_bucket_location", {}, "GET", None, 200, b"LocationConstraint"),
    ("head_object", {"Key": "d/k ü+"}, "HEAD", None, 200, b""),
    ("get_object", {"Key": "d/k ü+"}, "GET", None, 200, b"body"),
    ("get_object", {"Key": "d/k ü+", "Range": "bytes=1-2"}, "GET", None, 206, b"od"),
    ("get_object", {"Key": "none"}, "GET", None, 404, b"NoSuchKey"),
    ("get_object_tagging", {"Key": "d/k ü+"}, "GET", None, 200, b"<Tagging"),
    ("get_object_acl", {"Key": "d/k ü+"}, "GET", None, 200, b"FULL_CONTROL"),
    ("delete_object", {"Key": "d/k ü+"}, "DELETE", None, 204, b""),
    ("put_object", {"Key": "d/k ü+"}, "PUT", b"other", 200, b""),
    ("create_multipart_upload", {"Key": "u"}, "POST", b"", 200, b"<UploadId>"),
    ("copy_object", {"Key": "c", "CopySource": "{bucket}/d/k ü+"}, "PUT", b"", 200, b"CopyObjectResult"),
    ("get_bucket_policy", {}, "GET", None, 404, b"NoSuchBucketPolicy"),
]


@pytest.mark.parametrize("operation, arguments, method, body, status, holds", TABLE, ids=[f"{row[0]}-{index}" for index, row in enumerate(TABLE)])
def test_operations(s3, bucket, sign, operation, arguments, method, body, status, holds):
    s3.put_object(Bucket=bucket, Key="d/k ü+", Body=b"body")
    arguments = {name: value.format(bucket=bucket) if isinstance(value, str) else value for name, value in arguments.items()}
    headers = {}
    if "Range" in arguments:
        headers["Range"] = arguments["Range"]
    if "CopySource" in arguments:
        headers["x-amz-copy-source"] = urllib.parse.quote(arguments["CopySource"])
    answer = send(sign(operation, Bucket=bucket, **arguments), method, body, headers)
    assert answer[0] == status and holds in answer[1], answer[:2]


def test_list_buckets(sign, bucket):
    assert f"<Name>{bucket}</Name>".encode() in send(sign("list_buckets"))[1]


def test_an_upload_in_parts_by_urls_alone(s3, bucket, sign):
    """What browsers and jobs without keys do: each part by a URL of its own."""
    where = {"Bucket": bucket, "Key": "large ü"}
    upload = ET.fromstring(send(sign("create_multipart_upload", **where), "POST", b"")[1]).findtext(f"{SPACE}UploadId")
    bodies = [content(5 * MIB, 1), content(1000, 2)]
    parts = ""
    for number, body in enumerate(bodies, 1):
        status, _, headers = send(sign("upload_part", **where, UploadId=upload, PartNumber=number), "PUT", body)
        assert status == 200
        parts += f"<Part><PartNumber>{number}</PartNumber><ETag>{headers['ETag']}</ETag></Part>"
    listed = send(sign("list_parts", **where, UploadId=upload))[1]
    assert [part.findtext(f"{SPACE}Size") for part in ET.fromstring(listed).iter(f"{SPACE}Part")] == [str(5 * MIB), "1000"]
    document = f'<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{parts}</CompleteMultipartUpload>'.encode()
    status, answer, _ = send(sign("complete_multipart_upload", **where, UploadId=upload), "POST", document)
    assert status == 200 and b"-2&quot;" in answer, answer
    assert send(sign("get_object", **where))[1] == b"".join(bodies)
    upload = s3.create_multipart_upload(**where)["UploadId"]
    assert send(sign("abort_multipart_upload", **where, UploadId=upload), "DELETE")[0] == 204
    assert code(send(sign("list_parts", **where, UploadId=upload))[1]) == "NoSuchUpload"


@pytest.mark.parametrize(
    "argument, parameter, header",
    [
        ("ResponseContentType", "text/z", "Content-Type"),
        ("ResponseContentDisposition", 'attachment; filename="ü a.txt"', "Content-Disposition"),
        ("ResponseContentEncoding", "br", "Content-Encoding"),
        ("ResponseContentLanguage", "de", "Content-Language"),
        ("ResponseCacheControl", "no-store", "Cache-Control"),
        ("ResponseExpires", "Wed, 01 Dec 2094 16:00:00 GMT", "Expires"),
    ],
)
def test_answers_as_they_were_asked_for(s3, bucket, sign, argument, parameter, header):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ContentType="text/own")
    if argument == "ResponseContentDisposition":
        parameter = parameter.replace("ü", "u")
    status, _, headers = send(sign("get_object", Bucket=bucket, Key="k", **{argument: parameter}))
    assert (status, headers[header]) == (200, parameter)


@pytest.mark.parametrize(
    "arguments, headers, status",
    [
        ({"ContentType": "text/x"}, {"Content-Type": "text/x"}, 200),
        ({"ContentType": "text/x"}, {"Content-Type": "text/y"}, 403),
        ({"ContentMD5": "XUFAKrxLKna5cZ2REBfFkg=="}, {"Content-MD5": "XUFAKrxLKna5cZ2REBfFkg=="}, 200),
        ({"ContentMD5": "XUFAKrxLKna5cZ2REBfFkg=="}, {}, 403),
        ({"Metadata": {"a": "1"}}, {"x-amz-meta-a": "1"}, 200),
        ({"Metadata": {"a": "1"}}, {"x-amz-meta-a": "2"}, 403),
        ({}, {"x-amz-meta-a": "1"}, 403),
        ({}, {"x-amz-acl": "public-read"}, 403),
        ({"Tagging": "a=1"}, {"x-amz-tagging": "a=1"}, 200),
        ({"ServerSideEncryption": "AES256"}, {"x-amz-server-side-encryption": "AES256"}, 200),
        ({"IfNoneMatch": "*"}, {"If-None-Match": "*"}, 200),
        ({"IfMatch": '"none"'}, {"If-Match": '"none"'}, 404),
    ],
)
def test_headers_that_belong_to_a_signature(bucket, sign, arguments, headers, status):
    answer = send(sign("put_object", Bucket=bucket, Key="k", **arguments), "PUT", b"hello", headers)
    assert answer[0] == status, answer[1]


def test_what_makes_a_url_worthless(server, s3, bucket, sign):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    url = sign("get_object", Bucket=bucket, Key="k")
    changed = {
        "SignatureDoesNotMatch": [
            url.replace(f"/{bucket}/k?", f"/{bucket}/other?"),
            url.replace("X-Amz-Expires=60", "X-Amz-Expires=600"),
            url + "&versionId=null",
            url[:-4] + "0000",
        ],
        "InvalidAccessKeyId": [url.replace(server.access_key, "SOMEBODY")],
        "AuthorizationQueryParametersError": [url.replace("X-Amz-Expires=60", "X-Amz-Expires=604801"), url.replace("X-Amz-Expires=60&", "")],
    }
    for expected, urls in changed.items():
        for other in urls:
            status, body, _ = send(other)
            assert code(body) == expected and status in (400, 403), (other, body)
    assert code(send(url, "PUT", b"")[1]) == "SignatureDoesNotMatch"
    assert send(url)[:2] == (200, b"x")


def test_urls_for_virtual_hosts_and_conditions_of_policies(server, s3, bucket):
    """A policy may refuse signatures in URLs."""
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    url = server.client().generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"})
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/*"}
    policy = deny | {"Condition": {"StringEquals": {"s3:authType": "REST-QUERY-STRING"}}}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [policy]}))
    assert send(url)[0] == 403
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"
    s3.delete_bucket_policy(Bucket=bucket)
    assert send(url)[0] == 200


def test_a_url_of_the_sdk_for_javascript(s3, bucket):
    """It has the CRC of an empty body in it, which AWS ignores."""
    arguments = {"Bucket": bucket, "Key": "k", "ChecksumCRC32": "AAAAAA=="}
    url = s3.generate_presigned_url("put_object", arguments, ExpiresIn=60)
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
    if "x-amz-checksum-crc32" in query:
        assert send(url, "PUT", b"body")[0] == 200
    else:
        assert send(url, "PUT", b"body", {"x-amz-checksum-crc32": "AAAAAA=="})[0] == 400


FORM = [
    ({}, [], b"body", 204),
    ({"success_action_status": "201"}, [{"success_action_status": "201"}], b"body", 201),
    ({"Content-Type": "text/x"}, [{"Content-Type": "text/x"}], b"body", 204),
    ({"Content-Type": "text/x"}, [["starts-with", "$Content-Type", "text/"]], b"body", 204),
    ({"Content-Type": "image/x"}, [["starts-with", "$Content-Type", "text/"]], b"body", 403),
    ({"x-amz-meta-a": "1"}, [], b"body", 403),
    ({}, [["content-length-range", 1, 3]], b"body", 400),
    ({}, [["content-length-range", 5, 9]], b"body", 400),
    ({"tagging": "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>"}, [["starts-with", "$tagging", ""]], b"body", 204),
]


@pytest.mark.parametrize("fields, conditions, body, status", FORM)
def test_forms(s3, bucket, fields, conditions, body, status):
    post = s3.generate_presigned_post(bucket, "dir/${filename}", Fields=dict(fields), Conditions=conditions)
    boundary = "boundary-of-the-test"
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in post["fields"].items()]
    parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a b.txt"\r\n\r\n')
    form = "".join(parts).encode() + body + f"\r\n--{boundary}--\r\n".encode()
    answer = send(post["url"], "POST", form, {"Content-Type": f"multipart/form-data; boundary={boundary}"})
    assert answer[0] == status, answer[1]
    if status < 300:
        got = s3.get_object(Bucket=bucket, Key="dir/a b.txt")
        assert got["Body"].read() == body and got["ETag"].strip('"') == hashlib.md5(body).hexdigest()
        if "Content-Type" in fields:
            assert got["ContentType"] == fields["Content-Type"]
