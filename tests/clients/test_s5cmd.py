"""s5cmd, which runs many small requests at once; where it is installed."""

import shutil
import subprocess

import pytest
from conftest import content, tree

pytestmark = pytest.mark.skipif(not shutil.which("s5cmd"), reason="s5cmd is not installed")


@pytest.fixture
def s5cmd(server):
    def run(*arguments):
        command = ["s5cmd", "--endpoint-url", server.endpoint, "--retry-count", "0", *map(str, arguments)]
        done = subprocess.run(command, env=server.environment(), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"s5cmd {arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def test_copy_sync_and_remove(s5cmd, bucket, tmp_path):
    root = tmp_path / "files"
    root.mkdir()
    for index in range(200):
        (root / f"file{index}").write_bytes(content(index * 100, index))
    s5cmd("cp", f"{root}/*", f"s3://{bucket}/many/")
    s5cmd("sync", f"s3://{bucket}/many/*", tmp_path / "back/")
    assert tree(tmp_path / "back") == tree(root)
    s5cmd("rm", f"s3://{bucket}/many/*")
    assert s5cmd("ls", f"s3://{bucket}") == ""
