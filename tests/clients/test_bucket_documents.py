"""Documents of buckets as boto3 sends them, one table per kind: what is taken, and the code and words with which the rest is refused."""

import json
import uuid

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from conftest import REGION
from test_boto3 import refusal
from test_users import outcome


def rule(*transitions, **more):
    steps = [{"Days": days, "StorageClass": storage} for days, storage in transitions]
    return {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": ""}} | ({"Transitions": steps} if steps else {}) | more


def noncurrent(transition=None, **expiration):
    steps = {"NoncurrentVersionTransitions": [{"NoncurrentDays": transition, "StorageClass": "GLACIER"}]} if transition is not None else {}
    return rule(**steps, **({"NoncurrentVersionExpiration": expiration} if expiration else {}))


LIFECYCLE = [
    (rule(Expiration={"Days": 1}), "ok"),
    (rule(), "InvalidRequest"),
    (rule((30, "STANDARD_IA"), (60, "GLACIER"), (150, "DEEP_ARCHIVE"), Expiration={"Days": 151}), "ok"),
    (rule((30, "STANDARD_IA"), (59, "GLACIER")), "InvalidArgument"),
    (rule((60, "STANDARD_IA"), (30, "GLACIER")), "InvalidArgument"),
    (rule((10, "GLACIER"), (10, "DEEP_ARCHIVE")), "InvalidArgument"),
    (rule((29, "ONEZONE_IA")), "InvalidArgument"),
    (rule((-1, "GLACIER")), "InvalidArgument"),
    (rule((0, "GLACIER")), "ok"),
    (rule((1, "STANDARD")), "MalformedXML"),
    (rule((1, "GLACIER"), (2, "GLACIER")), "InvalidRequest"),
    (rule((30, "GLACIER"), Expiration={"Days": 30}), "InvalidArgument"),
    (noncurrent(NoncurrentDays=1, NewerNoncurrentVersions=100), "ok"),
    (noncurrent(NoncurrentDays=1, NewerNoncurrentVersions=101), "InvalidArgument"),
    (noncurrent(NoncurrentDays=0), "InvalidArgument"),
    (noncurrent(5, NoncurrentDays=5), "InvalidArgument"),
    (noncurrent(5, NoncurrentDays=6), "ok"),
    (rule(Expiration={"ExpiredObjectDeleteMarker": True}), "ok"),
    (rule(Expiration={"ExpiredObjectDeleteMarker": True, "Days": 1}), "MalformedXML"),
    (rule(AbortIncompleteMultipartUpload={"DaysAfterInitiation": 0}), "InvalidArgument"),
    (rule(Filter={"Tag": {"Key": "a", "Value": "b"}}, AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1}), "InvalidRequest"),
    (rule(Filter={"And": {"Prefix": "a"}}, Expiration={"Days": 1}), "MalformedXML"),
    (rule(Filter={"And": {"ObjectSizeGreaterThan": 9, "ObjectSizeLessThan": 9}}, Expiration={"Days": 1}), "InvalidRequest"),
]


@pytest.mark.parametrize("said, expected", LIFECYCLE)
def test_lifecycle(s3, bucket, said, expected):
    configuration = {"Rules": [said]}
    assert outcome(s3.put_bucket_lifecycle_configuration, Bucket=bucket, LifecycleConfiguration=configuration) == expected
    if expected == "ok":
        assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"] == [said]


def routing(condition=None, **redirect):
    condition = {"Condition": condition} if condition else {}
    return {"IndexDocument": {"Suffix": "i.html"}, "RoutingRules": [condition | {"Redirect": redirect}]}


def on_error(code):
    return routing({"HttpErrorCodeReturnedEquals": code}, HostName="h")


WEBSITES = [
    ({"IndexDocument": {"Suffix": "i.html"}}, "ok"),
    ({"IndexDocument": {"Suffix": ""}}, "InvalidArgument"),
    ({"RedirectAllRequestsTo": {"HostName": "h"}}, "ok"),
    ({"RedirectAllRequestsTo": {"HostName": "h", "Protocol": "ftp"}}, "InvalidRequest"),
    *((routing(HostName="h", HttpRedirectCode=code), "ok") for code in ["301", "302", "303", "304", "305", "307", "308"]),
    *((routing(HostName="h", HttpRedirectCode=code), "InvalidRequest") for code in ["200", "300", "306", "309", "399"]),
    (routing(HostName="h", HttpRedirectCode="3xx"), "MalformedXML"),
    *((on_error(code), "ok") for code in ["400", "404", "417", "500", "505"]),
    *((on_error(code), "InvalidRequest") for code in ["399", "418", "499", "506"]),
    (on_error("4xx"), "MalformedXML"),
    (routing(ReplaceKeyWith="a", ReplaceKeyPrefixWith="b"), "InvalidRequest"),
    (routing(), "MalformedXML"),
]


@pytest.mark.parametrize("said, expected", WEBSITES)
def test_websites(s3, bucket, said, expected):
    assert outcome(s3.put_bucket_website, Bucket=bucket, WebsiteConfiguration=said) == expected


def statement(action="s3:GetObject", resource="/*", effect="Allow", principal="*", **more):
    return lambda bucket: {"Effect": effect, "Principal": principal, "Action": action, "Resource": f"arn:aws:s3:::{bucket}{resource}"} | more


def without(element):
    return lambda bucket: {name: value for name, value in statement()(bucket).items() if name != element}


POLICIES = [
    (statement(), "ok"),
    (statement(action="s3:PutObject", resource=""), "ok"),
    (statement(resource=""), "Action does not apply to any resource(s) in statement"),
    (statement(action="s3:ListBucket"), "Action does not apply to any resource(s) in statement"),
    (statement(action=["s3:GetObject", "s3:ListBucket"]), "Action does not apply to any resource(s) in statement"),
    (statement(action="s3:*"), "ok"),
    (statement(action="s3:Nonsense"), "Policy has invalid action"),
    (statement(resource="x/*"), "Policy has invalid resource"),
    (statement(Resource="*"), "Policy has invalid resource"),
    (statement(principal="nobody"), "Invalid principal in policy"),
    (statement(effect="Maybe"), "Invalid effect: Maybe"),
    (statement(Nonsense="x"), "Unknown field Nonsense"),
    (statement(Condition={"Equals": {"aws:Referer": "x"}}), "Invalid Condition type : Equals"),
    (statement(Condition={"StringEquals": {"s3:nonsense": "x"}}), "Policy has an invalid condition key"),
    (statement(Condition={"StringEquals": {"s3:prefix": "x"}}), "Conditions do not apply to combination of actions and resources in statement"),
    *((without(element), f"Missing required field {element}") for element in ["Effect", "Principal", "Action", "Resource"]),
]


@pytest.mark.parametrize("said, expected", POLICIES)
def test_policies(s3, bucket, said, expected):
    policy = json.dumps({"Version": "2012-10-17", "Statement": [said(bucket)]})
    try:
        s3.put_bucket_policy(Bucket=bucket, Policy=policy)
        told = "ok"
    except ClientError as error:
        assert error.response["Error"]["Code"] == "MalformedPolicy"
        told = error.response["Error"]["Message"]
    assert told == expected


REFERER = "aws:Referer"

# A condition; what a request is told that says so of where it comes from, `None` for nothing.
CONDITIONS = [
    ({"StringEquals": {REFERER: "a"}}, {"a": 200, "b": 403, None: 403}),
    ({"StringNotEquals": {REFERER: "a"}}, {"a": 403, "b": 200, None: 200}),
    ({"StringEqualsIfExists": {REFERER: "a"}}, {"a": 200, "b": 403, None: 200}),
    ({"StringEqualsIgnoreCase": {REFERER: "A"}}, {"a": 200, "b": 403}),
    ({"StringLike": {REFERER: ["a*", "?z"]}}, {"abc": 200, "yz": 200, "yyz": 403}),
    ({"StringNotLike": {REFERER: ["a*", "?z"]}}, {"abc": 403, "yz": 403, "yyz": 200, None: 200}),
    ({"Null": {REFERER: "true"}}, {"a": 403, None: 200}),
    ({"ForAllValues:StringEquals": {REFERER: ["a", "b"]}}, {"a": 200, "c": 403, None: 200}),
    ({"ForAnyValue:StringEquals": {REFERER: ["a", "b"]}}, {"a": 200, "c": 403, None: 403}),
    ({"NotIpAddress": {"aws:SourceIp": "127.0.0.0/8"}}, {None: 403}),
    ({"DateGreaterThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"}}, {None: 200}),
    ({"DateLessThan": {"aws:EpochTime": "1577836800"}}, {None: 403}),
    ({"Bool": {"aws:PrincipalIsAWSService": "false"}}, {None: 200}),
    ({"Bool": {"aws:ViaAWSService": "true"}}, {None: 403}),
    ({"StringLike": {REFERER: "${*}x"}}, {"*x": 200, "ax": 403}),
]


@pytest.mark.parametrize("condition, told", CONDITIONS)
def test_conditions(server, s3, bucket, condition, told):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    policy = {"Version": "2012-10-17", "Statement": [statement(Condition=condition)(bucket)]}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
    nobody = boto3.client(
        "s3", endpoint_url=server.endpoint, region_name=REGION, config=Config(signature_version=UNSIGNED, s3={"addressing_style": "path"})
    )
    for referer, status in told.items():

        def say(request, referer=referer, **_):
            if referer is not None:
                request.headers["Referer"] = referer

        nobody.meta.events.register_first("before-send.s3.GetObject", say)
        found = 200 if outcome(nobody.get_object, Bucket=bucket, Key="k") == "ok" else 403
        nobody.meta.events.unregister("before-send.s3.GetObject", say)
        assert found == status, referer
    s3.delete_bucket_policy(Bucket=bucket)


OTHERS = [
    ("put_public_access_block", {"PublicAccessBlockConfiguration": {}}, "InvalidRequest"),
    ("put_bucket_ownership_controls", {"OwnershipControls": {"Rules": []}}, "MalformedXML"),
    ("put_bucket_ownership_controls", {"OwnershipControls": {"Rules": [{"ObjectOwnership": "Mine"}]}}, "MalformedXML"),
    ("put_bucket_versioning", {"VersioningConfiguration": {"Status": "On"}}, "MalformedXML"),
    ("put_object_lock_configuration", {"ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled"}}, "InvalidBucketState"),
    ("put_object_lock_configuration", {}, "MissingRequestBodyError"),
    ("put_bucket_acl", {}, "MissingSecurityHeader"),
    ("put_bucket_acl", {"ACL": "public-read"}, "AccessControlListNotSupported"),
    ("put_bucket_acl", {"ACL": "public-read", "GrantRead": "id=x"}, "AccessControlListNotSupported"),
    ("put_bucket_tagging", {"Tagging": {"TagSet": [{"Key": "a", "Value": ""}] * 2}}, "InvalidTag"),
    ("get_bucket_policy", {}, "NoSuchBucketPolicy"),
    ("get_bucket_encryption", {}, "ServerSideEncryptionConfigurationNotFoundError"),
    ("get_bucket_replication", {}, "ReplicationConfigurationNotFoundError"),
    ("get_public_access_block", {}, "NoSuchPublicAccessBlockConfiguration"),
    ("get_object_lock_configuration", {}, "ObjectLockConfigurationNotFoundError"),
]


@pytest.mark.parametrize("operation, arguments, expected", OTHERS)
def test_others(s3, bucket, operation, arguments, expected):
    assert outcome(getattr(s3, operation), Bucket=bucket, **arguments) == expected


CREATIONS = [
    ({"ObjectOwnership": "Mine"}, (400, "InvalidArgument")),
    ({"ACL": "public"}, (400, "InvalidArgument")),
    ({"ACL": "public-read"}, (400, "InvalidBucketAclWithObjectOwnership")),
    ({"CreateBucketConfiguration": {"LocationConstraint": "mars"}}, (400, "InvalidLocationConstraint")),
    ({"CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}, (400, "IllegalLocationConstraintException")),
]


@pytest.mark.parametrize("arguments, expected", CREATIONS)
def test_creations(s3, arguments, expected):
    name = f"created-{uuid.uuid4().hex[:20]}"
    assert refusal(s3.create_bucket, Bucket=name, **arguments) == expected
    assert refusal(s3.head_bucket, Bucket=name)[0] == 404
