"""RabbitMQ in AMQP 0-9-1, with just the frames that a work queue needs (https://www.rabbitmq.com/amqp-0-9-1-reference).

The server runs with everything in the folder of its process, and with a port mapper of Erlang of its own.
"""

import re
import struct
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Who
from benchmarks.peers.program import Program, find, freePort
from benchmarks.peers.work_queue import WorkQueue

_FRAME = struct.Struct(">BHI")
_END = b"\xce"
_METHOD, _HEADER, _BODY = 1, 2, 3
_DELIVER = re.compile(rb"\x00\x3c\x00\x3c\x01w(.{8})[\x00\x01]\x00", re.DOTALL)
_ACK = struct.Struct(">HHQB")
_ACK_FRAME = _FRAME.size + _ACK.size + 1
_FRAME_MAX = 131_072


def _method(channel: int, number: tuple[int, int], arguments: bytes) -> bytes:
    return _framed(_METHOD, channel, struct.pack(">HH", *number) + arguments)


def _framed(kind: int, channel: int, said: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(said)) + said + _END


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


_LOGIN = b"\x00guest\x00guest"
_START_OK = bytes(4) + _short(b"PLAIN") + struct.pack(">I", len(_LOGIN)) + _LOGIN + _short(b"en_US")
_OPENING = b"".join([
    _method(0, (10, 11), _START_OK), _method(0, (10, 31), struct.pack(">HIH", 2047, _FRAME_MAX, 0)),
    _method(0, (10, 40), _short(b"/") + b"\x00\x00"), _method(1, (20, 10), b"\x00"),
])  # fmt: skip
_CHANNEL_OPENED = _method(1, (20, 11), bytes(4))


class RabbitMQ(WorkQueue):
    """A classic queue of the default exchange, with publisher confirms and ``basic.qos``."""

    broker = "rabbitmq"
    suffix = _END

    def __init__(self) -> None:
        super().__init__()
        self._mapper = Program()
        self._ports = [0, 0]
        #: Jobs that were to be confirmed, those that are up to the first that is not, and numbers of later ones.
        self._due = self._confirmed = 0
        self._early: set[int] = set()

    @classmethod
    def missing(cls) -> str | None:
        return None if _home() and find("epmd") else "rabbitmq-server: apt-get install rabbitmq-server"

    @classmethod
    def version(cls) -> str:
        home = _home()
        return home.name.replace("rabbitmq_server-", "rabbitmq-server ") if home else ""

    def command(self) -> Sequence[str]:
        return [str(_home() or "") + "/sbin/rabbitmq-server"]

    def environment(self) -> dict[str, str]:
        here, (mapper, distribution) = str(self.folder), self._ports
        return {
            "HOME": here, "RABBITMQ_CONF_ENV_FILE": "/dev/null", "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port), "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": here, "RABBITMQ_LOG_BASE": here, "RABBITMQ_CONFIG_FILE": f"{here}/rabbitmq",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{here}/plugins", "RABBITMQ_GENERATED_CONFIG_DIR": f"{here}/generated",
            "ERL_EPMD_PORT": str(mapper), "ERL_EPMD_ADDRESS": "127.0.0.1",
        }  # fmt: skip

    def start(self) -> None:
        self._ports = [freePort(), freePort()]
        mapper = str(self._ports[0])
        self._mapper.start([find("epmd") or "epmd", "-port", mapper, "-address", "127.0.0.1"], self._ports[0])
        super().start()

    def stop(self) -> None:
        super().stop()
        self._mapper.stop()

    def hello(self) -> bytes:
        return b"AMQP\x00\x00\x09\x01" + _OPENING

    def welcome(self, said: bytes) -> Who:
        if not said.endswith(_CHANNEL_OPENED):
            raise ValueError("no channel yet")
        return None

    def barrier(self, line: Line) -> None:
        """Ask the queue for its length: it answers when it has done everything before."""
        line.send(self._declare(b"bench.00000", passive=True))
        line.readUntil(_method(1, (50, 11), b"")[7:11])
        line.readUntil(_END)

    def open(self, line: Line, queue: bytes) -> None:
        line.send(self._declare(queue))
        line.readUntil(_method(1, (50, 11), _short(queue) + bytes(8)))

    def producing(self, line: Line) -> None:
        line.send(_method(1, (85, 10), b"\x00"))
        line.readUntil(_method(1, (85, 11), b""))
        self._due = self._confirmed = 0
        self._early.clear()

    def enqueued(self, who: Who, queue: bytes, payload: bytes) -> bytes:
        properties = struct.pack(">HHQHB", 60, 0, len(payload), 0x1000, 2 if self.isSynced else 1)
        publish = _method(1, (60, 40), b"\x00\x00" + _short(b"") + _short(queue) + b"\x00")
        return publish + _framed(_HEADER, 1, properties) + _framed(_BODY, 1, payload)

    def confirmed(self, line: Line, count: int) -> None:
        """Read acknowledgements, each of one job or of all up to it, until so many more are without a gap."""
        self._due += count
        while self._confirmed < self._due:
            _, _, tag, multiple = _ACK.unpack_from(line.read(_ACK_FRAME), _FRAME.size)
            self._early.add(tag)
            self._confirmed = max(self._confirmed, tag) if multiple else self._confirmed
            while self._confirmed + 1 in self._early:
                self._confirmed += 1
                self._early.discard(self._confirmed)

    def work(self, line: Line, queue: bytes, prefetch: int) -> None:
        line.send(_method(1, (60, 10), struct.pack(">IHB", 0, prefetch, 0)))
        line.readUntil(_method(1, (60, 11), b""))
        line.send(_method(1, (60, 20), b"\x00\x00" + _short(queue) + _short(b"w") + b"\x00" + bytes(4)))
        line.readUntil(_method(1, (60, 21), _short(b"w")))

    def jobs(self, size: int) -> re.Pattern[bytes]:
        return _DELIVER

    def settled(self, who: Who, queue: bytes, tags: Sequence[bytes], prefetch: int) -> bytes:
        return _method(1, (60, 80), tags[-1] + b"\x01")

    def _declare(self, queue: bytes, passive: bool = False) -> bytes:
        return _method(1, (50, 10), b"\x00\x00" + _short(queue) + bytes([passive | self.isSynced << 1]) + bytes(4))


def _home() -> Path | None:
    """Return where RabbitMQ is, of several the last."""
    return max(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"), default=None)
