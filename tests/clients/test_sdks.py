"""The SDKs of other languages, with what they do by default.

Each has one program in a directory here, which does the same cases and prints a line for each: `ok NAME`, or `failed NAME: WHY`. Its endpoint is in S3_ENDPOINT, who it is
in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the names of its buckets begin with S3_BUCKETS. It leaves none of them behind.
"""

import subprocess
from pathlib import Path

import pytest
from conftest import installed, program

HERE = Path(__file__).parent

CASES = [
    "buckets",  # made, found, listed, deleted
    "objects",  # small and empty ones, metadata, odd keys
    "transfers",  # more than 5 MiB, from a stream, by the SDK's own way to send parts
    "ranges",
    "listings",  # by page, by delimiter
    "copies",
    "tags",
    "versions",
    "presigned",  # GET and PUT, by a plain HTTP client
    "conditions",
    "checksums",  # the SDK's own and a chosen one; a wrong one is refused
    "deletions",  # many keys at once, such as trouble XML and URLs
    "customer_keys",
    "errors",  # the classes that the SDK has for them
]


def javascript():
    node = program("node")
    modules = installed("GABION_TEST_JAVASCRIPT", "the AWS SDK for JavaScript")
    return [node, HERE / "javascript/smoke.cjs"], {"NODE_PATH": modules}


def java():
    archives = installed("GABION_TEST_JAVA", "the AWS SDK for Java")
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{archives}/*", HERE / "java/Smoke.java"], {}


def rust():
    return [installed("GABION_TEST_RUST", "the AWS SDK for Rust")], {}


@pytest.fixture(scope="module", params=[javascript, java, rust], ids=lambda sdk: sdk.__name__)
def outcomes(request, server):
    """What became of each case, and everything that the program printed."""
    command, more = request.param()
    environment = server.environment(S3_ENDPOINT=server.endpoint, S3_BUCKETS=f"smoke-{request.param.__name__}", **more)
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, timeout=300)
    printed = f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    told = {}
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("ok", "failed"):
            told[rest.partition(":")[0]] = line
    return told, printed


@pytest.mark.parametrize("case", CASES)
def test_case(outcomes, case):
    told, printed = outcomes
    assert case in told, printed[-4000:]
    if told[case] != f"ok {case}":
        pytest.fail(told[case], pytrace=False)


def test_no_case_is_unknown_and_no_bucket_is_left(outcomes, s3):
    told, printed = outcomes
    assert sorted(told) == sorted(CASES), printed[-4000:]
    assert [item["Name"] for item in s3.list_buckets()["Buckets"] if item["Name"].startswith("smoke-")] == []
