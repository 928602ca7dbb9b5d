"""A server for the tests of real clients, and what they need to reach it.

`cargo xtask clients` sets GABION_TEST_BIN (the built server), GABION_TEST_CLIENTS (the directory with `aws` and others) and, for what it could install
beside them, the variables that the tests of these look for. With GABION_TEST_ENDPOINT the tests run against a server that is already there, whose credentials are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
"""

import contextlib
import hashlib
import os
import random
import shutil
import socket
import subprocess
import time
import urllib.request
import uuid
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

ACCESS_KEY = "GABIONTESTACCESSKEY0"
SECRET_KEY = "gabion-test-secret-key-of-forty-bytes-00"
REGION = "us-east-1"
DOMAIN = "s3.gabion.test"


GIVEN_PORTS = set()


def free_port():
    """A port that nothing has, below those that connections are given for their own end (from 32768 on Linux, from 16000 in gVisor).

    Who tries again and again to reach one of those, where nothing listens yet, is given that very port one day, and then it is taken.
    """
    while True:
        port = random.randrange(10000, 16000)
        if port in GIVEN_PORTS:
            continue
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            GIVEN_PORTS.add(port)
            return port


class Server:
    """Where the server is and with what one is let in."""

    def __init__(self, endpoint, access_key, secret_key):
        self.endpoint = endpoint
        self.access_key = access_key
        self.secret_key = secret_key
        self.port = int(endpoint.rsplit(":", 1)[1])

    def environment(self, **more):
        """For client programs."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))}
        return own | {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_PAGER": "",
        } | more

    def client(self, verify=None, **config):
        defaults = {"retries": {"total_max_attempts": 1}, "signature_version": "s3v4"}
        s3 = {"addressing_style": "path"} | config.pop("s3", {})
        config = Config(**(defaults | config), s3=s3)
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            verify=verify,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
            config=config,
        )


def program(name):
    """The program of this name: one that `cargo xtask clients` installed before any other. The test is skipped where there is none."""
    found = shutil.which(name, path=os.environ.get("GABION_TEST_PROGRAMS", "")) or shutil.which(name)
    return found or pytest.skip(f"{name} is not installed")


def installed(variable, what):
    """What `cargo xtask clients` says in a variable; the test is skipped where it could not install it."""
    return os.environ.get(variable) or pytest.skip(f"{what} could not be installed, or this is not `cargo xtask clients` ({variable})")


def rclone_of(server):
    """Runs rclone with the remote `gabion:`; returns what it prints."""
    environment = server.environment(
        RCLONE_CONFIG="/dev/null",
        RCLONE_CONFIG_GABION_TYPE="s3",
        RCLONE_CONFIG_GABION_PROVIDER="Other",
        RCLONE_CONFIG_GABION_ENDPOINT=server.endpoint,
        RCLONE_CONFIG_GABION_ACCESS_KEY_ID=server.access_key,
        RCLONE_CONFIG_GABION_SECRET_ACCESS_KEY=server.secret_key,
        RCLONE_CONFIG_GABION_REGION=REGION,
        RCLONE_RETRIES="1",
        RCLONE_LOW_LEVEL_RETRIES="1",
    )
    rclone = program("rclone")

    def run(*arguments):
        done = subprocess.run([rclone, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"rclone {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@contextlib.contextmanager
def serving(place, *flags, scheme="http"):
    """A server with six targets below `place`; it must end well."""
    targets = [place / f"target{index}" for index in range(6)]
    for target in targets:
        target.mkdir()
    port, admin = free_port(), free_port()
    log = place / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [os.environ["GABION_TEST_BIN"], "server", *map(str, targets), "--geometry", "4+2", "--state", str(place / "state")]
            + ["--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}", *map(str, flags)],
            env={name: value for name, value in os.environ.items() if not name.startswith("GABION_")}
            | {"GABION_ROOT_ACCESS_KEY": ACCESS_KEY, "GABION_ROOT_SECRET_KEY": SECRET_KEY}
            # Six open segments are preallocated: of the default size they would take 9 GiB of the tester's disk.
            | {"GABION_SEGMENT_PAYLOAD_BYTES": "64MiB"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until_ready(process, admin, log)
        yield Server(f"{scheme}://127.0.0.1:{port}", ACCESS_KEY, SECRET_KEY)
        process.terminate()
        assert process.wait(timeout=60) == 0, log.read_text()[-4000:]
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    running = os.environ.get("GABION_TEST_ENDPOINT")
    if running:
        yield Server(running, os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
        return
    with serving(tmp_path_factory.mktemp("gabion"), "--domain", DOMAIN) as server:
        yield server


def wait_until_ready(process, admin, log):
    for _ in range(600):
        assert process.poll() is None, f"the server ended: {log.read_text()[-4000:]}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/health/ready", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the server was not ready within a minute: {log.read_text()[-4000:]}")


@pytest.fixture(scope="session")
def s3(server):
    """A client as boto3 makes it, with path-style addressing."""
    return server.client()


@pytest.fixture
def bucket(s3):
    """An empty bucket of the test's own, emptied and deleted at the end."""
    name = f"test-{uuid.uuid4().hex[:20]}"
    s3.create_bucket(Bucket=name)
    yield name
    for upload in s3.list_multipart_uploads(Bucket=name).get("Uploads", []):
        s3.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=name):
        versions = page.get("Versions", []) + page.get("DeleteMarkers", [])
        keys = [{"Key": item["Key"], "VersionId": item["VersionId"]} for item in versions]
        if keys:
            assert "Errors" not in s3.delete_objects(Bucket=name, Delete={"Objects": keys, "Quiet": True})
    s3.delete_bucket(Bucket=name)


def content(size, seed=1):
    """`size` bytes that follow from the seed."""
    return random.Random(seed).randbytes(size)


def tree(directory):
    """Relative path to digest of every file below a directory."""
    root = Path(directory)
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
