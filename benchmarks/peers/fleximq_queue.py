"""Our broker as a work queue in its own dialect: PUB with ``queue``, SUB with ``prefetch``, ``/queue/settle``."""

import re
import struct
from collections.abc import Sequence
from typing import ClassVar

import msgpack

from benchmarks.peers.fleximq import FlexiMQ, frame
from benchmarks.peers.journal import Journaled
from benchmarks.peers.line import Line
from benchmarks.peers.peer import Who
from benchmarks.peers.work_queue import WorkQueue

#: No limit that could end a scene: it may have 100 million messages, each of which costs 256 bytes beside its own.
_UNBOUNDED = ("--queue-bytes", "64GiB", "--queue-messages", "200000000", "--max-schedules-per-principal", "10000000")
_NOTIF, _PUB, _SUB, _PING, _PONG = 3, 5, 6, 8, 9
_STAMP = 1
_ARRAY = struct.Struct(">BH")
_ROUTING = [{"client_id": 1, "path": "/queue/settle"}]
_TAG = re.compile(rb"\xa3tag([\x00-\x7f]|\xcc.|\xcd..|\xce.{4}|\xcf.{8})\xa7attempt", re.DOTALL)


class FlexiQueue(FlexiMQ, WorkQueue):
    """One queue that its topic fills; a PONG confirms all jobs before the PING, and all that is settled before it."""

    suffix = b""
    options: ClassVar[tuple[str, ...]] = (*FlexiMQ.options, *_UNBOUNDED)

    def open(self, line: Line, queue: bytes) -> None:
        """The first job opens it."""
        self.barrier(line)

    def enqueued(self, who: Who, queue: bytes, payload: bytes) -> bytes:
        assert isinstance(who, int)
        return frame(_PUB, who, {"topic": queue.decode(), "queue": True}, msgpack.packb(payload))

    def closing(self, who: Who) -> bytes:
        assert isinstance(who, int)
        return frame(_PING, who, {"keepalive": {"timestamp": _STAMP}})

    def confirmed(self, line: Line, count: int) -> None:
        line.readUntil(frame(_PONG, 1, {"keepalive": {"timestamp": _STAMP}}))

    def work(self, line: Line, queue: bytes, prefetch: int) -> None:
        assert isinstance(line.who, int)
        line.send(frame(_SUB, line.who, {"topic": queue.decode(), "queue": True, "prefetch": prefetch}))
        self.barrier(line)

    def jobs(self, size: int) -> re.Pattern[bytes]:
        return _TAG

    def settled(self, who: Who, queue: bytes, tags: Sequence[bytes], prefetch: int) -> bytes:
        assert isinstance(who, int)
        words = [msgpack.packb("queue"), msgpack.packb(queue.decode()), msgpack.packb("ack")]
        payload = b"\x82" + b"".join(words) + _ARRAY.pack(0xDC, len(tags)) + b"".join(tags)
        return frame(_NOTIF, who, {"routing": _ROUTING}, payload)


class DurableQueue(Journaled, FlexiQueue):
    """The same with a journal on the disk."""

    def scheduled(self, who: Who, topic: bytes, payload: bytes, due: int) -> bytes:
        """Return a publication at a time, in milliseconds since 1970."""
        assert isinstance(who, int)
        return frame(_PUB, who, {"topic": topic.decode(), "deliver_at": due}, msgpack.packb(payload))
