"""Parquet datasets, through s3fs and through pyarrow's own client in C++. Started by ../test_filesystems.py with the name of a bucket; fails by an exception."""

import os
import sys

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import s3fs

bucket = sys.argv[1]
endpoint = os.environ["S3_ENDPOINT"]
own = pafs.S3FileSystem(endpoint_override=endpoint.removeprefix("http://"), scheme="http", region="us-east-1")
by_fsspec = s3fs.S3FileSystem(endpoint_url=endpoint, use_listings_cache=False)

rows = 300_000
table = pa.table(
    {
        "id": pa.array(range(rows), pa.int64()),
        "group": pa.array([f"g{index % 3}" for index in range(rows)]),
        "value": pa.array([(index * 2_654_435_761) % (1 << 53) for index in range(rows)], pa.int64()),
    }
)
for name, filesystem in [("own", own), ("fsspec", pafs.PyFileSystem(pafs.FSSpecHandler(by_fsspec)))]:
    root = f"{bucket}/{name}/data set"
    by_group = ds.partitioning(pa.schema([("group", pa.string())]), flavor="hive")
    # Without `create_dir`: pyarrow's own client leaves objects for directories, which s3fs takes for files.
    ds.write_dataset(table, root, filesystem=filesystem, format="parquet", partitioning=by_group, create_dir=False)
    for reader in [own, pafs.PyFileSystem(pafs.FSSpecHandler(by_fsspec))]:
        dataset = ds.dataset(root, filesystem=reader, format="parquet", partitioning="hive")
        assert len(dataset.files) == 3, dataset.files
        assert dataset.count_rows() == rows
        some = dataset.to_table(filter=(ds.field("group") == "g1") & (ds.field("id") < 100), columns=["id", "value"])
        assert sorted(some["id"].to_pylist()) == list(range(1, 100, 3))
        assert dataset.to_table(columns=table.column_names).sort_by("id").equals(table)
    # One object of several parts.
    pq.write_table(table, f"{bucket}/{name}/one.parquet", filesystem=filesystem, compression="none", use_dictionary=False)
    assert pq.read_table(f"{bucket}/{name}/one.parquet", filesystem=filesystem).equals(table)

info = own.get_file_info(pafs.FileSelector(f"{bucket}/own", recursive=True))
assert sum(entry.type == pafs.FileType.File for entry in info) == 4
own.copy_file(f"{bucket}/own/one.parquet", f"{bucket}/own/copy.parquet")
own.move(f"{bucket}/own/copy.parquet", f"{bucket}/own/moved.parquet")
with own.open_input_file(f"{bucket}/own/moved.parquet") as file:
    assert file.read_at(4, 0) == b"PAR1" and file.read_at(4, file.size() - 4) == b"PAR1"
own.create_dir(f"{bucket}/empty/dir")
assert own.get_file_info(f"{bucket}/empty/dir").type == pafs.FileType.Directory
try:
    own.open_input_file(f"{bucket}/none")
    raise AssertionError("this is not there")
except FileNotFoundError:
    pass
for name in ["own", "fsspec", "empty"]:
    own.delete_dir(f"{bucket}/{name}")
assert by_fsspec.find(bucket) == []
print("pyarrow", pa.__version__)
pafs.finalize_s3()
