"""What buckets are configured with, as boto3 speaks of it: CORS, tags, payment, websites, lifecycle, logs; and browser forms."""

import base64
import datetime
import hashlib
import time
import urllib.error
import urllib.request
import uuid

import awscrt.checksums
import pytest
from conftest import serving
from test_boto3 import refusal


@pytest.mark.parametrize("algorithm", ["SHA512", "MD5", "XXHASH64", "XXHASH3", "XXHASH128"])
def test_newer_checksums(s3, bucket, algorithm):
    body = b"123456789" * 1000
    xxhash = awscrt.checksums.XXHash
    value = base64.b64encode(
        {
            "SHA512": lambda: hashlib.sha512(body).digest(),
            "MD5": lambda: hashlib.md5(body).digest(),
            "XXHASH64": lambda: summed(xxhash.new_xxhash64(), body),
            "XXHASH3": lambda: summed(xxhash.new_xxhash3_64(), body),
            "XXHASH128": lambda: summed(xxhash.new_xxhash3_128(), body),
        }[algorithm]()
    ).decode()
    field = f"Checksum{algorithm}"
    assert s3.put_object(Bucket=bucket, Key="k", Body=body, **{field: value})[field] == value
    assert s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")[field] == value
    wrong = base64.b64encode(bytes(len(base64.b64decode(value)))).decode()
    assert refusal(s3.put_object, Bucket=bucket, Key="bad", Body=body, **{field: wrong}) == (400, "BadDigest")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="parts", ChecksumAlgorithm=algorithm)
    assert upload["ChecksumType"] == "COMPOSITE"
    part = s3.upload_part(Bucket=bucket, Key="parts", UploadId=upload["UploadId"], PartNumber=1, Body=body, **{field: value})
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"], field: value}]}
    done = s3.complete_multipart_upload(Bucket=bucket, Key="parts", UploadId=upload["UploadId"], MultipartUpload=parts)
    assert done[field].endswith("-1")
    copied = s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "parts"}, ChecksumAlgorithm=algorithm)
    assert copied["CopyObjectResult"][field] == value


def summed(running, body):
    running.update(body)
    return running.finalize()


MISSING = [
    ("get_bucket_cors", "NoSuchCORSConfiguration"),
    ("get_bucket_tagging", "NoSuchTagSet"),
    ("get_bucket_website", "NoSuchWebsiteConfiguration"),
    ("get_bucket_lifecycle_configuration", "NoSuchLifecycleConfiguration"),
]


@pytest.mark.parametrize("operation, code", MISSING)
def test_what_is_not_configured(s3, bucket, operation, code):
    assert refusal(getattr(s3, operation), Bucket=bucket) == (404, code)
    assert refusal(getattr(s3, operation), Bucket="no-such-bucket-here") == (404, "NoSuchBucket")


RULE = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "a/"}, "Expiration": {"Days": 1}}

REFUSED = [
    ("cors", {"CORSConfiguration": {"CORSRules": [{"AllowedMethods": ["PATCH"], "AllowedOrigins": ["*"]}]}}, "InvalidRequest"),
    ("cors", {"CORSConfiguration": {"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*.*"]}]}}, "InvalidRequest"),
    ("cors", {"CORSConfiguration": {"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}] * 101}}, "InvalidRequest"),
    ("tagging", {"Tagging": {"TagSet": [{"Key": str(number), "Value": ""} for number in range(51)]}}, "BadRequest"),
    ("tagging", {"Tagging": {"TagSet": [{"Key": "aws:x", "Value": ""}]}}, "InvalidTag"),
    ("request_payment", {"RequestPaymentConfiguration": {"Payer": "Nobody"}}, "MalformedXML"),
    ("website", {"WebsiteConfiguration": {"IndexDocument": {"Suffix": "a/b"}}}, "InvalidArgument"),
    ("website", {"WebsiteConfiguration": {"ErrorDocument": {"Key": "e"}}}, "InvalidArgument"),
    ("logging", {"BucketLoggingStatus": {"LoggingEnabled": {"TargetBucket": "no-such-bucket-here", "TargetPrefix": ""}}}, "InvalidTargetBucketForLogging"),
    ("lifecycle_configuration", {"LifecycleConfiguration": {"Rules": [RULE, RULE]}}, "InvalidArgument"),
    ("lifecycle_configuration", {"LifecycleConfiguration": {"Rules": [RULE | {"ID": "i" * 256}]}}, "InvalidArgument"),
    ("lifecycle_configuration", {"LifecycleConfiguration": {"Rules": [RULE | {"Status": "enabled"}]}}, "MalformedXML"),
    ("lifecycle_configuration", {"LifecycleConfiguration": {"Rules": [RULE | {"Expiration": {"Days": 0}}]}}, "InvalidArgument"),
    ("lifecycle_configuration", {"LifecycleConfiguration": {"Rules": [RULE | {"Expiration": {"Date": datetime.datetime(2030, 1, 1, 1)}}]}}, "InvalidArgument"),
]


@pytest.mark.parametrize("what, arguments, code", REFUSED)
def test_configurations_that_are_refused(s3, bucket, what, arguments, code):
    assert refusal(getattr(s3, f"put_bucket_{what}"), Bucket=bucket, **arguments) == (400, code)


def test_configurations_come_back(s3, bucket):
    cors = [{"ID": "c", "AllowedMethods": ["GET", "PUT"], "AllowedOrigins": ["https://*.test"], "AllowedHeaders": ["*"], "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 9}]
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": cors})
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == cors
    tags = [{"Key": "team", "Value": "größe"}]
    s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
    assert s3.get_bucket_tagging(Bucket=bucket)["TagSet"] == tags
    assert s3.get_bucket_request_payment(Bucket=bucket)["Payer"] == "BucketOwner"
    s3.put_bucket_request_payment(Bucket=bucket, RequestPaymentConfiguration={"Payer": "Requester"})
    assert s3.get_bucket_request_payment(Bucket=bucket)["Payer"] == "Requester"
    rules = [{"Condition": {"KeyPrefixEquals": "a/"}, "Redirect": {"ReplaceKeyPrefixWith": "b/"}}]
    website = {"IndexDocument": {"Suffix": "i.html"}, "ErrorDocument": {"Key": "e.html"}, "RoutingRules": rules}
    s3.put_bucket_website(Bucket=bucket, WebsiteConfiguration=website)
    shown = s3.get_bucket_website(Bucket=bucket)
    assert {name: shown[name] for name in website} == website
    lifecycle = [
        RULE,
        {"ID": "v", "Status": "Disabled", "Filter": {"And": {"Prefix": "b", "Tags": [{"Key": "k", "Value": "v"}], "ObjectSizeGreaterThan": 5}}, "NoncurrentVersionExpiration": {"NoncurrentDays": 3, "NewerNoncurrentVersions": 2}},
        {"ID": "t", "Status": "Enabled", "Filter": {"Prefix": ""}, "Transitions": [{"Days": 0, "StorageClass": "GLACIER"}], "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}},
    ]
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": lifecycle})
    assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"] == lifecycle
    for what in ["cors", "tagging", "website", "lifecycle"]:
        getattr(s3, f"delete_bucket_{what}")(Bucket=bucket)
    for operation, code in MISSING:
        assert refusal(getattr(s3, operation), Bucket=bucket) == (404, code)


def test_expiration_is_announced(s3, bucket):
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [RULE]})
    put = s3.put_object(Bucket=bucket, Key="a/k", Body=b"x")
    assert 'rule-id="r"' in put["Expiration"]
    assert s3.head_object(Bucket=bucket, Key="a/k")["Expiration"] == put["Expiration"]
    assert "Expiration" not in s3.put_object(Bucket=bucket, Key="b", Body=b"x")


def test_browsers_may_ask(server, s3, bucket):
    rule = {"AllowedMethods": ["PUT"], "AllowedOrigins": ["https://page.test"], "AllowedHeaders": ["content-type"]}
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})

    def ask(method):
        headers = {"Origin": "https://page.test", "Access-Control-Request-Method": method}
        request = urllib.request.Request(f"{server.endpoint}/{bucket}/k", method="OPTIONS", headers=headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.headers["Access-Control-Allow-Origin"]
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Access-Control-Allow-Origin"]

    assert ask("PUT") == (200, "https://page.test")
    assert ask("GET") == (403, None)


def send_form(url, fields, file):
    boundary = uuid.uuid4().hex
    head = "".join(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items())
    head += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="f.txt"\r\nContent-Type: text/plain\r\n\r\n'
    body = head.encode() + file + f"\r\n--{boundary}--\r\n".encode()
    request = urllib.request.Request(url, data=body, headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("size, status", [(0, 400), (1, 204), (1 << 20, 204), ((1 << 20) + 1, 400)])
def test_presigned_posts(s3, bucket, size, status):
    fields, conditions = {"acl": "private"}, [{"acl": "private"}, ["content-length-range", 1, 1 << 20]]
    post = s3.generate_presigned_post(bucket, "dir/${filename}", Fields=fields, Conditions=conditions)
    assert send_form(post["url"], post["fields"], b"x" * size) == status
    if status == 204:
        assert s3.head_object(Bucket=bucket, Key="dir/f.txt")["ContentLength"] == size
    assert send_form(post["url"], post["fields"] | {"acl": "public-read"}, b"x") == 403
    assert send_form(post["url"], post["fields"] | {"x-amz-signature": "0" * 64}, b"x") == 403


def test_lifecycle_and_logs_do_their_work(tmp_path):
    with serving(tmp_path, "--lifecycle-debug-day", "500ms", "--logging-interval", "500ms") as server:
        s3 = server.client()
        for bucket in ["work", "logs"]:
            s3.create_bucket(Bucket=bucket)
        logging = {"LoggingEnabled": {"TargetBucket": "logs", "TargetPrefix": "log/"}}
        s3.put_bucket_logging(Bucket="work", BucketLoggingStatus=logging)
        s3.put_bucket_lifecycle_configuration(Bucket="work", LifecycleConfiguration={"Rules": [RULE]})
        for key in ["a/1", "a/2", "b/1"]:
            s3.put_object(Bucket="work", Key=key, Body=b"x")
        keys = lambda bucket: [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
        eventually(lambda: keys("work") == ["b/1"])
        eventually(lambda: keys("logs") != [])
        lines = s3.get_object(Bucket="logs", Key=keys("logs")[0])["Body"].read().decode()
        assert "work" in lines and "REST.PUT." in lines


def eventually(holds):
    for _ in range(600):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("not within a minute")
