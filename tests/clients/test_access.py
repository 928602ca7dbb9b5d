"""Who may do what, as boto3 asks: policies of buckets and users, ACLs, ownership, public access; by nobody, a user, the root."""

import json
import uuid

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from conftest import REGION

ALL_USERS = "http://acs.amazonaws.com/groups/global/AllUsers"


def client(server, service, access_key=None, secret_key=None):
    signed = {"aws_access_key_id": access_key, "aws_secret_access_key": secret_key} if access_key else {}
    version = {} if access_key else {"signature_version": UNSIGNED}
    config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}, **version)
    return boto3.client(service, endpoint_url=server.endpoint, region_name=REGION, config=config, **signed)


@pytest.fixture(scope="module")
def nobody(server):
    return client(server, "s3")


@pytest.fixture(scope="module")
def user(server):
    """A user without policies: his client, his name and ARN, and the client of IAM."""
    iam = client(server, "iam", server.access_key, server.secret_key)
    name = f"user-{uuid.uuid4().hex[:12]}"
    arn = iam.create_user(UserName=name)["User"]["Arn"]
    key = iam.create_access_key(UserName=name)["AccessKey"]
    yield client(server, "s3", key["AccessKeyId"], key["SecretAccessKey"]), name, arn, iam
    for policy in iam.list_user_policies(UserName=name)["PolicyNames"]:
        iam.delete_user_policy(UserName=name, PolicyName=policy)
    iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
    iam.delete_user(UserName=name)


@pytest.fixture
def acl_bucket(s3):
    """A bucket in which ACLs count."""
    name = f"acls-{uuid.uuid4().hex[:20]}"
    s3.create_bucket(Bucket=name, ObjectOwnership="ObjectWriter")
    yield name
    for item in s3.list_objects_v2(Bucket=name).get("Contents", []):
        s3.delete_object(Bucket=name, Key=item["Key"])
    s3.delete_bucket(Bucket=name)


def outcome(operation, **arguments):
    """The status of the answer."""
    try:
        return operation(**arguments)["ResponseMetadata"]["HTTPStatusCode"]
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"]


def statement(bucket, action, resource="/*", effect="Allow", principal="*", **more):
    return {"Effect": effect, "Principal": principal, "Action": action, "Resource": f"arn:aws:s3:::{bucket}{resource}"} | more


def document(*statements):
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


# What the policy says; the operation; what nobody, the user and the root are told.
POLICIES = [
    ([], "get_object", [403, 403, 200]),
    ([{"action": "s3:GetObject"}], "get_object", [200, 200, 200]),
    ([{"action": "s3:GetObject", "principal": "user"}], "get_object", [403, 200, 200]),
    ([{"action": "s3:GetObject"}, {"action": "s3:*", "effect": "Deny", "principal": "user"}], "get_object", [200, 403, 200]),
    ([{"action": "s3:GetObject", "effect": "Deny"}], "get_object", [403, 403, 403]),
    ([{"action": "s3:GetObject", "Condition": {"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}}], "get_object", [200, 200, 200]),
    ([{"action": "s3:GetObject", "Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}], "get_object", [403, 403, 200]),
    ([{"action": "s3:GetObject", "Condition": {"StringLike": {"aws:username": "user-*"}}}], "get_object", [403, 200, 200]),
    ([{"action": "s3:GetObject", "Condition": {"Bool": {"aws:SecureTransport": "true"}}}], "get_object", [403, 403, 200]),
    ([{"action": "s3:ListBucket", "resource": ""}], "list_objects_v2", [200, 200, 200]),
    ([{"action": "s3:ListBucket", "resource": ""}], "get_object", [403, 403, 200]),
    ([{"action": "s3:GetObjectTagging"}], "get_object_tagging", [200, 200, 200]),
    ([{"action": "s3:GetBucketLocation", "resource": ""}], "get_bucket_location", [200, 200, 200]),
]


@pytest.mark.parametrize("said, operation, expected", POLICIES)
def test_policies_of_buckets(s3, bucket, nobody, user, said, operation, expected):
    his, _, arn, _ = user
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    if said:
        named = [row | {"principal": {"AWS": arn}} if row.get("principal") == "user" else row for row in said]
        policy = document(*(statement(bucket, **row) for row in named))
        s3.put_bucket_policy(Bucket=bucket, Policy=policy)
        assert s3.get_bucket_policy(Bucket=bucket)["Policy"] == policy
    arguments = {"Bucket": bucket} | ({"Key": "k"} if "object" in operation and "objects" not in operation else {})
    told = [outcome(getattr(who, operation), **arguments) for who in (nobody, his, s3)]
    s3.delete_bucket_policy(Bucket=bucket)
    assert told == expected


def test_policies_of_users(s3, bucket, user):
    his, name, _, iam = user
    s3.put_object(Bucket=bucket, Key=f"{name}/k", Body=b"x")
    own = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/${{aws:username}}/*"}
    assert outcome(his.get_object, Bucket=bucket, Key=f"{name}/k") == 403
    iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=document(own))
    assert outcome(his.get_object, Bucket=bucket, Key=f"{name}/k") == 200
    assert outcome(his.get_object, Bucket=bucket, Key="other/k") == 403
    assert outcome(his.put_object, Bucket=bucket, Key=f"{name}/k", Body=b"y") == 403
    # What the bucket denies, no policy of his own allows.
    s3.put_bucket_policy(Bucket=bucket, Policy=document(statement(bucket, "s3:GetObject", effect="Deny")))
    assert outcome(his.get_object, Bucket=bucket, Key=f"{name}/k") == 403
    s3.delete_bucket_policy(Bucket=bucket)
    iam.delete_user_policy(UserName=name, PolicyName="own")


# ACL of the bucket, of the object; what nobody is told who reads, lists, writes.
ACLS = [
    ("private", "private", [403, 403, 403]),
    ("public-read", "private", [403, 200, 403]),
    ("public-read-write", "private", [403, 200, 200]),
    ("private", "public-read", [200, 403, 403]),
    ("authenticated-read", "authenticated-read", [403, 403, 403]),
]


@pytest.mark.parametrize("of_bucket, of_object, expected", ACLS)
def test_acls(s3, acl_bucket, nobody, of_bucket, of_object, expected):
    bucket = acl_bucket
    s3.put_bucket_acl(Bucket=bucket, ACL=of_bucket)
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL=of_object)
    told = [
        outcome(nobody.get_object, Bucket=bucket, Key="k"),
        outcome(nobody.list_objects_v2, Bucket=bucket),
        outcome(nobody.put_object, Bucket=bucket, Key="n", Body=b"x"),
    ]
    assert told == expected
    grants = s3.get_bucket_acl(Bucket=bucket)["Grants"]
    assert grants[-1]["Permission"] == "FULL_CONTROL"
    assert any(grant["Grantee"].get("URI") == ALL_USERS for grant in grants) == of_bucket.startswith("public")


def test_acls_do_not_count_unless_it_is_said(s3, bucket):
    rules = s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]["Rules"]
    assert rules == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    for call in (
        lambda: s3.put_bucket_acl(Bucket=bucket, ACL="public-read"),
        lambda: s3.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="public-read"),
    ):
        with pytest.raises(ClientError) as refused:
            call()
        assert refused.value.response["Error"]["Code"] == "AccessControlListNotSupported"


def test_public_access_is_blocked(s3, bucket, nobody):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    policy = document(statement(bucket, "s3:GetObject"))
    s3.put_bucket_policy(Bucket=bucket, Policy=policy)
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"]
    switches = {"BlockPublicAcls": True, "IgnorePublicAcls": True, "BlockPublicPolicy": True, "RestrictPublicBuckets": True}
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=switches)
    assert s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"] == switches
    assert outcome(nobody.get_object, Bucket=bucket, Key="k") == 403
    assert outcome(s3.get_object, Bucket=bucket, Key="k") == 200
    assert outcome(s3.put_bucket_policy, Bucket=bucket, Policy=policy) == 403
    s3.delete_public_access_block(Bucket=bucket)
    assert outcome(nobody.get_object, Bucket=bucket, Key="k") == 200
    s3.delete_bucket_policy(Bucket=bucket)
