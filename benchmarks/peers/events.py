"""Our broker with readers of Server-Sent Events; publishers speak FlexiMQ."""

from collections.abc import Sequence

import msgpack

from benchmarks.peers.fleximq import FlexiMQ
from benchmarks.peers.line import Line
from benchmarks.peers.peer import Who

_PUB = 5


class Events(FlexiMQ):
    """Readers use HTTP/1.0: without chunks, the number of bytes does not depend on how messages arrive."""

    def subscribe(self, line: Line, topics: Sequence[bytes]) -> None:
        """Read the one topic or pattern on a new connection, since a joined one cannot change its dialect."""
        [topic] = topics
        line.redial(self.port)
        line.who = None
        line.send(b"GET /topics/%b HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n" % topic)
        line.readUntil(b"id: live\n\n")

    def barrier(self, line: Line) -> None:
        if line.who is not None:
            super().barrier(line)

    def publication(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        assert isinstance(who, int)
        return self.frame(_PUB, who, {"topic": topic.decode()}, msgpack.packb(payload.decode()))

    def delivery(self, who: Who, topic: bytes, payload: bytes, place: int = 0) -> bytes:
        return b'data: {"topic":"%b","value":"%b"}\n\n' % (topic, payload)
