"""Clients of the four dialects on blocking sockets: small, literal, and none of the broker's own code.

::

    with MiniClient(address) as mini:
        mini.ask("PING:")                         # "PONG:"

What is said goes out at once; ``hear`` returns the next thing that comes, and ``barrier`` all that comes before the
answer to a question asked now, which tells of silence without waiting for it. An address is a host and a port, the
path of a UNIX socket, or a socket that is connected already.
"""

import socket
import struct
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from tests.flexi_voice import FlexiVoice
from tests.web_socket_client import BINARY, CLOSE, PING, PONG, TEXT, WebSocketClient
from tests.wire.flexi_frames import Heard
from tests.wire.flexi_variants import MAPS, Variant

Address = tuple[str, int] | str | socket.socket

#: Seconds that anything may take; they cost nothing while the broker answers.
PATIENCE = 300.0
READ = 1 << 18


class Ended(Exception):
    """The broker ended the connection where something was still expected."""


class Closing:
    """A context manager that closes itself."""

    def close(self) -> None:
        """Let go of the connection."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Carrier(Protocol):
    """What carries bytes to the broker and back; ``code`` is that of the broker's close frame, where there is one."""

    code: int | None

    def say(self, data: bytes) -> None:
        """Send these bytes."""

    def read(self) -> bytes:
        """Return some bytes, none at the end of the connection."""

    def close(self) -> None:
        """Let go of the connection."""


class Stream(Closing):
    """A connected socket."""

    code: int | None = None

    def __init__(self, address: Address) -> None:
        if isinstance(address, socket.socket):
            self.socket = address
        elif isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(PATIENCE)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, timeout=PATIENCE)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def say(self, data: bytes) -> None:
        """Send these bytes; an end that the broker has come to first is seen when reading."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def endInput(self) -> None:
        """Say nothing more, and still listen."""
        self.socket.shutdown(socket.SHUT_WR)

    def read(self) -> bytes:
        """Return what has come, at least a byte; none at the end of the connection."""
        try:
            return self.socket.recv(READ)
        except ConnectionResetError:
            return b""

    def readAll(self) -> bytes:
        """Return what comes until the broker closes the connection."""
        return b"".join(iter(self.read, b""))

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class WebSocketStream(Closing):
    """A WebSocket that carries a stream in binary messages."""

    def __init__(
        self, address: tuple[str, int] | socket.socket, path: str = "/ws", headers: tuple[str, ...] = ()
    ) -> None:
        self.webSocket = WebSocketClient(address, path, PATIENCE, headers)
        self.code: int | None = None

    def say(self, data: bytes) -> None:
        """Send these bytes as one message."""
        self.webSocket.sendFrame(BINARY, data)

    def read(self) -> bytes:
        """Return the next message; none at the end of the connection. PINGs and a close frame are answered."""
        while self.code is None:
            try:
                kind, payload = self.webSocket.receiveFrame()
            except ConnectionError:
                return b""
            if kind == BINARY and payload:
                return payload
            if kind == PING:
                self.webSocket.sendFrame(PONG, payload)
            if kind == CLOSE:
                self.code = int.from_bytes(payload[:2], "big")
                self.webSocket.sendFrame(CLOSE, payload)
        return b""

    def close(self) -> None:
        """Close the socket."""
        self.webSocket.close()


class FlexiClient(FlexiVoice, Closing):
    """FlexiMQ, over whatever carries it.

    :param answersPings: answer the broker's PINGs, and don't mention them.
    """

    def __init__(self, carrier: Carrier, variant: Variant = MAPS, answersPings: bool = True) -> None:
        self.carrier = carrier
        self.variant = variant
        self.answersPings = answersPings
        self._received = b""

    def say(self, data: bytes) -> None:
        """Send these bytes."""
        self.carrier.say(data)

    def hear(self) -> Heard:
        """Return the next message.

        :raises Ended: the connection is at its end.
        """
        while True:
            taken = self.variant.take(self._received)
            if taken is None:
                self._received += self._more()
                continue
            heard, self._received = taken
            if not (self.answersPings and heard.kind == "PING" and heard.sender == 1):
                return heard
            self.tell("PONG", {"keepalive": {"timestamp": heard.header["keepalive"]["timestamp"]}})

    def _more(self) -> bytes:
        data = self.carrier.read()
        if not data:
            raise Ended(f"the broker closed the connection, {len(self._received)} bytes were left")
        return data

    def join(self, header: Any = None) -> "FlexiClient":
        """JOIN, and take the id from the answer."""
        welcome = self.joinWith(header)
        heard = self.hear()
        if (heard.kind, heard.header) != ("REP", welcome):
            raise AssertionError(f"not let in: {heard}")
        self.id = heard.sender
        return self

    def barrier(self) -> list[Heard]:
        """PING, and return what came before its PONG."""
        header = self.ping()
        before = []
        while (heard := self.hear()).kind != "PONG":
            before.append(heard)
        if (heard.sender, heard.header) != (1, header):
            raise AssertionError(f"no PONG: {heard}")
        return before

    def ask(self, path: str, *arguments: Any) -> Any:
        """Return the value with which the broker answers on one of its own paths."""
        self._stamp += 1
        self.request(1, path, f"ask-{self._stamp}", *arguments)
        heard = self.hear()
        if heard.status != self.variant.status(200):
            raise AssertionError(f"no answer to {path}: {heard}")
        return heard.value

    def untilEnd(self) -> list[Heard]:
        """Return all that comes until the broker closes the connection."""
        heard = []
        try:
            while True:
                heard.append(self.hear())
        except Ended:
            return heard

    def close(self) -> None:
        """Let go of the connection."""
        self.carrier.close()


class Ack(NamedTuple):
    """BlipMQ's ACK."""

    correlation: int
    subscription: int


class Nack(NamedTuple):
    """BlipMQ's NACK."""

    correlation: int
    code: int
    words: str


class Delivery(NamedTuple):
    """BlipMQ's PUBLISH; ``tag`` is its correlation id."""

    tag: int
    qos: int
    topic: str
    message: bytes


class Pong(NamedTuple):
    """BlipMQ's PONG."""

    correlation: int
    payload: bytes


class BlipClient(Stream):
    """BlipMQ: frames of length, type, correlation id and payload (BlipMQ document, "Frame Layout")."""

    HELLO, AUTH, PUBLISH, SUBSCRIBE, ACK, NACK, PING, PONG, POLL = range(1, 10)
    _received = b""

    def frame(self, kind: int, correlation: int, payload: bytes = b"") -> "BlipClient":
        """Send a frame."""
        self.say(struct.pack(">IBQ", 9 + len(payload), kind, correlation) + payload)
        return self

    def hear(self) -> Any:
        """Return the next frame.

        :raises Ended: the connection is at its end.
        """
        while len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            data = self.read()
            if not data:
                raise Ended("the broker closed the connection")
            self._received += data
        length, kind, correlation = struct.unpack_from(">IBQ", self._received)
        payload, self._received = self._received[13 : 4 + length], self._received[4 + length :]
        return self._READERS[kind](correlation, payload)

    @staticmethod
    def _readNack(correlation: int, payload: bytes) -> Nack:
        code, size = struct.unpack_from(">HH", payload)
        return Nack(correlation, code, payload[4 : 4 + size].decode())

    @staticmethod
    def _readDelivery(correlation: int, payload: bytes) -> Delivery:
        qos, size = struct.unpack_from(">BH", payload)
        return Delivery(correlation, qos, payload[3 : 3 + size].decode(), payload[3 + size :])

    _READERS = {
        ACK: lambda correlation, payload: Ack(correlation, *struct.unpack(">Q", payload)),
        NACK: _readNack,
        PUBLISH: _readDelivery,
        PONG: Pong,
    }

    def ask(self, kind: int, correlation: int, payload: bytes = b"") -> Any:
        """Send a frame and return the next one that comes."""
        return self.frame(kind, correlation, payload).hear()

    def hello(self, correlation: int = 1) -> Any:
        """Say HELLO and return the answer."""
        return self.ask(self.HELLO, correlation, b"\0\1")

    def auth(self, key: str = "dev-key", correlation: int = 2) -> Any:
        """Say AUTH and return the answer."""
        return self.ask(self.AUTH, correlation, counted(key))

    def login(self, key: str = "dev-key") -> "BlipClient":
        """Say HELLO and AUTH."""
        answers = self.hello(), self.auth(key)
        if answers != (Ack(1, 0), Ack(2, 0)):
            raise AssertionError(f"not let in: {answers}")
        return self

    def subscribe(self, topic: str, qos: int = 1) -> int:
        """Subscribe, and return the subscription's id."""
        answer = self.ask(self.SUBSCRIBE, 3, counted(topic) + bytes([qos]))
        if not isinstance(answer, Ack):
            raise AssertionError(f"not subscribed: {answer}")
        return answer.subscription

    def publish(self, topic: str, message: bytes, qos: int = 1) -> "BlipClient":
        """Publish; nothing answers."""
        return self.frame(self.PUBLISH, 4, bytes([qos]) + counted(topic) + message)

    def poll(self, subscription: int, correlation: int = 50) -> Any:
        """Ask for a message, and return what came for it: None if nothing."""
        self.frame(self.POLL, correlation, struct.pack(">Q", subscription))
        heard = self.barrier()
        if len(heard) > 1:
            raise AssertionError(f"more than one answer to a POLL: {heard}")
        return heard[0] if heard else None

    def ack(self, tag: int, subscription: int) -> "BlipClient":
        """Acknowledge a delivery; nothing answers."""
        return self.frame(self.ACK, tag, struct.pack(">Q", subscription))

    def barrier(self) -> list[Any]:
        """PING, and return what came before its PONG."""
        self.frame(self.PING, 99)
        before = []
        while (heard := self.hear()) != Pong(99, b""):
            before.append(heard)
        return before


def counted(text: str) -> bytes:
    """Return a text behind its length in two bytes, as BlipMQ writes keys and topics."""
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded


class MiniClient(Stream):
    """MiniMQ: lines."""

    _received = b""

    def line(self, *lines: str) -> "MiniClient":
        """Send lines."""
        self.say("".join(f"{each}\n" for each in lines).encode())
        return self

    def hear(self) -> str:
        """Return the next line.

        :raises Ended: the connection is at its end.
        """
        while b"\n" not in self._received:
            data = self.read()
            if not data:
                raise Ended("the broker closed the connection")
            self._received += data
        line, self._received = self._received.split(b"\n", 1)
        return line.decode()

    def ask(self, line: str) -> str:
        """Send a line and return the next one that comes."""
        return self.line(line).hear()

    def produce(self, topic: str, id: str, content: str, correlation: str = "", replyTo: str = "") -> str:
        """Put a message into a queue and return the answer."""
        return self.ask(f"PRODUCE:{id}:::{topic}:::{content}:::{correlation}:::{replyTo}")

    def consume(self, topic: str) -> str:
        """Return the answer to a CONSUME."""
        return self.ask(f"CONSUME:{topic}")

    def ack(self, id: str) -> "MiniClient":
        """Acknowledge a message; nothing answers."""
        return self.line(f"ACK:{id}")

    def barrier(self) -> list[str]:
        """PING, and return what came before its PONG."""
        self.line("PING:")
        before = []
        while (heard := self.hear()) != "PONG:":
            before.append(heard)
        return before


class IdentityClient(Closing):
    """Identity: texts over WebSocket. ``name`` and ``channels`` are what it is greeted with."""

    def __init__(
        self, address: tuple[str, int] | socket.socket, path: str = "/", headers: tuple[str, ...] = ()
    ) -> None:
        self.webSocket = WebSocketClient(address, path, PATIENCE, headers)
        self.greeting = self.hear(), self.hear()
        self.name = self.greeting[0].partition(":")[2]
        self.channels = self.greeting[1].partition(":")[2].split(",")

    def say(self, text: str) -> "IdentityClient":
        """Send a text."""
        self.webSocket.sendText(text)
        return self

    def hear(self) -> str:
        """Return the next text.

        :raises Ended: the broker closes; the close frame's code is the exception's argument.
        """
        while True:
            try:
                kind, payload = self.webSocket.receiveFrame()
            except ConnectionError:
                raise Ended(None) from None
            if kind == TEXT:
                return payload.decode()
            if kind == PING:
                self.webSocket.sendFrame(PONG, payload)
            if kind == CLOSE:
                self.webSocket.sendFrame(CLOSE, payload)
                raise Ended(int.from_bytes(payload[:2], "big"))

    def ask(self, text: str) -> str:
        """Send a text and return the next one that comes."""
        return self.say(text).hear()

    def subscribe(self, channel: str) -> "IdentityClient":
        """Subscribe to a channel."""
        answer = self.ask(f"SUBSCRIBE:{channel}")
        if answer != f"SUB-ACK:{channel}":
            raise AssertionError(f"not subscribed: {answer}")
        return self

    def barrier(self) -> list[str]:
        """Leave a channel of no one's, and return what came before the answer."""
        self.say("UNSUBSCRIBE:barrier")
        before = []
        while (heard := self.hear()) != "UNSUB-ACK:barrier":
            before.append(heard)
        return before

    def close(self) -> None:
        """Close the socket."""
        self.webSocket.close()
