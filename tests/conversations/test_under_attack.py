"""Bad peers, first each kind and then all at once: closed and counted, no growth, and nobody else is hurt.

The broker closes what is silent or says a byte at a time after five seconds, and leaves a megabyte unread.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from functools import partial

from tests.conversations.case import Place, SocketCase
from tests.conversations.clients import PATIENCE, Ended, FlexiClient, IdentityClient, Stream, WebSocketStream
from tests.conversations.test_slow_consumers import MEBIBYTE, forgetPeak, status
from tests.nightly import nightly
from tests.web_socket_client import CONTINUATION, PING, TEXT
from tests.wire.flexi_frames import frame

DEADLINE = 5.0
Address = tuple[str, int]

JOIN = frame("JOIN")
HELLO = struct.pack(">IBQ", 11, 1, 1) + b"\0\1"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
#: What each dialect begins with, and what the answer begins with.
FIRST = {
    "fleximq": (JOIN, b"\x01\x02"),
    "blipmq": (HELLO, struct.pack(">IBQ", 17, 5, 1)),
    "minimq": (b"PING:\n", b"PONG:\n"),
    "websocket": (UPGRADE, b"HTTP/1.1 101"),
}


def say(address: Address, data: bytes, then: bytes = b"") -> bytes:
    """Say something and return all that comes until the broker closes; then may be said at once and not be read."""
    with Stream(address) as stream:
        stream.say(data)
        stream.say(then)
        return stream.readAll()


def dribble(address: Address, data: bytes) -> bytes:
    """Say a byte at a time until the broker closes; return what it said."""
    heard = b""
    with Stream(address) as stream:
        stream.socket.settimeout(0.05)
        for number in range(int(10 * DEADLINE / 0.05)):
            stream.say(data[number : number + 1])
            with contextlib.suppress(TimeoutError):
                got = stream.read()
                if not got:
                    return heard
                heard += got
    raise AssertionError("a peer that says a byte at a time was not closed")


def insist(carrier: socket.socket, data: bytes) -> None:
    """Say the same again and again and read nothing, until the broker closes."""
    carrier.settimeout(PATIENCE)
    with contextlib.suppress(OSError):
        while True:
            carrier.sendall(data)


def flooding(address: Address, data: bytes) -> None:
    """Join as FlexiMQ, and insist."""
    with Stream(address) as stream:
        client = FlexiClient(stream).join()
        insist(stream.socket, data.replace(b"\xaa\xaa\xaa\xaa", struct.pack(">I", client.id)))


def pinging(address: Address, path: str) -> None:
    """Open a WebSocket and send PINGs without reading their answers."""
    with WebSocketStream(address, path) as stream:
        if path == "/ws":
            FlexiClient(stream).join()
        whole = bytes([0x80 | PING, 0x80 | 100]) + bytes(104)
        insist(stream.webSocket._socket, whole * 500)


def fragments(address: Address) -> None:
    """Send a message of fragments that has no end until it is too large, and then wait for the broker to say so."""
    with IdentityClient(address) as client:
        client.webSocket._socket.sendall(bytes([TEXT, 0x80]) + bytes(4))
        client.webSocket._socket.sendall((bytes([CONTINUATION, 0x80 | 1]) + bytes(5)) * 66_000)
        try:
            client.hear()
        except Ended as ended:
            if ended.args != (1009,):
                raise AssertionError("a message that is too large was ended otherwise") from ended


#: The answer to an error tells the id, so that few of them are much to read.
LONG = {"reqrep": {"type": "request", "id": "x" * 50_000}}
NOBODY = [{"client_id": 999, "path": "p"}]
#: Every kind of attack; each ends by itself.
ATTACKS: dict[str, Callable[[Address], object]] = {
    "silence": partial(say, data=b""),
    **{f"{name}: part": partial(say, data=first[: len(first) // 2]) for name, (first, _) in FIRST.items()},
    "fleximq: header too long": partial(say, data=JOIN[:22] + struct.pack(">I", 65_537)),
    "fleximq: payload too long": partial(say, data=JOIN[:26] + b"\xff" * 8),
    "fleximq: nested": partial(say, data=frame("JOIN", 0, b"\x81\xa1a" + b"\x91" * 60_000)),
    "fleximq: huge array": partial(say, data=frame("JOIN", 0, b"\xdd\xff\xff\xff\xff")),
    "fleximq: huge map": partial(say, data=frame("JOIN", 0, b"\xdf\xff\xff\xff\xff")),
    "fleximq: no UTF-8": partial(say, data=frame("JOIN", 0, b"\x81\xa5topic\xa2\xff\xff")),
    "blipmq: no length": partial(say, data=struct.pack(">IB", 0, 1)),
    "blipmq: too long": partial(say, data=struct.pack(">IB", (1 << 24) + 1, 1)),
    "blipmq: lying length": partial(say, data=HELLO + struct.pack(">IBQ", 1 << 24, 3, 1) + bytes(50_000)),
    "blipmq: unknown type": partial(say, data=struct.pack(">IB", 9, 77)),
    "minimq: too long": partial(say, data=b"PRODUCE:" + b"x" * (2 * MEBIBYTE)),
    "http: no end": partial(say, data=b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000),
    "http: no HTTP": partial(say, data=b"GET \xff\xff\r\n\r\n"),
    "websocket: no mask": partial(say, data=UPGRADE, then=b"\x82\x01x"),
    "websocket: reserved": partial(say, data=UPGRADE, then=b"\xf2\x80\0\0\0\0"),
    "websocket: unknown": partial(say, data=UPGRADE, then=b"\x83\x80\0\0\0\0"),
    "websocket: long ping": partial(say, data=UPGRADE, then=b"\x89\xfe\0\x7e" + bytes(130)),
    "websocket: lying length": partial(say, data=UPGRADE, then=b"\x82\xff\xff" + bytes(11)),
    "unknown types": partial(flooding, data=frame(99, 0xAAAAAAAA, LONG) * 10),
    "unknown targets": partial(flooding, data=frame("REQ", 0xAAAAAAAA, LONG | {"routing": NOBODY}) * 10),
    "pings, fleximq": partial(pinging, path="/ws"),
    "pings, identity": partial(pinging, path="/"),
    "fragments, identity": fragments,
    **{
        f"{name}: a byte at a time": partial(dribble, data=first[:-1].ljust(9, b" "))
        for name, (first, _) in FIRST.items()
    },
}


class AttackTests(SocketCase):
    """A broker with short patience."""

    place = Place(
        "--handshake-timeout", str(DEADLINE), "--outbox-bytes", "1MiB", "--max-line", "1MiB", "--max-text", "64KiB",
        "--max-message", "1MiB",
    )  # fmt: skip

    def test_cutOff(self) -> None:
        """Who does not read the answers to nonsense, or to PINGs, is cut off for it, and counted."""
        before = self.counts().get("left: slow consumer", 0)
        for name in ("unknown types", "unknown targets", "pings, fleximq", "pings, identity"):
            ATTACKS[name](self.place.address("fleximq"))
        self.eventually(lambda: self.counts().get("left: slow consumer", 0) == before + 4, "four to be cut off")

    @nightly
    def test_allAtOnce(self) -> None:
        """While all of it happens, again and again, a client is served, and memory stays where it is."""
        address, pid = self.place.address("fleximq"), self.place.broker.pid
        self.attack(address)
        client, other = self.flexi(), self.flexi()
        mini, blip = self.mini(), self.blip()
        subscription = blip.subscribe(self.topic)
        before = status(pid, "VmRSS")
        forgetPeak(pid)
        threads = [threading.Thread(target=self.attack, args=(address,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        served = 0
        while any(thread.is_alive() for thread in threads):
            client.request(other.id, "/echo", str(served), served)
            self.assertEqual(other.hear().value, served)
            other.reply(client.id, str(served), served)
            self.assertEqual(client.hear().value, served)
            self.assertEqual(mini.produce(self.topic, str(served), "x"), str(served))
            self.assertEqual(blip.poll(subscription).message, b"x")
            served += 1
        self.assertGreater(served, 2)
        self.assertLess(status(pid, "VmHWM") - before, 16 * MEBIBYTE)
        self.eventually(lambda: client.ask("/broker/about")["clients"] == 4, "all others to be gone")

    def attack(self, address: Address) -> None:
        """Let everybody attack at the same time, and wait until all is over."""
        failed: list[tuple[str, BaseException]] = []

        def one(name: str, attack: Callable[[Address], object]) -> None:
            try:
                attack(address)
            except (ConnectionError, TimeoutError):
                pass
            except BaseException as error:
                failed.append((name, error))

        threads = [threading.Thread(target=one, args=each) for each in ATTACKS.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
