"""TLS with certificates that change, HTTP/2, and the old signature for those who ask for it."""

import shutil
import ssl
import subprocess
import time

import pytest
from botocore.exceptions import ClientError
from conftest import content, serving

MIB = 1 << 20


def certificate(place, name):
    """A new self-signed certificate for 127.0.0.1, moved into place as a renewal would."""
    new = place / "new"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        + ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{new}.key", "-out", f"{new}.pem"],
        check=True,
        capture_output=True,
    )
    for end in [".key", ".pem"]:
        (place / f"new{end}").replace(place / f"server{end}")


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificates and is not installed")
def test_tls_and_renewed_certificates(tmp_path):
    certificate(tmp_path, "first")
    with serving(tmp_path, "--tls-cert", tmp_path / "server.pem", "--tls-key", tmp_path / "server.key", scheme="https") as server:
        s3 = server.client(verify=str(tmp_path / "server.pem"))
        s3.create_bucket(Bucket="tls")
        for size in [0, 1000, 6 * MIB]:
            s3.put_object(Bucket="tls", Key="k", Body=content(size))
            assert s3.get_object(Bucket="tls", Key="k")["Body"].read() == content(size)
        before = ssl.get_server_certificate(("127.0.0.1", server.port))
        assert before.split() == (tmp_path / "server.pem").read_text().split()
        certificate(tmp_path, "second")
        renewed = (tmp_path / "server.pem").read_text().split()
        for _ in range(600):
            if ssl.get_server_certificate(("127.0.0.1", server.port)).split() == renewed:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the renewed certificate is not served within a minute")
        fresh = server.client(verify=str(tmp_path / "server.pem"))
        assert fresh.get_object(Bucket="tls", Key="k")["Body"].read() == content(6 * MIB)
        if shutil.which("curl"):
            command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_version} %{http_code}", "--http2", "--cacert", tmp_path / "server.pem"]
            done = subprocess.run([*map(str, command), server.endpoint], capture_output=True, text=True, check=True)
            # Who takes either is spoken to as AWS does.
            assert done.stdout == "1.1 403"


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_http2_without_tls(server, s3, bucket, tmp_path):
    body = content(5 * MIB)
    (tmp_path / "in").write_bytes(body)
    curl = ["curl", "-s", "-S", "--fail", "--http2-prior-knowledge"]
    put = s3.generate_presigned_url("put_object", {"Bucket": bucket, "Key": "k"})
    subprocess.run([*curl, "-T", str(tmp_path / "in"), put], check=True, timeout=60)
    get = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"})
    subprocess.run([*curl, "-o", str(tmp_path / "out"), get], check=True, timeout=60)
    assert (tmp_path / "out").read_bytes() == body
    # What is signed has the host in it, which HTTP/2 says in a place of its own.
    signed = ["--user", f"{server.access_key}:{server.secret_key}", "--aws-sigv4", "aws:amz:us-east-1:iam"]
    query = ["-d", "Action=ListUsers&Version=2010-05-08", server.endpoint]
    listed = subprocess.run([*curl, *signed, *query], capture_output=True, text=True, check=True, timeout=60)
    assert "<ListUsersResult>" in listed.stdout


def test_signature_version_2_is_opt_in(server, tmp_path):
    with pytest.raises(ClientError) as caught:
        server.client(signature_version="s3").list_buckets()
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403)
    with serving(tmp_path, "--sigv2", "true") as old:
        # boto3 signs `/old/` and sends `/old` where a request is for the bucket itself, so that only AWS takes it: objects, then.
        old.client().create_bucket(Bucket="old")
        s3 = old.client(signature_version="s3")
        assert [item["Name"] for item in s3.list_buckets()["Buckets"]] == ["old"]
        s3.put_object(Bucket="old", Key="a b/ü", Body=b"body", Metadata={"a": "1"})
        got = s3.get_object(Bucket="old", Key="a b/ü")
        assert (got["Body"].read(), got["Metadata"]) == (b"body", {"a": "1"})
        assert s3.head_object(Bucket="old", Key="a b/ü")["ContentLength"] == 4
        s3.delete_object(Bucket="old", Key="a b/ü")
        old.secret_key = "wrong"
        with pytest.raises(ClientError) as caught:
            old.client(signature_version="s3").list_buckets()
        assert caught.value.response["Error"]["Code"] == "SignatureDoesNotMatch"
