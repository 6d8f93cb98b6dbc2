"""No broker at all: plain Python sockets that copy bytes, as the limit that nothing in Python can pass."""

import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.bare_server import LISTENS, PUBLISHES
from benchmarks.peers.fleximq import FlexiMQ
from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer, Who

_SERVER = Path(__file__).with_name("bare_server.py")


class Bare(Peer):
    """Copies everything that anybody sends to every subscriber; topics do not count. Frames are FlexiMQ's."""

    broker = "bare"
    _frames = FlexiMQ()

    @classmethod
    def missing(cls) -> str | None:
        return None

    @classmethod
    def version(cls) -> str:
        return f"plain sockets in Python {platform.python_version()}"

    def command(self) -> Sequence[str]:
        return [sys.executable, str(_SERVER), str(self.port)]

    def hello(self) -> bytes:
        return b""

    def welcome(self, said: bytes) -> Who:
        return 1000

    def settle(self, line: Line) -> None:
        """Nobody greets here; as long as it does not subscribe, a connection publishes."""
        line.who = 1000
        line.send(PUBLISHES)
        line.read(1)

    def subscribe(self, line: Line, topics: Sequence[bytes]) -> None:
        line.send(LISTENS)
        line.read(1)

    def barrier(self, line: Line) -> None:
        """Nothing is ever outstanding when the bytes have arrived."""

    def publication(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        return self._frames.publication(who, topic, payload)

    def delivery(self, who: Who, topic: bytes, payload: bytes, place: int = 0) -> bytes:
        return self._frames.delivery(who, topic, payload)
