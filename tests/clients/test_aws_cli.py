"""aws-cli, as people use it."""

import json
import os
import subprocess
import time
import urllib.request

import pytest
from conftest import content, tree

MIB = 1 << 20


@pytest.fixture
def aws(server, tmp_path):
    """Runs `aws …` and returns what it prints."""
    config = tmp_path / "config"
    config.write_text("[default]\ns3 =\n  addressing_style = path\n  multipart_threshold = 8MB\n  multipart_chunksize = 8MB\n")
    environment = server.environment(AWS_CONFIG_FILE=str(config), AWS_ENDPOINT_URL=server.endpoint, HOME=str(tmp_path))
    program = os.path.join(os.environ.get("GABION_TEST_CLIENTS", ""), "aws")

    def run(*arguments, fails=False):
        done = subprocess.run([program, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=300)
        assert (done.returncode != 0) == fails, f"aws {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stderr if fails else done.stdout

    return run


@pytest.fixture
def files(tmp_path):
    """Files of all kinds below one directory, a minute old: `aws s3 sync` compares with Last-Modified, which has no fractions of a second."""
    written = time.time() - 60
    root = tmp_path / "files"
    for name, size in [("empty", 0), ("small.txt", 1000), ("dir/deep/a b ü.bin", 70_000), ("dir/large.bin", 20 * MIB + 3)]:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(size, len(name)))
        os.utime(path, (written, written))
    return root


def test_cp_ls_rm(aws, bucket, files, tmp_path):
    aws("s3", "cp", files / "dir/large.bin", f"s3://{bucket}/large.bin")
    aws("s3", "cp", f"s3://{bucket}/large.bin", f"s3://{bucket}/copy.bin")
    aws("s3", "cp", f"s3://{bucket}/copy.bin", tmp_path / "back.bin")
    assert (tmp_path / "back.bin").read_bytes() == (files / "dir/large.bin").read_bytes()
    listing = aws("s3", "ls", f"s3://{bucket}/")
    assert [line.split()[2:] for line in listing.splitlines()] == [[str(20 * MIB + 3), "copy.bin"], [str(20 * MIB + 3), "large.bin"]]
    aws("s3", "rm", f"s3://{bucket}/copy.bin")
    assert "copy.bin" not in aws("s3", "ls", f"s3://{bucket}/")
    aws("s3", "mv", f"s3://{bucket}/large.bin", f"s3://{bucket}/dir/moved.bin")
    assert aws("s3", "ls", f"s3://{bucket}/").split() == ["PRE", "dir/"]


def test_sync_both_ways(aws, bucket, files, tmp_path):
    aws("s3", "sync", files, f"s3://{bucket}/tree")
    assert aws("s3", "sync", files, f"s3://{bucket}/tree") == "", "nothing is left to do"
    aws("s3", "sync", f"s3://{bucket}/tree", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(files)
    (files / "small.txt").unlink()
    (files / "new").write_bytes(b"new")
    aws("s3", "sync", "--delete", files, f"s3://{bucket}/tree")
    listing = aws("s3", "ls", "--recursive", f"s3://{bucket}/tree/")
    assert len(listing.splitlines()) == 4 and "small.txt" not in listing and "tree/new" in listing


def test_mb_rb(aws, files):
    name = "made-by-aws-cli"
    aws("s3", "mb", f"s3://{name}")
    assert name in aws("s3", "ls")
    aws("s3", "cp", "--recursive", files, f"s3://{name}/")
    assert "BucketNotEmpty" in aws("s3", "rb", f"s3://{name}", fails=True)
    aws("s3", "rb", "--force", f"s3://{name}")
    assert name not in aws("s3", "ls")


def test_streams(aws, server, bucket, tmp_path):
    aws("s3api", "put-object", "--bucket", bucket, "--key", "k", "--body", __file__, "--content-type", "text/x-python")
    head = json.loads(aws("s3api", "head-object", "--bucket", bucket, "--key", "k", "--output", "json"))
    assert head["ContentType"] == "text/x-python"
    assert head["ContentLength"] == os.path.getsize(__file__)
    aws("s3api", "get-object", "--bucket", bucket, "--key", "k", "--range", "bytes=0-9", tmp_path / "part")
    with open(__file__, "rb") as source:
        assert (tmp_path / "part").read_bytes() == source.read(10)
    url = aws("s3", "presign", f"s3://{bucket}/k", "--expires-in", "60").strip()
    assert url.startswith(server.endpoint)


def test_s3api_multipart(aws, bucket, tmp_path):
    (tmp_path / "one").write_bytes(content(5 * MIB, 1))
    (tmp_path / "two").write_bytes(content(10, 2))
    where = ["--bucket", bucket, "--key", "k", "--output", "json"]
    upload = json.loads(aws("s3api", "create-multipart-upload", *where, "--checksum-algorithm", "SHA256"))["UploadId"]
    parts = []
    for number, name in enumerate(["one", "two"], 1):
        arguments = ["--upload-id", upload, "--part-number", number, "--body", tmp_path / name, "--checksum-algorithm", "SHA256"]
        part = json.loads(aws("s3api", "upload-part", *where, *arguments))
        parts.append({"PartNumber": number, "ETag": part["ETag"], "ChecksumSHA256": part["ChecksumSHA256"]})
    assert len(json.loads(aws("s3api", "list-parts", *where, "--upload-id", upload))["Parts"]) == 2
    assert upload in aws("s3api", "list-multipart-uploads", "--bucket", bucket)
    done = json.loads(aws("s3api", "complete-multipart-upload", *where, "--upload-id", upload, "--multipart-upload", json.dumps({"Parts": parts})))
    assert done["ChecksumSHA256"].endswith("-2")
    arguments = ["--object-attributes", "ETag", "Checksum", "ObjectParts", "ObjectSize"]
    attributes = json.loads(aws("s3api", "get-object-attributes", *where, *arguments))
    assert attributes["ObjectSize"] == 5 * MIB + 10
    assert attributes["ObjectParts"]["TotalPartsCount"] == 2


def test_errors_are_those_of_s3(aws, bucket):
    assert "NoSuchBucket" in aws("s3", "ls", "s3://no-such-bucket-at-all", fails=True)
    assert "404" in aws("s3", "cp", f"s3://{bucket}/none", "-", fails=True)
    assert "NoSuchKey" in aws("s3api", "get-object", "--bucket", bucket, "--key", "none", "/dev/null", fails=True)


def test_s3api_objects(aws, bucket, tmp_path):
    """What the other SDKs do in `test_sdks.py`."""
    where = ["--bucket", bucket, "--key", "k ü+", "--output", "json"]
    call = lambda operation, *arguments, **more: json.loads(aws("s3api", operation, *where, *arguments, **more) or "{}")
    body = tmp_path / "body"
    body.write_bytes(b"one")
    put = call("put-object", "--body", body, "--if-none-match", "*", "--tagging", "a=1", "--metadata", "m=1")
    assert "PreconditionFailed" in aws("s3api", "put-object", *where, "--body", body, "--if-none-match", "*", fails=True)
    assert call("get-object-tagging")["TagSet"] == [{"Key": "a", "Value": "1"}]
    copied = ["--copy-source", f"{bucket}/k ü+", "--metadata-directive", "REPLACE", "--metadata", "m=2"]
    aws("s3api", "copy-object", "--bucket", bucket, "--key", "copy", *copied)
    assert json.loads(aws("s3api", "head-object", "--bucket", bucket, "--key", "copy"))["Metadata"] == {"m": "2"}
    assert "304" in aws("s3api", "get-object", *where, "--if-none-match", put["ETag"], "/dev/null", fails=True)
    assert call("put-object", "--body", body, "--checksum-algorithm", "SHA256")["ChecksumSHA256"]
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    secret = ["--sse-customer-algorithm", "AES256", "--sse-customer-key", f"fileb://{key}"]
    call("put-object", "--body", body, *secret)
    call("get-object", *secret, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"one"


def test_s3api_versions_listings_and_deletions(aws, s3, bucket):
    aws("s3api", "put-bucket-versioning", "--bucket", bucket, "--versioning-configuration", "Status=Enabled")
    keys = ["a b", "a+b", "a&b<c>", "größe/ü", "new\nline", "tab\tand\rreturn"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key)
    listed = json.loads(aws("s3api", "list-objects-v2", "--bucket", bucket, "--page-size", 2, "--output", "json"))
    assert sorted(item["Key"] for item in listed["Contents"]) == sorted(keys)
    objects = json.dumps({"Objects": [{"Key": key} for key in keys]})
    deleted = json.loads(aws("s3api", "delete-objects", "--bucket", bucket, "--delete", objects, "--output", "json"))
    assert sorted(item["Key"] for item in deleted["Deleted"]) == sorted(keys) and all(item["DeleteMarker"] for item in deleted["Deleted"])
    versions = json.loads(aws("s3api", "list-object-versions", "--bucket", bucket, "--output", "json"))
    assert len(versions["Versions"]) == len(versions["DeleteMarkers"]) == len(keys)


def test_presigned_by_cli(aws, server, bucket, tmp_path):
    """With the signature that is asked for: by itself aws-cli 1 presigns with the old one."""
    (tmp_path / "config").write_text((tmp_path / "config").read_text() + "  signature_version = s3v4\n")
    (tmp_path / "in").write_text("text")
    aws("s3", "cp", tmp_path / "in", f"s3://{bucket}/a b/ü")
    with urllib.request.urlopen(aws("s3", "presign", f"s3://{bucket}/a b/ü").strip()) as answer:
        assert answer.read() == b"text"
