"""Notifications of what happens to objects: configured with boto3, received by a webhook and by a real NATS server."""

import base64
import contextlib
import http.server
import json
import os
import socket
import subprocess
import threading
import time

import conftest
import pytest
from botocore.exceptions import ClientError

pytestmark = pytest.mark.skipif("GABION_TEST_ENDPOINT" in os.environ, reason="needs a server of its own")

QUEUE = "arn:aws:sqs:us-east-1::hook"


class Hook:
    """A webhook on a port of its own."""

    def __init__(self):
        hook = self
        self.records, self.changed = [], threading.Condition()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with hook.changed:
                    hook.records += body.get("Records", [])
                    hook.changed.notify_all()
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.port = conftest.free_port()
        self.handler = Handler
        self.server = None

    def open(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), self.handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()

    def take(self, count):
        """The next records, of which there must be as many."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.records) >= count, timeout=60), self.records
            taken, self.records = self.records, []
        assert len(taken) == count, taken
        return taken


@pytest.fixture
def hook():
    hook = Hook()
    yield hook
    hook.close()


class Restarted:
    """A server that can be killed and started again with the same targets."""

    def __init__(self, place, *flags):
        self.place, self.flags, self.process = place, flags, None
        self.target = place / "target"
        self.target.mkdir()

    def start(self):
        port, admin = conftest.free_port(), conftest.free_port()
        log = self.place / "server.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [os.environ["GABION_TEST_BIN"], "server", str(self.target), "--listen", f"127.0.0.1:{port}"]
                + ["--admin-listen", f"127.0.0.1:{admin}", *self.flags],
                env={name: value for name, value in os.environ.items() if not name.startswith("GABION_")}
                | {"GABION_ROOT_ACCESS_KEY": conftest.ACCESS_KEY, "GABION_ROOT_SECRET_KEY": conftest.SECRET_KEY}
                | {"GABION_SEGMENT_PAYLOAD_BYTES": "64MiB"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        conftest.wait_until_ready(self.process, admin, log)
        self.admin = admin
        server = conftest.Server(f"http://127.0.0.1:{port}", conftest.ACCESS_KEY, conftest.SECRET_KEY)
        return server.client()

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def restartable(place, *flags):
    server = Restarted(place, *flags)
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def notified(tmp_path, hook):
    """A client whose bucket `bkt` notifies the hook, which is open."""
    hook.open()
    with conftest.serving(tmp_path, "--notifications-targets", f"hook=http://127.0.0.1:{hook.port}/") as server:
        client = server.client()
        client.create_bucket(Bucket="bkt")
        yield client


def queue(events, **filters):
    configuration = {"QueueArn": QUEUE, "Events": events}
    if filters:
        rules = [{"Name": name, "Value": value} for name, value in filters.items()]
        configuration["Filter"] = {"Key": {"FilterRules": rules}}
    return configuration


def configure(client, *queues, **more):
    client.put_bucket_notification_configuration(
        Bucket="bkt", NotificationConfiguration={"QueueConfigurations": list(queues)}, **more
    )


def test_configurations_come_back(notified):
    shown = notified.get_bucket_notification_configuration(Bucket="bkt")
    assert "QueueConfigurations" not in shown
    configure(notified, queue(["s3:ObjectCreated:*"], prefix="a/", suffix=".jpg") | {"Id": "mine"})
    [shown] = notified.get_bucket_notification_configuration(Bucket="bkt")["QueueConfigurations"]
    rules = {rule["Name"].lower(): rule["Value"] for rule in shown["Filter"]["Key"]["FilterRules"]}
    assert (shown["Id"], shown["QueueArn"], shown["Events"]) == ("mine", QUEUE, ["s3:ObjectCreated:*"])
    assert rules == {"prefix": "a/", "suffix": ".jpg"}
    notified.put_bucket_notification_configuration(Bucket="bkt", NotificationConfiguration={})
    assert "QueueConfigurations" not in notified.get_bucket_notification_configuration(Bucket="bkt")


@pytest.mark.parametrize(
    "queues",
    [
        [queue(["s3:ObjectCreated:Pet"])],
        [queue(["s3:ObjectCreated:*"]) | {"QueueArn": "arn:aws:sqs:us-east-1::nobody"}],
        [queue(["s3:ObjectCreated:*"]) | {"QueueArn": "nobody"}],
        [queue(["s3:ObjectCreated:*"], infix="x")],
        [queue(["s3:ObjectCreated:*"]), queue(["s3:ObjectCreated:Put"])],
        [queue(["s3:ObjectCreated:*"], prefix="a"), queue(["s3:ObjectCreated:Put"], prefix="ab")],
    ],
)
def test_what_is_wrong_is_refused(notified, queues):
    with pytest.raises(ClientError) as refused:
        configure(notified, *queues)
    assert refused.value.response["Error"]["Code"] == "InvalidArgument"


def test_events_reach_the_webhook(notified, hook):
    configure(notified, queue(["s3:ObjectCreated:*", "s3:ObjectTagging:*", "s3:ObjectRemoved:*"], prefix="a/"))
    notified.put_object(Bucket="bkt", Key="a/b c", Body=b"four")
    notified.put_object(Bucket="bkt", Key="elsewhere", Body=b"x")
    notified.copy_object(Bucket="bkt", Key="a/copy", CopySource={"Bucket": "bkt", "Key": "a/b c"})
    upload = notified.create_multipart_upload(Bucket="bkt", Key="a/parts")["UploadId"]
    part = notified.upload_part(Bucket="bkt", Key="a/parts", UploadId=upload, PartNumber=1, Body=b"part")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    notified.complete_multipart_upload(Bucket="bkt", Key="a/parts", UploadId=upload, MultipartUpload=parts)
    notified.put_object_tagging(Bucket="bkt", Key="a/copy", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
    notified.delete_objects(Bucket="bkt", Delete={"Objects": [{"Key": "a/copy"}, {"Key": "a/none"}]})
    records = hook.take(5)
    assert [record["eventName"] for record in records] == [
        "ObjectCreated:Put",
        "ObjectCreated:Copy",
        "ObjectCreated:CompleteMultipartUpload",
        "ObjectTagging:Put",
        "ObjectRemoved:Delete",
    ]
    assert records[0]["s3"]["object"]["key"] == "a/b+c" and records[0]["s3"]["object"]["size"] == 4


def test_what_was_acknowledged_is_told_after_a_crash(tmp_path, hook):
    """The hook is down, and the server is killed: once both are back, every event is delivered, and none of it twice."""
    with restartable(tmp_path, "--notifications-targets", f"hook=http://127.0.0.1:{hook.port}/") as server:
        client = server.start()
        client.create_bucket(Bucket="bkt")
        configure(client, queue(["s3:ObjectCreated:*"]))
        for number in range(20):
            client.put_object(Bucket="bkt", Key=str(number), Body=b"x")
        server.kill()
        client = server.start()
        client.put_object(Bucket="bkt", Key="20", Body=b"x")
        hook.open()
        records = hook.take(21)
    assert [record["s3"]["object"]["key"] for record in records] == [str(number) for number in range(21)]


class Nats:
    """A NATS server of its own, and as much of its protocol as asks for a stream."""

    SECRET = "sesame-of-the-test"

    def __init__(self, place, *auth):
        self.port = conftest.free_port()
        self.program = conftest.installed("GABION_TEST_NATS", "the NATS server")
        self.arguments = ["--addr", "127.0.0.1", "--port", str(self.port), "--jetstream", "--store_dir", str(place / "nats"), *auth]
        self.process = None

    def start(self):
        self.process = subprocess.Popen([self.program, *self.arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            with contextlib.suppress(OSError):
                self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=30)
                break
            time.sleep(0.1)
        self.file = self.socket.makefile("rb")
        assert self.file.readline().startswith(b"INFO")
        hello = {"verbose": False, "headers": True}
        hello |= {"user": "ali", "pass": self.SECRET} if "--user" in self.arguments else {"auth_token": self.SECRET}
        self.socket.sendall(b"CONNECT %s\r\nSUB answers 1\r\n" % json.dumps(hello).encode())

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def ask(self, subject, question):
        body = json.dumps(question).encode()
        self.socket.sendall(b"PUB %s answers %d\r\n%s\r\n" % (subject.encode(), len(body), body))
        while True:
            line = self.file.readline().split()
            if line[0] == b"PING":
                self.socket.sendall(b"PONG\r\n")
            elif line[0] == b"MSG":
                answer = json.loads(self.file.read(int(line[-1]) + 2))
                assert "error" not in answer, answer
                return answer

    def messages(self, count):
        """What the stream keeps, as soon as it is as much."""
        for _ in range(600):
            if self.ask("$JS.API.STREAM.INFO.S3", {})["state"]["messages"] >= count:
                break
            time.sleep(0.1)
        assert self.ask("$JS.API.STREAM.INFO.S3", {})["state"]["messages"] == count
        kept = [self.ask("$JS.API.STREAM.MSG.GET.S3", {"seq": number + 1})["message"] for number in range(count)]
        return [(base64.b64decode(message["hdrs"]).decode(), json.loads(base64.b64decode(message["data"]))) for message in kept]


@pytest.fixture
def nats_with(tmp_path):
    with contextlib.ExitStack() as running:

        def nats(*auth):
            nats = Nats(tmp_path, *auth)
            running.callback(nats.kill)
            nats.start()
            return nats

        yield nats


def serving_nats(tmp_path, nats, secret):
    file = tmp_path / "secret"
    file.write_text(secret + "\n")
    (tmp_path / "gabion").mkdir()
    flags = ["--notifications-targets", f"hook=nats://127.0.0.1:{nats.port}/s3.events", "--notifications-token-files", f"hook={file}"]
    return conftest.serving(tmp_path / "gabion", *flags)


REFUSED = "a target does not take notifications"


@pytest.mark.parametrize(
    ("auth", "secret"),
    [(["--auth", Nats.SECRET], Nats.SECRET), (["--user", "ali", "--pass", Nats.SECRET], "ali\n" + Nats.SECRET)],
    ids=["token", "user"],
)
def test_a_stream_of_nats_keeps_events(tmp_path, nats_with, auth, secret):
    nats = nats_with(*auth)
    with serving_nats(tmp_path, nats, secret) as server:
        client = server.client()
        client.create_bucket(Bucket="bkt")
        configure(client, queue(["s3:ObjectCreated:*"]))
        # There is no stream yet: it all waits.
        for number in range(10):
            client.put_object(Bucket="bkt", Key=str(number), Body=b"x")
        nats.ask("$JS.API.STREAM.CREATE.S3", {"name": "S3", "subjects": ["s3.events"], "storage": "file"})
        nats.messages(11)
        # It is away, and comes back.
        nats.kill()
        for number in range(10, 15):
            client.put_object(Bucket="bkt", Key=str(number), Body=b"x")
        nats.start()
        client.put_object(Bucket="bkt", Key="15", Body=b"x")
        [test, *events] = nats.messages(17)
    assert test[1]["Event"] == "s3:TestEvent"
    assert [body["Records"][0]["s3"]["object"]["key"] for _, body in events] == [str(number) for number in range(16)]
    ids = [head.split("Nats-Msg-Id:")[1].split("\r\n")[0].strip() for head, _ in [test, *events]]
    assert len(set(ids)) == 17
    log = (tmp_path / "gabion/server.log").read_text()
    assert Nats.SECRET not in log
    assert "no stream keeps the subject s3.events" in log
    # Once while there was no stream, and once while there was no server, which may be as long as it takes to store one document.
    assert log.count(REFUSED) <= 3, log


def test_who_is_no_user_of_nats_is_told_so_once(tmp_path, nats_with):
    nats = nats_with("--auth", Nats.SECRET)
    with serving_nats(tmp_path, nats, "another-" + Nats.SECRET) as server:
        client = server.client()
        client.create_bucket(Bucket="bkt")
        configure(client, queue(["s3:ObjectCreated:*"]))
        client.put_object(Bucket="bkt", Key="k", Body=b"x")
        log = tmp_path / "gabion/server.log"
        for _ in range(300):
            if REFUSED in log.read_text():
                break
            time.sleep(0.1)
        # Some more attempts.
        time.sleep(3)
    text = log.read_text()
    assert text.count(REFUSED) == 1 and "authorization violation" in text.lower(), text
    assert text.lower().count("authorization") <= 2 and Nats.SECRET not in text, text
