"""Users, policies and sessions, by boto3's clients of IAM and STS."""

import json
import urllib.request
import uuid

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from conftest import REGION


def allow(*actions, resource="*", effect="Allow", **condition):
    statement = {"Effect": effect, "Action": list(actions), "Resource": resource}
    if condition:
        statement["Condition"] = condition
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def of(server, service, key=None):
    """A client of the root, or of an access key or credentials that IAM or STS gave."""
    own = {"AccessKeyId": server.access_key, "SecretAccessKey": server.secret_key} if key is None else key
    return boto3.client(
        service,
        endpoint_url=server.endpoint,
        aws_access_key_id=own["AccessKeyId"],
        aws_secret_access_key=own["SecretAccessKey"],
        aws_session_token=own.get("SessionToken"),
        region_name=REGION,
        # Without it boto3 presigns with Version 2.
        config=Config(signature_version="s3v4") if service == "s3" else None,
    )


def outcome(call, **arguments):
    """`ok`, or the code of the error."""
    try:
        call(**arguments)
        return "ok"
    except ClientError as error:
        return error.response["Error"]["Code"]


@pytest.fixture
def user(server):
    """A user with an access key; gone at the end with all that is his."""
    iam, name = of(server, "iam"), f"u-{uuid.uuid4().hex[:12]}"
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    yield name, key
    for policy in iam.list_user_policies(UserName=name)["PolicyNames"]:
        iam.delete_user_policy(UserName=name, PolicyName=policy)
    for policy in iam.list_attached_user_policies(UserName=name)["AttachedPolicies"]:
        iam.detach_user_policy(UserName=name, PolicyArn=policy["PolicyArn"])
    iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
    iam.delete_user(UserName=name)


READ = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"

# What is put to the user, and what comes of a put, a get and a list.
CASES = [
    ([], ("AccessDenied", "AccessDenied", "AccessDenied")),
    ([allow("s3:*")], ("ok", "ok", "ok")),
    ([allow("s3:GetObject")], ("AccessDenied", "ok", "AccessDenied")),
    ([allow("s3:GetObject", resource="arn:aws:s3:::other/*")], ("AccessDenied", "AccessDenied", "AccessDenied")),
    ([allow("s3:*"), allow("s3:PutObject", effect="Deny")], ("AccessDenied", "ok", "ok")),
    ([allow("s3:*", IpAddress={"aws:SourceIp": "127.0.0.0/8"})], ("ok", "ok", "ok")),
    ([allow("s3:*", IpAddress={"aws:SourceIp": "203.0.113.0/24"})], ("AccessDenied", "AccessDenied", "AccessDenied")),
    ([READ], ("AccessDenied", "ok", "ok")),
]


@pytest.mark.parametrize("policies,expected", CASES)
def test_what_policies_allow(server, s3, bucket, user, policies, expected):
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    iam, (name, key) = of(server, "iam"), user
    for number, policy in enumerate(policies):
        if policy.startswith("arn:"):
            iam.attach_user_policy(UserName=name, PolicyArn=policy)
        else:
            iam.put_user_policy(UserName=name, PolicyName=f"p{number}", PolicyDocument=policy)
    own = of(server, "s3", key)
    outcomes = (
        outcome(own.put_object, Bucket=bucket, Key="k", Body=b"y"),
        outcome(own.get_object, Bucket=bucket, Key="k"),
        outcome(own.list_objects_v2, Bucket=bucket),
    )
    assert outcomes == expected


def test_documents_come_back_as_they_were_put(server, user):
    iam, (name, _) = of(server, "iam"), user
    document = allow("s3:GetObject", StringLike={"s3:prefix": ["a/*", "ä \"quoted\" & <b>"]})
    iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=document)
    assert iam.get_user_policy(UserName=name, PolicyName="p")["PolicyDocument"] == json.loads(document)


def test_roles_and_sessions(server, s3, bucket, user):
    iam, (name, key) = of(server, "iam"), user
    arn = of(server, "sts", key).get_caller_identity()["Arn"]
    assert arn == iam.get_user(UserName=name)["User"]["Arn"]
    trust = {"Effect": "Allow", "Principal": {"AWS": arn}, "Action": ["sts:AssumeRole", "sts:TagSession"]}
    role = f"r-{uuid.uuid4().hex[:12]}"
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    made = iam.create_role(RoleName=role, AssumeRolePolicyDocument=document)["Role"]
    assert made["AssumeRolePolicyDocument"] == json.loads(document)
    team = allow("s3:*", resource=f"arn:aws:s3:::{bucket}/${{aws:PrincipalTag/team}}/*")
    iam.put_role_policy(RoleName=role, PolicyName="p", PolicyDocument=team)
    session = of(server, "sts", key).assume_role(
        RoleArn=made["Arn"], RoleSessionName="work", Tags=[{"Key": "team", "Value": "red"}]
    )
    own = of(server, "s3", session["Credentials"])
    assert outcome(own.put_object, Bucket=bucket, Key="red/k", Body=b"x") == "ok"
    assert outcome(own.put_object, Bucket=bucket, Key="blue/k", Body=b"x") == "AccessDenied"
    url = own.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "red/k"})
    assert urllib.request.urlopen(url, timeout=30).read() == b"x"
    narrow = of(server, "sts", key).assume_role(
        RoleArn=made["Arn"],
        RoleSessionName="less",
        Policy=allow("s3:GetObject"),
        Tags=[{"Key": "team", "Value": "red"}],
    )
    less = of(server, "s3", narrow["Credentials"])
    assert outcome(less.get_object, Bucket=bucket, Key="red/k") == "ok"
    assert outcome(less.delete_object, Bucket=bucket, Key="red/k") == "AccessDenied"
    iam.delete_role_policy(RoleName=role, PolicyName="p")
    iam.delete_role(RoleName=role)


def test_a_session_of_a_user_does_what_he_does(server, s3, bucket, user):
    iam, (name, key) = of(server, "iam"), user
    iam.attach_user_policy(UserName=name, PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess")
    credentials = of(server, "sts", key).get_session_token(DurationSeconds=900)["Credentials"]
    assert outcome(of(server, "s3", credentials).put_object, Bucket=bucket, Key="k", Body=b"x") == "ok"
    assert outcome(of(server, "iam", credentials).list_users) == "InvalidClientTokenId"
    credentials["SessionToken"] = credentials["SessionToken"][:-8] + "AAAAAAA="
    assert outcome(of(server, "s3", credentials).list_objects_v2, Bucket=bucket) == "InvalidToken"
