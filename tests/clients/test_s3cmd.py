"""s3cmd: XML and signatures of its own, in Python."""

import hashlib
import subprocess

import pytest
from conftest import REGION, content, program, tree

MIB = 1 << 20


@pytest.fixture
def s3cmd(server, tmp_path):
    host = server.endpoint.removeprefix("http://")
    config = tmp_path / "s3cfg"
    settings = {
        "access_key": server.access_key,
        "secret_key": server.secret_key,
        "host_base": host,
        "host_bucket": host,
        "bucket_location": REGION,
        "use_https": "False",
        "multipart_chunk_size_mb": "5",
        "max_retries": "1",
    }
    config.write_text("[default]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    s3cmd = program("s3cmd")

    def run(*arguments, fails=False):
        command = [s3cmd, "-c", str(config), "--no-progress", *map(str, arguments)]
        done = subprocess.run(command, env=server.environment(), capture_output=True, text=True, timeout=300)
        assert (done.returncode != 0) == fails, f"s3cmd {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stderr if fails else done.stdout

    return run


def test_put_get_list_and_remove(s3cmd, s3, bucket, tmp_path):
    body = content(12 * MIB + 3)
    (tmp_path / "large").write_bytes(body)
    (tmp_path / "small").write_bytes(b"small")
    s3cmd("put", tmp_path / "large", f"s3://{bucket}/dir/large ü+")
    s3cmd("put", "--add-header=x-amz-meta-a: 1", "--mime-type=text/x", tmp_path / "small", f"s3://{bucket}/dir/small")
    assert s3.head_object(Bucket=bucket, Key="dir/large ü+")["ETag"].endswith('-3"')
    head = s3.head_object(Bucket=bucket, Key="dir/small")
    assert (head["ContentType"], head["Metadata"]["a"]) == ("text/x", "1")
    assert f"DIR  s3://{bucket}/dir/" in s3cmd("ls", f"s3://{bucket}/")
    assert len(s3cmd("ls", "--recursive", f"s3://{bucket}/").splitlines()) == 2
    s3cmd("get", f"s3://{bucket}/dir/large ü+", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == body
    assert f"{len(body) + 5} " in s3cmd("du", f"s3://{bucket}")
    assert hashlib.md5(b"small").hexdigest() in s3cmd("info", f"s3://{bucket}/dir/small")
    s3cmd("rm", "--recursive", f"s3://{bucket}/dir/")
    assert s3cmd("ls", "--recursive", f"s3://{bucket}/") == ""


def test_sync_both_ways(s3cmd, bucket, tmp_path):
    root = tmp_path / "files"
    for index in range(30):
        path = root / f"dir{index % 3}/file {index} ü&+"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(index * 99, index))
    s3cmd("sync", f"{root}/", f"s3://{bucket}/tree/")
    assert "upload:" not in s3cmd("sync", f"{root}/", f"s3://{bucket}/tree/"), "nothing is left to do"
    (tmp_path / "back").mkdir()
    s3cmd("sync", f"s3://{bucket}/tree/", f"{tmp_path}/back/")
    assert tree(tmp_path / "back") == tree(root)
    (root / "dir0/file 0 ü&+").unlink()
    s3cmd("sync", "--delete-removed", f"{root}/", f"s3://{bucket}/tree/")
    assert len(s3cmd("ls", "--recursive", f"s3://{bucket}/tree/").splitlines()) == 29


def test_copies_and_buckets(s3cmd, tmp_path):
    (tmp_path / "in").write_text("text")
    s3cmd("mb", "s3://made-by-s3cmd")
    assert "s3://made-by-s3cmd" in s3cmd("ls")
    s3cmd("put", tmp_path / "in", "s3://made-by-s3cmd/a b")
    s3cmd("cp", "s3://made-by-s3cmd/a b", "s3://made-by-s3cmd/c")
    s3cmd("mv", "s3://made-by-s3cmd/c", "s3://made-by-s3cmd/d")
    s3cmd("get", "s3://made-by-s3cmd/d", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "text"
    assert "BucketNotEmpty" in s3cmd("rb", "s3://made-by-s3cmd", fails=True)
    s3cmd("rb", "--force", "--recursive", "s3://made-by-s3cmd")
    assert "NoSuchBucket" in s3cmd("ls", "s3://made-by-s3cmd", fails=True)


def test_tags_versions_and_policies(s3cmd, s3, bucket, tmp_path):
    (tmp_path / "in").write_text("text")
    s3cmd("put", tmp_path / "in", f"s3://{bucket}/k")
    s3cmd("settagging", f"s3://{bucket}/k", "a=1&b=2")
    assert {tag["Key"]: tag["Value"] for tag in s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]} == {"a": "1", "b": "2"}
    assert "a:" in s3cmd("gettagging", f"s3://{bucket}/k")
    policy = tmp_path / "policy"
    policy.write_text(
        '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::%s/*"}]}' % bucket
    )
    s3cmd("setpolicy", policy, f"s3://{bucket}")
    assert "s3:GetObject" in s3cmd("info", f"s3://{bucket}")
    s3cmd("delpolicy", f"s3://{bucket}")
    s3cmd("setversioning", f"s3://{bucket}", "enable")
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    s3cmd("setversioning", f"s3://{bucket}", "disable")
    url = s3cmd("signurl", f"s3://{bucket}/k", "+60").strip()
    assert bucket in url
