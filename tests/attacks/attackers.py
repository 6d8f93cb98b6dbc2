"""Who attacks, in a process of its own: ``python -m tests.attacks.attackers NAME PORT SECONDS``.

Each attack lasts as long as it is told to, whatever the broker does about it, and prints how often it did what it does.
Ports are those of the machine itself; where the attack needs an address, a PROXY header says one.
"""

import contextlib
import itertools
import random
import socket
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator

import msgpack

from tests.wire.flexi_frames import frame

HOST = "127.0.0.1"
#: What the proxy says: all come from one address, which no test has otherwise.
PROXY = b"PROXY TCP4 192.0.2.66 127.0.0.1 50000 7890\r\n"
#: What is told of an attacker before anything else, by what stands behind the attack's name.
_TOLD = {"": b"", "proxied": PROXY}
UPGRADE = (
    b"GET %s HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)
JOIN = frame("JOIN")
#: What each dialect begins with, for those who never come to its end.
SLOW = {
    "fleximq": frame("JOIN", 0, {"x": "y" * 200}),
    "blipmq": struct.pack(">IBQ", 11, 1, 1) + b"\0\1",
    "minimq": b"PRODUCE:id:::topic:::" + b"x" * 200,
    "identity": UPGRADE % b"/",
    "fleximq-ws": UPGRADE % b"/ws",
    "http": b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 200,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
}
#: The routing of a FlexiMQ notification that settles.
_SETTLE = {"routing": [{"client_id": 1, "path": "/queue/settle"}]}
#: Connections that attack at the same time where they stay open.
MANY = 300


class Attack:
    """One attack on a port, until a time."""

    def __init__(self, port: int, until: float) -> None:
        self._port = port
        self._until = until
        self.done = 0

    def run(self, name: str) -> None:
        """Do it; ``name`` may have an argument behind a colon."""
        name, _, argument = name.partition(":")
        attack: Callable[..., None] = getattr(self, f"attack_{name}")
        attack(*([argument] if argument else []))

    def attack_connects(self) -> None:
        """Connect and go, as fast as can be."""
        for _ in self._again():
            self._connected(PROXY).close()

    def attack_joins(self) -> None:
        """Connect and join, and go."""
        for _ in self._again():
            with self._connected(PROXY + JOIN) as connected, contextlib.suppress(OSError):
                connected.recv(100)

    def attack_crowd(self) -> None:
        """Connect as often as can be, and stay."""
        stay = []
        for _ in self._again():
            stay.append(self._connected(PROXY))
            if len(stay) >= 4 * MANY:
                stay.pop(0).close()

    def attack_silence(self) -> None:
        """The same, and say nothing: not even for whom."""
        stay = []
        for _ in self._again():
            stay.append(self._connected(b""))
            if len(stay) >= 4 * MANY:
                stay.pop(0).close()

    def attack_subscriptions(self) -> None:
        """Subscribe to one topic after the other."""
        numbers = itertools.count()
        self._insist(lambda id: b"".join(frame("SUB", id, {"topic": f"s{next(numbers)}"}) for _ in range(50)), 50)

    def attack_topics(self) -> None:
        """Publish to one topic after the other."""
        numbers = itertools.count()
        self._insist(lambda id: b"".join(frame("PUB", id, {"topic": f"p{next(numbers)}"}) for _ in range(50)), 50)

    def attack_publishes(self) -> None:
        """Publish to one topic, as fast as can be."""
        self._insist(lambda id: frame("PUB", id, {"topic": "flood"}, msgpack.packb("x" * 100)) * 500, 500)

    def attack_bytes(self) -> None:
        """Publish large messages."""
        self._insist(lambda id: frame("PUB", id, {"topic": "flood"}, msgpack.packb("x" * 200_000)), 1)

    def attack_queues(self) -> None:
        """Fill one queue of MiniMQ after the other."""
        with self._connected(b"") as connected:
            for number in self._again():
                lines = (f"PRODUCE:i:::q{number}:::{'x' * 1000}:::-:::-\n" for _ in range(10))
                self._say(connected, "".join(lines).encode())
                connected.setblocking(False)
                with contextlib.suppress(OSError):
                    connected.recv(1 << 16)

    def attack_trickle(self, dialect: str) -> None:
        """Say a byte at a time, on many connections at once; come again when closed."""
        first = SLOW[dialect][:-1]
        open: list[tuple[socket.socket, int]] = []
        for number in self._again():
            if len(open) < MANY:
                open.append((self._connected(b""), 0))
            place = number % len(open)
            connected, said = open[place]
            try:
                connected.setblocking(False)
                connected.send(first[said % len(first) :][:1])
                open[place] = connected, said + 1
            except OSError:
                connected.close()
                open[place] = self._connected(b""), 0
            if place == len(open) - 1:
                time.sleep(0.01)

    def attack_bombs(self, whence: str = "") -> None:
        """Send small messages that inflate to 64 MiB."""
        told = _TOLD[whence]
        deflater = zlib.compressobj(9, wbits=-15)
        bomb = deflater.compress(bytes(64 << 20)) + deflater.flush(zlib.Z_SYNC_FLUSH)
        message = b"\xc1\xff" + struct.pack(">Q", len(bomb) - 4) + bytes(4) + bomb[:-4]
        for number in self._again():
            upgrade = UPGRADE % (b"/", b"/ws")[number % 2]
            with self._connected(told + upgrade) as connected, contextlib.suppress(OSError):
                connected.recv(1000)
                connected.sendall(message)
                while connected.recv(1 << 16):
                    pass

    def attack_passwords(self) -> None:
        """Try one password after the other, on a connection of its own; wait for no answer."""
        waiting: list[socket.socket] = []
        for number in self._again():
            auth = {"type": "basic", "username": "anna", "password": f"guess{number}"}
            waiting.append(self._connected(PROXY + frame("JOIN", 0, {"auth": auth})))
            if len(waiting) > MANY:
                waiting.pop(0).close()

    def attack_signIns(self) -> None:
        """Sign in to the console with one password after the other; wait for no answer."""
        waiting: list[socket.socket] = []
        head = b"POST /console/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for number in self._again():
            body = b'{"name": "anna", "password": "guess%d"}' % number
            length = b"Content-Length: %d\r\n\r\n" % len(body)
            waiting.append(self._connected(PROXY + head + length + body))
            if len(waiting) > MANY:
                waiting.pop(0).close()

    def attack_requests(self, whence: str = "") -> None:
        """Ask for web pages."""
        told = _TOLD[whence]
        for number in self._again():
            with self._connected(told + b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number) as connected:
                with contextlib.suppress(OSError):
                    connected.recv(1000)

    def attack_takes(self) -> None:
        """Let one request after the other wait for jobs, on connections that stay, of which the oldest goes."""
        stay: list[socket.socket] = []
        for number in self._again():
            target = b"/queues/takes%d/take?most=256&wait=300&create=true" % (number % 20)
            stay.append(self._connected(b"POST %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target))
            if len(stay) >= 4 * MANY:
                stay.pop(0).close()

    def attack_streams(self) -> None:
        """Read topics as events without reading a byte, and publish large messages to them."""
        stay: list[socket.socket] = []
        ask = b"GET /topics/%b HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nLast-Event-ID: %b\r\n\r\n"
        body = b'"' + b"\\n\\ndata: x" * 10_000 + b'"'
        post = b"POST /topics/streams.x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        publisher = self._connected(b"")
        for number in self._again():
            if len(stay) < MANY:
                last = (b"0", b"9" * 18, b"-1", b"live", b"\xff")[number % 5]
                stay.append(self._connected(ask % ((b"streams.*", b"streams.x", b"%23")[number % 3], last)))
                stay[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                continue
            self._say(publisher, post + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            with contextlib.suppress(OSError):
                publisher.recv(1 << 16)

    def attack_settles(self) -> None:
        """Settle deliveries that nobody has, as a consumer, and one that one has a thousand times."""
        one = frame("PUB", 0, {"topic": "work", "queue": True})
        storm = {
            "queue": "work",
            "ack": list(range(100, 200)),
            "retry": [[4, 0]],
            "extend": [[4, 0]],
            "reject": [[5, "x"]],
        }

        def said(id: int) -> bytes:
            there = one[:2] + id.to_bytes(4, "big") + one[6:]
            consume = frame("SUB", id, {"topic": "work", "queue": True, "prefetch": 10})
            return there + consume + frame("NOTIF", id, _SETTLE, msgpack.packb(storm)) * 50

        self._insist(said, 50)

    def attack_extensions(self) -> None:
        """Hold deliveries for ever, as far as that goes."""
        extend = msgpack.packb({"queue": "held", "extend": [[number * 10 + 4, 1000] for number in range(1000)]})

        def said(id: int) -> bytes:
            consume = frame("SUB", id, {"topic": "held", "queue": True, "prefetch": 65_535})
            work = frame("PUB", id, {"topic": "held", "queue": True}, b"\x01")
            return consume + work * 10 + frame("NOTIF", id, _SETTLE, extend) * 5

        self._insist(said, 16)

    def attack_prefetch(self) -> None:
        """Ask for 65,535 deliveries of large messages from many queues, on each connection, and read none."""
        numbers = itertools.count()

        def said(id: int) -> bytes:
            header = {"topic": f"large{next(numbers) % 50}", "queue": True}
            consume = frame("SUB", id, {**header, "prefetch": 65_535})
            return consume + frame("PUB", id, header, msgpack.packb("x" * 900_000))

        self._insist(said, 2, reads=False)

    def attack_headers(self) -> None:
        """Enqueue small messages with the longest headers, each another, and consume without reading."""
        numbers = itertools.count()

        def said(id: int) -> bytes:
            consume = frame("SUB", id, {"topic": "long", "queue": True, "prefetch": 65_535})
            header = {"topic": "long", "queue": True, "x": f"{next(numbers):060000}"}
            return consume + frame("PUB", id, header, b"\x01") * 20

        self._insist(said, 20, reads=False)

    def attack_definitions(self) -> None:
        """Define one queue after the other, with as many sources as there may be."""
        numbers = itertools.count()

        def one(id: int) -> bytes:
            number = next(numbers)
            header = {
                "routing": [{"client_id": 1, "path": "/queue/define"}],
                "reqrep": {"type": "request", "id": str(number)},
            }
            sources = [f"s{number}.{each}" for each in range(20)]
            return frame("REQ", id, header, msgpack.packb({"queue": f"d{number}", "sources": sources}))

        self._insist(lambda id: b"".join(one(id) for _ in range(20)), 20)

    def attack_priorities(self) -> None:
        """Enqueue with another priority each time, and let a consumer give all back again and again."""
        numbers = itertools.count()

        def said(id: int) -> bytes:
            work = (
                frame("PUB", id, {"topic": "flip", "queue": True, "priority": next(numbers) % 10}, b"\x01")
                for _ in range(50)
            )
            consume = frame("SUB", id, {"topic": "flip", "queue": True, "prefetch": 1000})
            return consume + b"".join(work) + frame("UNSUB", id, {"topic": "flip", "queue": True})

        self._insist(said, 52)

    def attack_schedules(self) -> None:
        """Schedule for the past, for now, for as late as possible and for the year 9999, in memory and on disk."""
        year9999, past, decade = 253_402_300_799_000, 1, 10 * 365 * 86_400_000

        def said(id: int) -> bytes:
            times = [{"deliver_at": past}, {"deliver_at": year9999}, {"deliver_in": 0}, {"deliver_in": decade}]
            topics: list[dict[str, object]] = [
                {"topic": "later"},
                {"topic": "due", "queue": True},
                {"topic": "d.later"},
            ]
            return b"".join(frame("PUB", id, {**topic, **when}, b"\x01") for topic in topics for when in times * 5)

        self._insist(said, 60)

    def attack_repeats(self) -> None:
        """Define recurring schedules each millisecond, which is refused, and each second, again and again."""
        numbers = itertools.count()

        def one(id: int, every: int) -> bytes:
            number = next(numbers)
            header = {
                "routing": [{"client_id": 1, "path": "/schedule/repeat"}],
                "reqrep": {"type": "request", "id": str(number)},
            }
            repeat = {"name": f"r{number % 2000}", "topic": "often", "payload": number, "every": every}
            return frame("REQ", id, header, msgpack.packb({**repeat, "catch_up": "all"}))

        self._insist(lambda id: one(id, 1) * 10 + b"".join(one(id, 1000) for _ in range(10)), 20)

    # -- how ---------------------------------------------------------------------------------------

    def _again(self) -> Iterator[int]:
        for number in itertools.count():
            if time.monotonic() >= self._until:
                return
            yield number
            self.done += 1

    def _connected(self, data: bytes) -> socket.socket:
        """Return a connection on which this was said; none may be had for a while."""
        while True:
            connected = socket.socket()
            connected.settimeout(0.5)
            try:
                connected.connect((HOST, self._port))
                connected.sendall(data)
            except OSError:
                if time.monotonic() < self._until:
                    time.sleep(random.random() / 100)
                    connected.close()
                    continue
            return connected

    def _insist(self, said: Callable[[int], bytes], count: int, reads: bool = True) -> None:
        """Join on four connections and say this again and again; do without answers, or do not even read them."""
        open = []
        for _ in range(4):
            connected = self._connected(JOIN)
            connected.settimeout(30.0)
            answer = connected.recv(1000)
            open.append((connected, int.from_bytes(answer[2:6], "big")))
        for number in self._again():
            connected, id = open[number % 4]
            self._say(connected, said(id))
            self.done += count - 1
            connected.setblocking(False)
            with contextlib.suppress(OSError):
                while reads and connected.recv(1 << 16):
                    pass

    def _say(self, connected: socket.socket, data: bytes) -> None:
        """Say it all, however long the broker does not read it; as long as there is time."""
        connected.settimeout(0.1)
        while data and time.monotonic() < self._until:
            with contextlib.suppress(OSError):
                data = data[connected.send(data) :]


def main(name: str, port: int, seconds: float) -> None:
    """Attack, and print how often."""
    attack = Attack(port, time.monotonic() + seconds)
    attack.run(name)
    print(attack.done)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
