"""s5cmd, which runs many small requests at once."""

import json
import subprocess

import pytest
from conftest import content, program, tree

MIB = 1 << 20


@pytest.fixture
def s5cmd(server):
    s5cmd = program("s5cmd")

    def run(*arguments, stdin=None, fails=False):
        command = [s5cmd, "--endpoint-url", server.endpoint, "--retry-count", "0", *map(str, arguments)]
        done = subprocess.run(command, env=server.environment(), input=stdin, capture_output=True, text=True, timeout=300)
        assert (done.returncode != 0) == fails, f"s5cmd {arguments}: {done.stdout}\n{done.stderr}"
        return done.stderr if fails else done.stdout

    return run


def test_copy_sync_and_remove(s5cmd, bucket, tmp_path):
    root = tmp_path / "files"
    root.mkdir()
    for index in range(200):
        (root / f"file{index} ü&+").write_bytes(content(index * 100, index))
    s5cmd("cp", f"{root}/*", f"s3://{bucket}/many/")
    s5cmd("sync", f"s3://{bucket}/many/*", tmp_path / "back/")
    assert tree(tmp_path / "back") == tree(root)
    assert s5cmd("sync", "--size-only", f"{root}/*", f"s3://{bucket}/many/") == "", "nothing is left to do"
    (root / "file0 ü&+").unlink()
    assert s5cmd("sync", "--size-only", "--delete", f"{root}/", f"s3://{bucket}/many/").startswith("rm ")
    assert json.loads(s5cmd("--json", "du", f"s3://{bucket}/many/*"))["count"] == 199
    s5cmd("rm", f"s3://{bucket}/many/*")
    assert s5cmd("ls", f"s3://{bucket}") == ""


def test_parts_ranges_and_copies(s5cmd, s3, bucket, tmp_path):
    body = content(12 * MIB + 5)
    (tmp_path / "large").write_bytes(body)
    s5cmd("cp", "--part-size", 5, tmp_path / "large", f"s3://{bucket}/large")
    assert s3.head_object(Bucket=bucket, Key="large")["ETag"].endswith('-3"')
    s5cmd("cp", f"s3://{bucket}/large", f"s3://{bucket}/copy")
    s5cmd("mv", f"s3://{bucket}/copy", f"s3://{bucket}/moved")
    s5cmd("cp", "--part-size", 5, f"s3://{bucket}/moved", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == body
    s5cmd("pipe", f"s3://{bucket}/piped", stdin="from a stream")
    assert s5cmd("cat", f"s3://{bucket}/piped") == "from a stream"
    assert json.loads(s5cmd("--json", "head", f"s3://{bucket}/large"))["size"] == len(body)


def test_buckets_versions_and_errors(s5cmd, bucket, tmp_path):
    s5cmd("mb", "s3://made-by-s5cmd")
    assert "s3://made-by-s5cmd" in s5cmd("ls")
    s5cmd("rb", "s3://made-by-s5cmd")
    s5cmd("bucket-version", "--set", "Enabled", f"s3://{bucket}")
    assert "Enabled" in s5cmd("bucket-version", f"s3://{bucket}")
    for text in ["one", "two"]:
        s5cmd("pipe", f"s3://{bucket}/k", stdin=text)
    versions = [line.split()[-1] for line in s5cmd("ls", "--all-versions", f"s3://{bucket}/k").splitlines()]
    assert [s5cmd("cat", "--version-id", version, f"s3://{bucket}/k") for version in versions] == ["two", "one"]
    s5cmd("rm", "--all-versions", f"s3://{bucket}/*")
    assert "not found" in s5cmd("cat", f"s3://{bucket}/k", fails=True)
    assert "NoSuchBucket" in s5cmd("ls", "s3://made-by-s5cmd", fails=True)
    url = s5cmd("presign", f"s3://{bucket}/k").strip()
    assert "X-Amz-Signature" in url
