"""Clients that take what they asked for long after the server has sent it."""

import contextlib
import os
import socket
import time
import urllib.request

import conftest

BYTES = 1536 * 1024
# Holes are punched when they are worth more than a pass through the index, whose log is of 64 MiB.
COUNT = 126
# In the first half of the segments.
HELD = range(0, COUNT // 2, 9)
# Linux, as root: as large a buffer as is asked for.
SO_RCVBUFFORCE = 33


def stored(place):
    """Bytes on the disk of all that is below."""
    return sum(path.stat().st_blocks * 512 for path in place.rglob("*") if path.is_file())


def ask(server, url):
    """Asks for an object and takes nothing of it; the answer fits into the socket, where the system allows that."""
    asking = socket.socket()
    with contextlib.suppress(OSError):
        asking.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 2 * BYTES)
    asking.connect(("127.0.0.1", server.port))
    asking.sendall(f"GET {url.removeprefix(server.endpoint)} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
    return asking


def take(asking):
    answer = bytearray()
    while (head := answer.find(b"\r\n\r\n")) < 0 or len(answer) < head + 4 + BYTES:
        received = asking.recv(1 << 20)
        assert received, "it broke off"
        answer += received
    return bytes(answer[head + 4 :])


def test_what_is_on_its_way_is_not_changed_by_holes(tmp_path):
    """The objects are deleted and their space is given back before the clients look at what they were sent."""
    flags = ["--segment-payload-bytes", "32MiB", "--lanes-large", "1", "--compaction-interval", "1s"]
    with conftest.serving(tmp_path, *flags) as server:
        client = server.client()
        client.create_bucket(Bucket="bkt")
        bodies = [os.urandom(BYTES) for _ in range(COUNT)]
        for number, body in enumerate(bodies):
            client.put_object(Bucket="bkt", Key=str(number), Body=body)
        asking = {}
        for number in HELD:
            url = client.generate_presigned_url("get_object", Params={"Bucket": "bkt", "Key": str(number)})
            # Now the page cache has it.
            assert urllib.request.urlopen(url).read() == bodies[number]
            asking[number] = ask(server, url)
        time.sleep(0.5)
        before = stored(tmp_path)
        dead = [str(number) for number in range(COUNT) if number % 3 != 1]
        client.delete_objects(Bucket="bkt", Delete={"Objects": [{"Key": key} for key in dead]})
        until = time.monotonic() + 60
        while stored(tmp_path) > before - (16 << 20):
            assert time.monotonic() < until, "no space was given back"
            time.sleep(0.2)
        for number, socket_of in asking.items():
            assert take(socket_of) == bodies[number], number
            socket_of.close()
        for number in range(1, COUNT, 3):
            assert client.get_object(Bucket="bkt", Key=str(number))["Body"].read() == bodies[number]
