"""beanstalkd, a broker that has work queues only; its protocol is lines (doc/protocol.txt of its source)."""

import re
from collections.abc import Sequence

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Who
from benchmarks.peers.program import ask, find
from benchmarks.peers.work_queue import Fetched

#: Seconds that a job is its consumer's.
_LEASE = 600
_RESERVED = re.compile(rb"RESERVED (\d+) ")


class Beanstalkd(Fetched):
    """Its default tube; a durable one is synced before each answer.

    A consumer reserves one job at a time: it is slower with others asked for at once by ``reserve-with-timeout 0``.
    """

    broker = "beanstalkd"

    @classmethod
    def missing(cls) -> str | None:
        return None if find("beanstalkd") else "beanstalkd: apt-get install beanstalkd"

    @classmethod
    def version(cls) -> str:
        return ask(find("beanstalkd") or "beanstalkd", "-v")

    def command(self) -> Sequence[str]:
        command = [find("beanstalkd") or "beanstalkd", "-l", "127.0.0.1", "-p", str(self.port)]
        return [*command, "-b", str(self.folder), "-f0"] if self.isSynced else command

    def hello(self) -> bytes:
        return b"list-tube-used\r\n"

    def welcome(self, said: bytes) -> Who:
        if said != b"USING default\r\n":
            raise ValueError("not answered yet")
        return None

    def barrier(self, line: Line) -> None:
        line.send(self.hello())
        line.readUntil(b"USING default\r\n")

    def open(self, line: Line, queue: bytes) -> None:
        """The default tube is there."""
        self.barrier(line)

    def enqueued(self, who: Who, queue: bytes, payload: bytes) -> bytes:
        return b"put 0 0 %d %d\r\n%s\r\n" % (_LEASE, len(payload), payload)

    def confirmed(self, line: Line, count: int) -> None:
        line.readWords(b"INSERTED", count)

    def work(self, line: Line, queue: bytes, prefetch: int) -> None:
        line.send(self.settled(None, queue, (), prefetch))

    def jobs(self, size: int) -> re.Pattern[bytes]:
        return _RESERVED

    def settled(self, who: Who, queue: bytes, tags: Sequence[bytes], prefetch: int) -> bytes:
        return b"".join(b"delete %s\r\n" % tag for tag in tags) + b"reserve\r\n"

    def acknowledged(self, count: int) -> bytes:
        return b"DELETED\r\n" * count
