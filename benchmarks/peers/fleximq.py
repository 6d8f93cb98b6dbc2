"""FlexiMQ: our broker as ``twistd`` runs it, in its own dialect (FlexiMQ document)."""

import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgpack

from benchmarks.peers.line import Line
from benchmarks.peers.peer import Exchange, Peer, Who
from benchmarks.peers.program import ask

_JOIN, _REQ, _REP, _PUB, _SUB, _PING, _PONG = 0, 1, 2, 5, 6, 8, 9
_FIXED = struct.Struct(">BBI16xI")
_LENGTH = struct.Struct(">Q")
#: Seconds that a client may be idle before the broker pings it: the longest that a client may suggest.
_IDLE = 300
_ROOT = Path(__file__).parents[2]


def frame(kind: int, client: int, header: dict[str, Any] | None, payload: bytes = b"") -> bytes:
    """Return one message (FlexiMQ document 2.1); ``payload`` is MessagePack already."""
    head = b"" if header is None else msgpack.packb(header)
    return _FIXED.pack(1, kind, client, len(head)) + head + _LENGTH.pack(len(payload)) + payload


class FlexiMQBroker(Peer):
    """Starts ``twistd -n fleximq``, as all dialects of the broker need it."""

    broker = "fleximq"
    #: Options of the broker besides where it listens: no limit that could end a connection of the benchmark.
    options: ClassVar[tuple[str, ...]] = ("--outbox-bytes", "1GiB", "--max-subscriptions", "200000")
    #: Whether it runs without the compiled core.
    pure: ClassVar[bool] = False

    @classmethod
    def missing(cls) -> str | None:
        return None if _twistd().exists() else f"there is no {_twistd()}: install FlexiMQ into this environment"

    @classmethod
    def version(cls) -> str:
        twisted = ask(sys.executable, str(_twistd()), "--version").split()[-1]
        return f"{ask(sys.executable, '-c', _ASK_VERSION.format(int(cls.pure)))} on Twisted {twisted}"

    def command(self) -> Sequence[str]:
        twistd = [sys.executable, str(_twistd()), "-n", "--pidfile=twistd.pid", "--logfile=twistd.log"]
        return [*twistd, "fleximq", "--listen", self.endpoint(), *self.options]

    def endpoint(self) -> str:
        """Return where the broker listens."""
        return f"tcp:{self.port}:interface=127.0.0.1"

    def environment(self) -> dict[str, str]:
        inherited = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([str(_ROOT), inherited] if inherited else [str(_ROOT)])
        return {"PYTHONPATH": path, "FLEXIMQ_PURE": str(int(self.pure))}


def tuned(kind: type[FlexiMQBroker], *options: str) -> type[FlexiMQBroker]:
    """Return the same peer with these options of the broker."""
    return type(f"Tuned{kind.__name__}", (kind,), {"options": options})


def pure(kind: type[FlexiMQBroker]) -> type[FlexiMQBroker]:
    """Return the same peer in pure Python, which has a name of its own."""
    return type(f"Pure{kind.__name__}", (kind,), {"pure": True, "broker": "fleximq-pure"})


class FlexiMQ(FlexiMQBroker):
    """Our broker in its own dialect. A payload is a MessagePack bin, so it carries two to three bytes more."""

    frame = staticmethod(frame)

    def hello(self) -> bytes:
        return self.frame(_JOIN, 0, None)

    def welcome(self, said: bytes) -> Who:
        message = _whole(said)
        if message is None or message != frame(_REP, client := _FIXED.unpack_from(said)[2], {"status": 200}):
            raise ValueError("not joined yet")
        return int(client)

    def subscribe(self, line: Line, topics: Sequence[bytes]) -> None:
        assert isinstance(line.who, int)
        line.send(b"".join(self.frame(_SUB, line.who, {"topic": topic.decode()}) for topic in topics))
        self.barrier(line)

    def barrier(self, line: Line) -> None:
        assert isinstance(line.who, int)
        stamp = id(line) & 0xFFFFFFFF
        line.send(self.frame(_PING, line.who, {"keepalive": {"timestamp": stamp, "interval": _IDLE}}))
        line.readUntil(self.frame(_PONG, 1, {"keepalive": {"timestamp": stamp}}))

    def publication(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        assert isinstance(who, int)
        return self.frame(_PUB, who, {"topic": topic.decode()}, msgpack.packb(payload))

    def delivery(self, who: Who, topic: bytes, payload: bytes, place: int = 0) -> bytes:
        return self.publication(who, topic, payload)

    def exchange(self, requester: Line, responder: Line, payload: bytes, n: int) -> Exchange:
        assert isinstance(requester.who, int) and isinstance(responder.who, int)
        ids = [f"{i:026}" for i in range(n)]
        body = msgpack.packb(payload)

        def message(kind: int, sender: int, target: int, role: str, id: str) -> bytes:
            routing = [{"client_id": target, "path": "/echo"}]
            return self.frame(kind, sender, {"routing": routing, "reqrep": {"type": role, "id": id}}, body)

        requests = [message(_REQ, requester.who, responder.who, "request", each) for each in ids]
        reply = message(_REP, responder.who, requester.who, "correlation", ids[0])
        inRequest, inReply = _place(requests[0], ids[0]), _place(reply, ids[0])
        return Exchange(
            requests, len(requests[0]), inRequest, reply[: inReply.start], reply[inReply.stop :], len(reply), inReply
        )


class LayoutB(FlexiMQ):
    """Our broker, spoken to in layout B, where the payload's length is before the header."""

    @staticmethod
    def frame(kind: int, client: int, header: dict[str, Any] | None, payload: bytes = b"") -> bytes:
        """Return one message."""
        said = frame(kind, client, header, payload)
        end = len(said) - len(payload)
        return said[: _FIXED.size] + said[end - _LENGTH.size : end] + said[_FIXED.size : end - _LENGTH.size] + payload


def _place(message: bytes, id: str) -> slice:
    start = message.index(id.encode())
    return slice(start, start + len(id))


def _whole(said: bytes) -> bytes | None:
    """Return the first message, or None while it is incomplete."""
    if len(said) < _FIXED.size + _LENGTH.size:
        return None
    header = _FIXED.size + _FIXED.unpack_from(said)[3]
    if len(said) < header + _LENGTH.size:
        return None
    end = header + _LENGTH.size + _LENGTH.unpack_from(said, header)[0]
    return said[:end] if len(said) >= end else None


def _twistd() -> Path:
    return Path(sys.executable).parent / "twistd"


_ASK_VERSION = (
    f"import os, sys; sys.path.insert(0, {str(_ROOT)!r}); os.environ['FLEXIMQ_PURE'] = '{{}}'; import fleximq; "
    "from fleximq.compiled.choice import IMPLEMENTATION; print('FlexiMQ', fleximq.__version__, IMPLEMENTATION)"
)
