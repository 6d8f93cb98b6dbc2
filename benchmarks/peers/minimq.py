"""Our broker in the MiniMQ dialect: lines that produce, consume and acknowledge (MiniMQ document)."""

from collections.abc import Sequence

from benchmarks.peers.fleximq import FlexiMQBroker
from benchmarks.peers.line import Line
from benchmarks.peers.peer import Who


class MiniMQ(FlexiMQBroker):
    """Our broker, spoken to in the MiniMQ dialect. A topic is a queue: nobody subscribes."""

    def hello(self) -> bytes:
        return self.ping()

    def welcome(self, said: bytes) -> Who:
        if said != self.pong():
            raise ValueError("not answered yet")
        return None

    def subscribe(self, line: Line, topics: Sequence[bytes]) -> None:
        """A queue begins with its first CONSUME."""
        for topic in topics:
            line.send(self.consume(topic))
            line.readUntil(b"NO_MSG\n")

    def barrier(self, line: Line) -> None:
        line.send(self.ping())
        line.readUntil(self.pong())

    def ping(self) -> bytes:
        """Return a PING: its answer says that all before it is done."""
        return b"PING:\n"

    def pong(self) -> bytes:
        """Return that answer."""
        return b"PONG:\n"

    def publication(self, who: Who, topic: bytes, payload: bytes, id: bytes = b"id") -> bytes:
        return b"PRODUCE:" + self.delivery(who, topic, payload, id=id)

    def delivery(self, who: Who, topic: bytes, payload: bytes, place: int = 0, id: bytes = b"id") -> bytes:
        return b":::".join([id, topic, payload, b"", b""]) + b"\n"

    def consume(self, topic: bytes) -> bytes:
        """Return a request for one message."""
        return b"CONSUME:%s\n" % topic

    def acknowledgement(self, id: bytes) -> bytes:
        """Return what acknowledges one message; nothing answers it."""
        return b"ACK:%s\n" % id
