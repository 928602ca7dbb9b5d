"""What SDKs show of an error beside its code, as a table."""

import copy

import pytest
from botocore.exceptions import ClientError


@pytest.mark.parametrize(
    "operation, parameters, code, shown",
    [
        ("get_object", {"Key": "none"}, "NoSuchKey", {"Key": "none"}),
        ("get_object", {"Bucket": "no-such-bucket", "Key": "k"}, "NoSuchBucket", {"BucketName": "no-such-bucket"}),
        ("delete_bucket", {}, "BucketNotEmpty", {"BucketName": None}),
        ("get_bucket_policy", {}, "NoSuchBucketPolicy", {"BucketName": None}),
        (
            "get_object",
            {"Key": "k", "Range": "bytes=9-"},
            "InvalidRange",
            {"RangeRequested": "bytes=9-", "ActualObjectSize": "4"},
        ),
        ("get_object", {"Key": "k", "IfMatch": '"x"'}, "PreconditionFailed", {"Condition": "If-Match"}),
        ("abort_multipart_upload", {"Key": "k", "UploadId": "0"}, "NoSuchUpload", {"UploadId": "0"}),
        (
            "put_object",
            {"Key": "k", "Metadata": {"a": "v" * 3000}},
            "MetadataTooLarge",
            {"Size": "3001", "MaxSizeAllowed": "2048"},
        ),
        (
            "list_objects_v2",
            {"MaxKeys": -1},
            "InvalidArgument",
            {"ArgumentName": "max-keys", "ArgumentValue": "-1"},
        ),
    ],
)
def test_elements(s3, bucket, operation, parameters, code, shown):
    s3.put_object(Bucket=bucket, Key="k", Body=b"body")
    with pytest.raises(ClientError) as refused:
        getattr(s3, operation)(**{"Bucket": bucket, **parameters})
    error = refused.value.response["Error"]
    assert error["Code"] == code
    # The bucket has a name of its own in each run.
    assert {name: error.get(name) for name in shown} == {name: text or bucket for name, text in shown.items()}


def test_a_wrong_secret_is_told_what_was_signed(server, bucket):
    stranger = copy.copy(server)
    stranger.secret_key = "wrong"
    with pytest.raises(ClientError) as refused:
        stranger.client().list_objects_v2(Bucket=bucket)
    error = refused.value.response["Error"]
    assert error["Code"] == "SignatureDoesNotMatch"
    assert error["Message"].endswith("Check your key and signing method.")
    assert error["StringToSign"].startswith("AWS4-HMAC-SHA256\n")
    assert error["CanonicalRequest"].startswith(f"GET\n/{bucket}\n")
