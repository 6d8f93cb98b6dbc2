"""redis-server as a work queue: streams with a consumer group, and lists with a list of its own for each consumer."""

import re
from collections.abc import Sequence

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Who
from benchmarks.peers.redis import Redis, array
from benchmarks.peers.work_queue import Fetched

_HEAD = re.compile(rb"\r\n\*(\d+)\r\n\*2\r\n\$\d+\r\n\d+-")
_ENTRY = re.compile(rb"\$\d+\r\n(\d+-\d+)\r\n\*2\r\n")


class _RedisQueue(Redis, Fetched):
    """Synced before each answer where it is durable."""

    def command(self) -> Sequence[str]:
        command = list(super().command())
        if self.isSynced:
            command[command.index("--appendonly") + 1] = "yes"
            command += ["--appendfsync", "always"]
        return command

    def open(self, line: Line, queue: bytes) -> None:
        self.barrier(line)

    def _named(self, line: Line) -> bytes:
        """Return a name that no other connection has."""
        line.who = b"w%05d" % line.socket.fileno()
        return line.who


class RedisStreams(_RedisQueue):
    """XADD, XREADGROUP of up to ``prefetch`` entries, XACK of all of them."""

    broker = "redis-streams"

    def open(self, line: Line, queue: bytes) -> None:
        line.send(array(b"XGROUP", b"CREATE", queue, b"workers", b"$", b"MKSTREAM"))
        line.readUntil(b"+OK\r\n")

    def enqueued(self, who: Who, queue: bytes, payload: bytes) -> bytes:
        return array(b"XADD", queue, b"*", b"p", payload)

    def confirmed(self, line: Line, count: int) -> None:
        line.readWords(b"$", count)

    def work(self, line: Line, queue: bytes, prefetch: int) -> None:
        line.send(self._ask(self._named(line), queue, prefetch))

    def jobs(self, size: int) -> re.Pattern[bytes]:
        return _ENTRY

    def whole(self, said: bytes, ending: bytes, prefetch: int) -> int:
        """All entries of an answer: only then is the next one asked for."""
        head = _HEAD.search(said)
        return super().whole(said, ending, prefetch) if head and said.count(ending) >= int(head[1]) else 0

    def settled(self, who: Who, queue: bytes, tags: Sequence[bytes], prefetch: int) -> bytes:
        return array(b"XACK", queue, b"workers", *tags) + self._ask(who, queue, prefetch)

    def acknowledged(self, count: int) -> bytes:
        return b":%d\r\n" % count if count else b""

    def _ask(self, who: Who, queue: bytes, prefetch: int) -> bytes:
        assert isinstance(who, bytes)
        group = (b"GROUP", b"workers", who, b"COUNT", b"%d" % prefetch, b"BLOCK", b"0")
        return array(b"XREADGROUP", *group, b"STREAMS", queue, b">")


class RedisLists(_RedisQueue):
    """LPUSH, then BLMOVE and LMOVE to the consumer's own list, from which LREM takes what is done.

    BLMOVE waits for a job; the LMOVEs after it, sent together with it, take up to ``prefetch`` that wait by then.
    """

    broker = "redis-lists"

    def enqueued(self, who: Who, queue: bytes, payload: bytes) -> bytes:
        return array(b"LPUSH", queue, payload)

    def confirmed(self, line: Line, count: int) -> None:
        line.readWords(b":", count)

    def work(self, line: Line, queue: bytes, prefetch: int) -> None:
        line.send(self.settled(self._named(line), queue, (), prefetch))

    def jobs(self, size: int) -> re.Pattern[bytes]:
        return re.compile(rb"\$%d\r\n(.{%d})" % (size, size), re.DOTALL)

    def whole(self, said: bytes, ending: bytes, prefetch: int) -> int:
        """All answers, those without a job included: only then are the next ones asked for."""
        return len(said) if said.count(ending) + said.count(b"$-1\r\n") == prefetch else 0

    def settled(self, who: Who, queue: bytes, tags: Sequence[bytes], prefetch: int) -> bytes:
        assert isinstance(who, bytes)
        done = b"".join(array(b"LREM", who, b"1", tag) for tag in tags)
        move = (queue, who, b"RIGHT", b"LEFT")
        return done + array(b"BLMOVE", *move, b"0") + array(b"LMOVE", *move) * (prefetch - 1)

    def acknowledged(self, count: int) -> bytes:
        return b":1\r\n" * count
