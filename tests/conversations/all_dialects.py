"""One conversation in which all dialects take part, over whatever connects them to the broker."""

import json
import socket
import uuid
from base64 import b64decode
from collections.abc import Callable
from contextlib import ExitStack

from tests.conversations.clients import (
    BlipClient,
    FlexiClient,
    IdentityClient,
    MiniClient,
    Stream,
    WebSocketStream,
)


def converse(connect: Callable[[], socket.socket]) -> None:
    """Let a client of each dialect publish to one topic, and each hear all of it.

    :param connect: returns a new connection to a place where all dialects are served.
    :raises AssertionError: somebody heard something else.
    """
    topic = f"t{uuid.uuid4().hex[:12]}"
    with ExitStack() as open:
        flexi = open.enter_context(FlexiClient(Stream(connect()))).join().subscribe(topic)
        browser = open.enter_context(FlexiClient(WebSocketStream(connect()))).join().subscribe(topic)
        blip = open.enter_context(BlipClient(connect())).login()
        mini = open.enter_context(MiniClient(connect()))
        identity = open.enter_context(IdentityClient(connect())).subscribe(topic)
        subscription = blip.subscribe(topic)
        _same(mini.consume(topic), "NO_MSG")
        reader = open.enter_context(Stream(connect()))
        reader.say(f"GET /topics/{topic}?limit=5 HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += reader.read()
        _same(head[:15], b"HTTP/1.1 200 OK")

        flexi.publish(topic, "from FlexiMQ")
        _same(flexi.barrier()[-1].value, "from FlexiMQ")
        blip.publish(topic, b"from BlipMQ")
        _same(blip.barrier(), [])
        _same(mini.produce(topic, "id-1", "from MiniMQ"), "id-1")
        identity.say(f"PUBLISH:{topic}:from Identity")
        _same(identity.barrier()[-1].rpartition(":")[2], "from Identity")

        web = open.enter_context(Stream(connect()))
        web.say(f"POST /topics/{topic} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nfrom HTTP".encode())
        _same(web.read()[:15], b"HTTP/1.1 200 OK")

        spoken = ["from FlexiMQ", "from BlipMQ", "from MiniMQ", "from Identity", "from HTTP"]
        _same([_text(each.value) for each in flexi.barrier()], spoken[1:])
        _same([_text(each.value) for each in browser.barrier()], spoken)
        _same([_delivered(blip, subscription) for _ in spoken], spoken)
        _same([_consumed(mini, topic) for _ in spoken], spoken)
        _same([_read(line) for line in reader.readAll().splitlines()], spoken)

        browser.request(flexi.id, "/add", "r1", [1, 2])
        request = flexi.hear()
        flexi.reply(request.sender, "r1", sum(request.value))
        _same(browser.hear().value, 3)


def _same(seen: object, wanted: object) -> None:
    if seen != wanted:
        raise AssertionError(f"heard {seen!r}, not {wanted!r}")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _read(line: bytes) -> str:
    found: dict[str, str] = json.loads(line)
    return b64decode(found["value"]).decode() if "encoding" in found else found["value"]


def _delivered(blip: BlipClient, subscription: int) -> str:
    delivery = blip.poll(subscription)
    blip.ack(delivery.tag, subscription)
    text: str = delivery.message.decode()
    return text


def _consumed(mini: MiniClient, topic: str) -> str:
    id, _, content, *_ = mini.consume(topic).split(":::")
    mini.ack(id)
    return content
