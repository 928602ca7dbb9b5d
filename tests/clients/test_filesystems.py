"""Object stores as file systems: s3fs, pyarrow's own client, and Mountpoint's, which PyTorch reads by. Each is a program in a directory here: they need a
Python environment of their own."""

import subprocess
from pathlib import Path

import pytest
from conftest import installed


@pytest.mark.parametrize("name", ["s3fs_files", "parquet", "mountpoint"])
def test_program(server, bucket, name):
    python = installed("GABION_TEST_FILESYSTEMS", "what this needs")
    command = [python, str(Path(__file__).parent / f"filesystems/{name}.py"), bucket]
    done = subprocess.run(command, env=server.environment(S3_ENDPOINT=server.endpoint), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
