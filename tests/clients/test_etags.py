"""Clients of a server whose tags are no MD5s: none may take them for such."""

import io
import os

import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from conftest import content, rclone_of, serving, tree

MIB = 1 << 20

pytestmark = pytest.mark.skipif("GABION_TEST_ENDPOINT" in os.environ, reason="needs a server of its own")


@pytest.fixture(scope="module")
def crc_server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("etags"), "--etag", "crc64nvme") as server:
        server.client().create_bucket(Bucket="tags")
        yield server


@pytest.fixture
def files(tmp_path):
    root = tmp_path / "files"
    for name, size in [("empty", 0), ("dir/small", 777), ("dir/large", 13 * MIB)]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content(size))
    return root


def test_boto3(crc_server):
    s3 = crc_server.client()
    small = s3.put_object(Bucket="tags", Key="small", Body=b"123456789")
    assert small["ETag"] == '"ae8b14860a799888-1"'
    assert s3.head_object(Bucket="tags", Key="small", IfMatch=small["ETag"])["ETag"] == small["ETag"]
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket="tags", Key="small", Body=b"x", IfMatch='"25f9e794323b453885f5181f1b624d0b"')
    body = content(13 * MIB)
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    s3.upload_fileobj(io.BytesIO(body), "tags", "large", Config=config)
    head = s3.head_object(Bucket="tags", Key="large")
    assert (len(head["ETag"]), head["ETag"][-3:]) == (20, '-3"')
    into = io.BytesIO()
    s3.download_fileobj("tags", "large", into, Config=config)
    assert into.getvalue() == body
    s3.copy({"Bucket": "tags", "Key": "large"}, "tags", "copy", Config=config)
    assert s3.head_object(Bucket="tags", Key="copy")["ETag"] == head["ETag"], "a copy in parts has the same bytes"


def test_rclone(crc_server, files, tmp_path):
    rclone = rclone_of(crc_server)
    remote = "gabion:tags/rclone"
    rclone("copy", files, remote, "--s3-chunk-size", "5M", "--s3-upload-cutoff", "6M")
    rclone("check", files, remote)
    rclone("check", "--download", files, remote)
    rclone("copy", remote, tmp_path / "back")
    assert tree(tmp_path / "back") == tree(files)
