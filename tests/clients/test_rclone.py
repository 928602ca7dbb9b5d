"""rclone: an SDK of its own, in Go."""

import hashlib
import json
import urllib.request

import pytest
from conftest import content, rclone_of, tree

MIB = 1 << 20


@pytest.fixture
def rclone(server):
    return rclone_of(server)


@pytest.fixture
def files(tmp_path):
    root = tmp_path / "files"
    names = [f"dir{index % 7}/file {index} ü.txt" for index in range(60)] + ["big/large.bin", "empty"]
    for index, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content({"big/large.bin": 23 * MIB, "empty": 0}.get(name, index * 321), index))
    return root


@pytest.mark.parametrize("chunk_mib", [5, 8, 16])
def test_copy_check_and_back(rclone, bucket, files, tmp_path, chunk_mib):
    remote = f"gabion:{bucket}/tree"
    rclone("copy", files, remote, "--s3-chunk-size", f"{chunk_mib}M", "--s3-upload-cutoff", "6M", "--transfers", 8)
    rclone("check", files, remote)
    rclone("check", "--download", files, remote)
    rclone("copy", remote, tmp_path / "back")
    assert tree(tmp_path / "back") == tree(files)


def test_sync_deletes_what_is_gone(rclone, bucket, files):
    remote = f"gabion:{bucket}"
    rclone("sync", files, remote)
    (files / "empty").unlink()
    (files / "dir1/new.txt").write_text("new")
    rclone("sync", files, remote)
    names = rclone("lsf", "--recursive", "--files-only", remote).splitlines()
    assert sorted(names) == sorted(tree(files))


def test_listings_and_sizes(rclone, bucket, files):
    remote = f"gabion:{bucket}"
    rclone("copy", files, remote)
    assert set(rclone("lsf", remote).splitlines()) == {f"dir{index}/" for index in range(7)} | {"big/", "empty"}
    size = json.loads(rclone("size", "--json", remote))
    assert (size["count"], size["bytes"]) == (62, sum(path.stat().st_size for path in files.rglob("*") if path.is_file()))
    assert bucket in rclone("lsd", "gabion:")


def test_server_side_copy_move_and_purge(rclone, bucket, files):
    rclone("copy", files / "big", f"gabion:{bucket}/a")
    rclone("copyto", f"gabion:{bucket}/a/large.bin", f"gabion:{bucket}/b/copy.bin")
    rclone("moveto", f"gabion:{bucket}/b/copy.bin", f"gabion:{bucket}/c/moved.bin")
    assert rclone("lsf", "--recursive", "--files-only", f"gabion:{bucket}").splitlines() == ["a/large.bin", "c/moved.bin"]
    rclone("check", "--download", files / "big", f"gabion:{bucket}/a")
    rclone("delete", f"gabion:{bucket}/a")
    assert rclone("lsf", f"gabion:{bucket}").split() == ["c/"]


def test_cat_and_streams(rclone, bucket, tmp_path):
    (tmp_path / "in").write_text("some text\n")
    rclone("copyto", tmp_path / "in", f"gabion:{bucket}/k")
    assert rclone("cat", f"gabion:{bucket}/k") == "some text\n"
    assert rclone("cat", "--offset", 5, "--count", 4, f"gabion:{bucket}/k") == "text"


def test_versions_and_checksums(rclone, s3, bucket, tmp_path):
    remote = f"gabion:{bucket}"
    rclone("backend", "versioning", remote, "Enabled")
    assert "Enabled" in rclone("backend", "versioning", remote)
    (tmp_path / "in").write_text("one")
    rclone("copyto", tmp_path / "in", f"{remote}/k")
    (tmp_path / "in").write_text("three")
    rclone("copyto", "--checksum", tmp_path / "in", f"{remote}/k")
    assert rclone("cat", f"{remote}/k") == "three"
    names = rclone("lsf", "--s3-versions", remote).split()
    assert len(names) == 2 and "k" in names
    (old,) = set(names) - {"k"}
    assert rclone("cat", "--s3-versions", f"{remote}/{old}") == "one"
    assert rclone("md5sum", f"{remote}/k").split()[0] == hashlib.md5(b"three").hexdigest()
    rclone("deletefile", f"{remote}/k")
    assert rclone("lsf", remote) == ""
    rclone("backend", "cleanup-hidden", remote)
    assert "Versions" not in s3.list_object_versions(Bucket=bucket)


def test_server_side_copies_and_links(rclone, bucket, files):
    rclone("copy", files, f"gabion:{bucket}/a")
    rclone("copy", f"gabion:{bucket}/a", f"gabion:{bucket}/b", "--s3-copy-cutoff", "6M", "--s3-chunk-size", "5M")
    rclone("check", "--download", files, f"gabion:{bucket}/b")
    rclone("moveto", f"gabion:{bucket}/b/big/large.bin", f"gabion:{bucket}/c")
    assert rclone("lsf", f"gabion:{bucket}").split() == ["a/", "b/", "c"]
    with urllib.request.urlopen(rclone("link", "--expire", "60s", f"gabion:{bucket}/c").strip()) as answer:
        assert len(answer.read()) == 23 * MIB
    rclone("purge", f"gabion:{bucket}/a")
