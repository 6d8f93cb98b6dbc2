"""Our broker with its journal on the disk."""

from collections.abc import Sequence

import msgpack

from benchmarks.peers.fleximq import FlexiMQ, FlexiMQBroker, frame
from benchmarks.peers.line import Line
from benchmarks.peers.minimq import MiniMQ
from benchmarks.peers.peer import Who

_SUB, _PING, _PONG = 6, 8, 9
_STAMP = 1
#: An offset is written with all of its 64 bits.
_OFFSET_BYTES = 9


class Journaled(FlexiMQBroker):
    """Adds a journal in the folder of the process, and makes the topics of the benchmark durable."""

    #: The pattern of topics that are durable.
    durable = "bench.#"

    def command(self) -> Sequence[str]:
        return [*super().command(), "--journal", str(self.folder / "journal"), "--durable", self.durable]


class Durable(Journaled, FlexiMQ):
    """Its own dialect: a PONG confirms all publications before the PING."""

    def keep(self, line: Line, topic: bytes) -> None:
        """The topic is durable already."""
        self.barrier(line)

    def kept(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        """Return a publication that is to be confirmed."""
        return self.publication(who, topic, payload)

    def closing(self, who: Who) -> bytes:
        """Return what has to be said behind publications so that they are confirmed: one PING."""
        assert isinstance(who, int)
        return frame(_PING, who, {"keepalive": {"timestamp": _STAMP}})

    def confirmations(self, count: int) -> int:
        """Return how many bytes will confirm the next ``count`` publications."""
        return len(frame(_PONG, 1, {"keepalive": {"timestamp": _STAMP}}))

    def replay(self, line: Line, topic: bytes) -> None:
        """Ask for everything from the first message on."""
        assert isinstance(line.who, int)
        line.send(frame(_SUB, line.who, {"topic": topic.decode(), "from": "first"}))

    def replayed(self, who: Who, topic: bytes, payload: bytes) -> int:
        """Return how many bytes a subscriber that replays gets for a message: it carries its offset."""
        return len(self.publication(who, topic, payload)) + len(msgpack.packb("offset")) + _OFFSET_BYTES


class DurableMini(Journaled, MiniMQ):
    """The MiniMQ dialect: the id that answers a PRODUCE confirms it."""


class Unused(Journaled, FlexiMQ):
    """A broker with a journal that makes no topic of the benchmark durable."""

    durable = "kept.#"


class Volatile(FlexiMQ):
    """The same broker without a journal, as a peer of its own."""

    broker = "volatile"
