"""nats-server with JetStream as a work queue: a stream that drops what is acknowledged, and a pull consumer."""

import re
from collections.abc import Sequence

from benchmarks.peers.jetstream import ALWAYS, JetStream
from benchmarks.peers.line import Line
from benchmarks.peers.peer import Who
from benchmarks.peers.work_queue import WorkQueue

_STREAM = b'{"name":"bench","subjects":["bench.>"],"retention":"workqueue","storage":"%s"}'
_CONSUMER = b'{"stream_name":"bench","config":{"durable_name":"workers","ack_policy":"explicit","max_waiting":8192}}'
_ACK = re.compile(rb"MSG \S+ \S+ (\$JS\.ACK\.\S+) ")


class JetStreamQueue(JetStream, WorkQueue):
    """In memory, or in a file that is synced before each acknowledgement."""

    broker = "nats-queue"
    sync = ALWAYS

    def open(self, line: Line, queue: bytes) -> None:
        self._inbox(line)
        self._request(line, b"STREAM.CREATE.bench", _STREAM % (b"file" if self.isSynced else b"memory"))
        self._request(line, b"CONSUMER.DURABLE.CREATE.bench.workers", _CONSUMER)

    def producing(self, line: Line) -> None:
        self._inbox(line)

    def enqueued(self, who: Who, queue: bytes, payload: bytes) -> bytes:
        return self.kept(who, queue, payload)

    def confirmed(self, line: Line, count: int) -> None:
        line.readWords(b'"seq":', count)

    def work(self, line: Line, queue: bytes, prefetch: int) -> None:
        self._inbox(line)
        line.send(self._more(line.who, prefetch))

    def jobs(self, size: int) -> re.Pattern[bytes]:
        return _ACK

    def settled(self, who: Who, queue: bytes, tags: Sequence[bytes], prefetch: int) -> bytes:
        return b"".join(b"PUB %s 4\r\n+ACK\r\n" % tag for tag in tags) + self._more(who, len(tags))

    def _inbox(self, line: Line) -> None:
        """Subscribe to an inbox, the name of the connection from then on."""
        line.who = b"_INBOX.w%05d" % line.socket.fileno()
        line.send(b"SUB %s 0001\r\n" % line.who)
        self.barrier(line)

    def _request(self, line: Line, path: bytes, body: bytes) -> None:
        line.send(b"PUB $JS.API.%s %s %d\r\n%s\r\n" % (path, line.who, len(body), body))
        line.readUntil(b'"created":')
        self.barrier(line)

    def _more(self, who: Who, count: int) -> bytes:
        body = b'{"batch":%d}' % count
        return b"PUB $JS.API.CONSUMER.MSG.NEXT.bench.workers %s %d\r\n%s\r\n" % (who, len(body), body)
