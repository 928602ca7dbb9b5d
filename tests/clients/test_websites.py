"""Websites and pages: index and error documents, redirects, and what browsers may ask of a bucket from other origins."""

import http.client
import json
import uuid

import pytest
from conftest import serving

SITE = "web.gabion.test"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("websites"), "--website-domain", SITE) as server:
        yield server


@pytest.fixture(scope="module")
def s3(server):
    return server.client()


@pytest.fixture
def site(server, s3):
    """A bucket that everyone may read, and what a browser does there: (status, header of that name or body)."""
    bucket = f"site-{uuid.uuid4().hex[:20]}"
    s3.create_bucket(Bucket=bucket)
    statement = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))

    def visit(path, method="GET", header=None):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request(method, path, headers={"Host": f"{bucket}.{SITE}:{server.port}"})
        answer = connection.getresponse()
        body = answer.read().decode()
        return answer.status, answer.headers[header] if header else body

    return bucket, visit


PAGES = {"index.html": "top", "dir/index.html": "below", "error.html": "sorry", "page ü": "a page", "new/k": "moved"}


@pytest.mark.parametrize(
    "path, expected",
    [
        ("/", (200, "top")),
        ("/index.html", (200, "top")),
        ("/dir/", (200, "below")),
        ("/page%20%C3%BC", (200, "a page")),
        ("/none", (404, "sorry")),
        ("/none/", (404, "sorry")),
        ("/?versions", (200, "top")),
    ],
)
def test_pages(s3, site, path, expected):
    bucket, visit = site
    for key, text in PAGES.items():
        s3.put_object(Bucket=bucket, Key=key, Body=text.encode(), ContentType="text/html")
    s3.put_bucket_website(Bucket=bucket, WebsiteConfiguration={"IndexDocument": {"Suffix": "index.html"}, "ErrorDocument": {"Key": "error.html"}})
    assert visit(path) == expected
    assert visit(path, "HEAD") == (expected[0], "")
    assert visit(path, "GET", "Content-Type") == (expected[0], "text/html")
    assert visit(path, "PUT")[0] == 405


@pytest.mark.parametrize(
    "rule, path, expected",
    [
        ({"Condition": {"KeyPrefixEquals": "old/"}, "Redirect": {"ReplaceKeyPrefixWith": "new/"}}, "/old/k", (301, "http://{host}/new/k")),
        ({"Condition": {"KeyPrefixEquals": "old/"}, "Redirect": {"ReplaceKeyWith": "new/k", "HttpRedirectCode": "302"}}, "/old/x", (302, "http://{host}/new/k")),
        ({"Condition": {"HttpErrorCodeReturnedEquals": "404"}, "Redirect": {"HostName": "other.test", "Protocol": "https"}}, "/none", (301, "https://other.test/none")),
        ({"Condition": {"HttpErrorCodeReturnedEquals": "404"}, "Redirect": {"HostName": "other.test"}}, "/index.html", (200, None)),
    ],
)
def test_redirects(server, s3, site, rule, path, expected):
    bucket, visit = site
    s3.put_object(Bucket=bucket, Key="index.html", Body=b"top")
    configuration = {"IndexDocument": {"Suffix": "index.html"}, "RoutingRules": [rule]}
    s3.put_bucket_website(Bucket=bucket, WebsiteConfiguration=configuration)
    assert s3.get_bucket_website(Bucket=bucket)["RoutingRules"] == [rule]
    status, target = expected
    target = target and target.format(host=f"{bucket}.{SITE}:{server.port}")
    assert visit(path, "GET", "Location") == (status, target)


def test_redirects_of_all_and_of_objects(s3, site):
    bucket, visit = site
    assert visit("/")[0] == 404
    s3.put_bucket_website(Bucket=bucket, WebsiteConfiguration={"RedirectAllRequestsTo": {"HostName": "other.test", "Protocol": "https"}})
    assert visit("/a/b", "GET", "Location") == (301, "https://other.test/a/b")
    s3.put_bucket_website(Bucket=bucket, WebsiteConfiguration={"IndexDocument": {"Suffix": "index.html"}})
    s3.put_object(Bucket=bucket, Key="k", WebsiteRedirectLocation="/elsewhere")
    assert visit("/k", "GET", "Location") == (301, "/elsewhere")
    assert s3.head_object(Bucket=bucket, Key="k")["WebsiteRedirectLocation"] == "/elsewhere"
    s3.delete_bucket_website(Bucket=bucket)
    assert visit("/k")[0] == 404


CORS = [
    {"AllowedMethods": ["GET", "HEAD"], "AllowedOrigins": ["*"]},
    {
        "AllowedMethods": ["PUT", "POST"],
        "AllowedOrigins": ["https://*.page.test", "http://localhost:3000"],
        "AllowedHeaders": ["content-type", "x-amz-*"],
        "ExposeHeaders": ["ETag", "x-amz-version-id"],
        "MaxAgeSeconds": 600,
    },
]


@pytest.mark.parametrize(
    "origin, method, headers, expected",
    [
        ("https://any.test", "GET", None, {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Methods": "GET, HEAD"}),
        ("https://any.test", "PUT", None, None),
        ("https://a.page.test", "PUT", None, {"Access-Control-Allow-Origin": "https://a.page.test", "Access-Control-Allow-Credentials": "true", "Access-Control-Max-Age": "600"}),
        ("https://a.page.test", "PUT", "Content-Type, X-Amz-Meta-A", {"Access-Control-Allow-Headers": "content-type, x-amz-meta-a", "Access-Control-Expose-Headers": "ETag, x-amz-version-id"}),
        ("https://a.page.test", "PUT", "authorization", None),
        ("http://a.page.test", "PUT", None, None),
        ("http://localhost:3000", "POST", None, {"Access-Control-Allow-Origin": "http://localhost:3000"}),
        ("http://localhost:3001", "POST", None, None),
        ("https://a.page.test", "DELETE", None, None),
    ],
)
def test_what_pages_of_other_origins_may_ask(server, s3, site, origin, method, headers, expected):
    bucket, _ = site
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": CORS})
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == CORS
    asked = {"Origin": origin, "Access-Control-Request-Method": method} | ({"Access-Control-Request-Headers": headers} if headers else {})
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("OPTIONS", f"/{bucket}/k", headers=asked)
    answer = connection.getresponse()
    body = answer.read()
    if expected is None:
        assert answer.status == 403 and b"<Code>AccessForbidden</Code>" in body
        return
    assert answer.status == 200
    shown = {name.lower(): value.lower().replace(", ", ",") for name, value in answer.getheaders()}
    for name, value in expected.items():
        assert shown.get(name.lower()) == value.lower().replace(", ", ","), name
