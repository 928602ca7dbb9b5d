"""Object stores as file systems: s3fs, pyarrow's own client, and Mountpoint's, which PyTorch reads by.

The first two need an environment of their own; their programs are in a directory here.
"""

import subprocess
from pathlib import Path

import pytest
from conftest import REGION, content, installed

MIB = 1 << 20


@pytest.mark.parametrize("name", ["s3fs_files", "parquet"])
def test_program(server, bucket, name):
    python = installed("GABION_TEST_FILESYSTEMS", "s3fs and pyarrow")
    command = [python, str(Path(__file__).parent / f"filesystems/{name}.py"), bucket]
    done = subprocess.run(command, env=server.environment(S3_ENDPOINT=server.endpoint), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"


def test_client_of_mountpoint(server, bucket, monkeypatch):
    client = pytest.importorskip("s3torchconnectorclient._mountpoint_s3_client")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3 = client.MountpointS3Client(region=REGION, endpoint=server.endpoint, part_size=5 * MIB, force_path_style=True)
    body = content(12 * MIB + 5)
    stream = s3.put_object(bucket, "data/large ü")
    for at in range(0, len(body), MIB):
        stream.write(body[at : at + MIB])
    stream.close()
    for index in range(7):
        stream = s3.put_object(bucket, f"data/{index}")
        stream.write(str(index).encode())
        stream.close()
    assert b"".join(s3.get_object(bucket, "data/large ü")) == body
    assert b"".join(s3.get_object(bucket, "data/large ü", start=5, end=6 * MIB)) == body[5 : 6 * MIB]
    assert s3.head_object(bucket, "data/large ü").size == len(body)
    listed = [item.key for page in s3.list_objects(bucket, "data/", max_keys=3) for item in page.object_info]
    assert listed == [f"data/{index}" for index in range(7)] + ["data/large ü"]
    s3.copy_object(bucket, "data/1", bucket, "copy")
    assert s3.head_object(bucket, "copy").size == 1
    s3.delete_object(bucket, "copy")
    with pytest.raises(client.S3Exception):
        list(s3.get_object(bucket, "none"))
