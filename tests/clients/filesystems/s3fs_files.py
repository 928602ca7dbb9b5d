"""s3fs: files by aiobotocore. Started by ../test_filesystems.py with the name of a bucket; fails by an exception."""

import os
import sys

import s3fs

MIB = 1 << 20
bucket = sys.argv[1]
fs = s3fs.S3FileSystem(endpoint_url=os.environ["S3_ENDPOINT"], use_listings_cache=False, max_concurrency=4)

body = os.urandom(12 * MIB + 5)
with fs.open(f"{bucket}/dir/large ü+", "wb", block_size=5 * MIB) as file:
    for at in range(0, len(body), 700_000):
        file.write(body[at : at + 700_000])
with fs.open(f"{bucket}/dir/large ü+", "rb") as file:
    file.seek(6 * MIB)
    assert file.read(1000) == body[6 * MIB : 6 * MIB + 1000]
assert fs.cat_file(f"{bucket}/dir/large ü+") == body
assert fs.cat_ranges([f"{bucket}/dir/large ü+"] * 2, [0, 5], [3, 9]) == [body[:3], body[5:9]]

for index in range(20):
    fs.pipe_file(f"{bucket}/many/{index % 4}/{index}", b"x" * index)
assert fs.ls(f"{bucket}/many") == [f"{bucket}/many/{group}" for group in range(4)]
assert len(fs.find(f"{bucket}/many")) == 20 and fs.du(f"{bucket}/many") == sum(range(20))
assert fs.glob(f"{bucket}/many/1/*") == [f"{bucket}/many/1/{index}" for index in (1, 13, 17, 5, 9)]
assert fs.isdir(f"{bucket}/many/1") and fs.isfile(f"{bucket}/many/1/1") and not fs.exists(f"{bucket}/none")

fs.copy(f"{bucket}/dir/large ü+", f"{bucket}/copy")
fs.mv(f"{bucket}/copy", f"{bucket}/moved")
assert fs.info(f"{bucket}/moved")["size"] == len(body) and not fs.exists(f"{bucket}/copy")
fs.setxattr(f"{bucket}/many/1/1", copy_kwargs=None, color="blue")
assert fs.getxattr(f"{bucket}/many/1/1", "color") == "blue"
fs.put_tags(f"{bucket}/many/1/1", {"a": "1"})
assert fs.get_tags(f"{bucket}/many/1/1") == {"a": "1"}
with fs.open(f"{bucket}/many/1/1", "ab") as file:
    file.write(b"more")
assert fs.cat_file(f"{bucket}/many/1/1") == b"xmore"
try:
    fs.cat_file(f"{bucket}/none")
    raise AssertionError("this is not there")
except FileNotFoundError:
    pass
assert fs.sign(f"{bucket}/moved").startswith(os.environ["S3_ENDPOINT"])
fs.rm([f"{bucket}/many", f"{bucket}/dir", f"{bucket}/moved"], recursive=True)
assert fs.find(bucket) == []
print("s3fs", s3fs.__version__)
