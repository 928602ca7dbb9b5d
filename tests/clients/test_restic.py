"""restic: backups, by the SDK of MinIO."""

import json
import os
import subprocess

import pytest
from conftest import content, installed, tree

MIB = 1 << 20


@pytest.fixture
def restic(server, bucket, tmp_path):
    program = installed("GABION_TEST_RESTIC", "restic")
    environment = server.environment(
        RESTIC_REPOSITORY=f"s3:{server.endpoint}/{bucket}/backups",
        RESTIC_PASSWORD="of the test",
        RESTIC_CACHE_DIR=str(tmp_path / "cache"),
    )

    def run(*arguments):
        done = subprocess.run([program, *map(str, arguments)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"restic {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def test_backups_are_made_checked_forgotten_and_restored(restic, tmp_path):
    files = tmp_path / "files"
    for index in range(40):
        path = files / f"dir{index % 5}/file {index} ü"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(index * 1013, index))
    (files / "large").write_bytes(content(20 * MIB))
    restic("init")
    restic("backup", "files")
    first = tree(files)
    (files / "large").write_bytes(content(11 * MIB, 2))
    os.remove(files / "dir0/file 0 ü")
    (files / "new").write_text("new")
    restic("backup", "files")
    restic("check", "--read-data")
    ids = [snapshot["id"] for snapshot in json.loads(restic("snapshots", "--json"))]
    restic("restore", "latest", "--target", "second")
    assert tree(tmp_path / "second/files") == tree(files)
    restic("restore", ids[0], "--target", "first")
    assert tree(tmp_path / "first/files") == first
    assert "remove 1 snapshots" in restic("forget", "--keep-last", "1", "--prune")
    restic("check", "--read-data")
    restic("restore", "latest", "--target", "third")
    assert tree(tmp_path / "third/files") == tree(files)
    assert restic("list", "locks") == ""
