"""nats-server with JetStream: publishes that are stored in a file and acknowledged one by one."""

from benchmarks.peers.line import Line
from benchmarks.peers.nats import Nats
from benchmarks.peers.peer import Who

#: How JetStream syncs: what it does unless told otherwise, and after each message.
DEFAULT, ALWAYS = "", "sync_interval: always"
_CREATE = b'{"name":"bench","subjects":["bench.>"],"storage":"file","discard":"old"}'


class JetStream(Nats):
    """A stream in a file store, acknowledged as nats-server does by default: before it is synced."""

    broker = "jetstream"
    sync = DEFAULT

    def __init__(self) -> None:
        super().__init__()
        self._stored = 0
        self._inboxes = 0

    def configuration(self) -> str:
        return f'{super().configuration()}jetstream {{ store_dir: "{self.folder / "store"}", {self.sync} }}\n'

    def keep(self, line: Line, topic: bytes) -> None:
        """Make the stream that stores the topic, and an inbox for the acknowledgements to this connection."""
        line.who = inbox = b"_INBOX.kept.%04d" % self._inboxes
        self._inboxes += 1
        line.send(b"SUB %s 0001\r\n" % inbox)
        line.send(b"PUB $JS.API.STREAM.CREATE.bench %s %d\r\n%s\r\n" % (inbox, len(_CREATE), _CREATE))
        line.readUntil(b'"type":"io.nats.jetstream.api.v1.stream_create_response"')
        self.barrier(line)

    def kept(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        """Return a publication whose storing is to be acknowledged."""
        assert isinstance(who, bytes)
        return b"PUB %s %s %d\r\n%s\r\n" % (topic, who, len(payload), payload)

    def closing(self, who: Who) -> bytes:
        """Return what has to be said behind publications so that they are confirmed: nothing, each one is."""
        return b""

    def confirmations(self, count: int) -> int:
        """Return how many bytes will confirm the next ``count`` publications of all connections."""
        first = self._stored + 1
        self._stored += count
        return sum(len(_acknowledgement(number)) for number in range(first, first + count))


class JetStreamAlways(JetStream):
    """The same, synced before each acknowledgement."""

    broker = "jetstream-sync"
    sync = ALWAYS


def _acknowledgement(number: int) -> bytes:
    said = b'{"stream":"bench","seq":%d}' % number
    return b"MSG _INBOX.kept.0000 0001 %d\r\n%s\r\n" % (len(said), said)
