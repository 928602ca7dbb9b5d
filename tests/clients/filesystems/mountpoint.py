"""Mountpoint's client, as s3torchconnector uses it. Started by ../test_filesystems.py with the name of a bucket; fails by an exception."""

import os
import sys

from s3torchconnectorclient import __version__
from s3torchconnectorclient._mountpoint_s3_client import MountpointS3Client, S3Exception

MIB = 1 << 20
bucket = sys.argv[1]
s3 = MountpointS3Client(region="us-east-1", endpoint=os.environ["S3_ENDPOINT"], part_size=5 * MIB, force_path_style=True)

body = os.urandom(12 * MIB + 5)
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
assert listed == [f"data/{index}" for index in range(7)] + ["data/large ü"], listed
s3.copy_object(bucket, "data/1", bucket, "copy")
assert s3.head_object(bucket, "copy").size == 1
s3.delete_object(bucket, "copy")
try:
    list(s3.get_object(bucket, "none"))
    raise AssertionError("this is not there")
except S3Exception:
    pass
print("s3torchconnectorclient", __version__)
