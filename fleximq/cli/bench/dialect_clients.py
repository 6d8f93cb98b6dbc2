"""A client for each dialect that ``bench`` measures.

Publishers of Identity must be subscribed, and read and drop copies of all messages: this is part of the measurement.
"""

import select
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fleximq.cli.client_commands.broker_options import Address
from fleximq.client.blipmq import blocking as blipmq
from fleximq.client.blocking import Subscription
from fleximq.client.errors import ClientError, ConnectionLost
from fleximq.client.events import Delivery
from fleximq.client.minimq import blocking as minimq
from fleximq.client.settings import Tls
from fleximq.client.sockets import PipeSocket, dial
from fleximq.errors import BrokerError, SettingError
from fleximq.limits import MEBIBYTE
from fleximq.values.urls import Url, addressesOf
from fleximq.wire.websocket_client import WebSocketClientStream

_READ = 1 << 18
_BARRIER = "bench-barrier"
_RETRY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  #: The socket is not ready now.


class Plan(NamedTuple):
    """The settings of one measurement."""

    address: Address
    dialect: str
    topic: str
    publishers: int
    subscribers: int
    messages: int  #: The number for each publisher.
    size: int  #: The bytes of a message.
    batch: int  #: The number of messages sent at once.
    rate: float | None  #: The limit of messages per second for each publisher.
    receiveTimeout: float  #: After so many seconds without a message, a subscriber counts missing ones as lost.

    @property
    def expected(self) -> int:
        """The number of messages for each subscriber, or for all together if :attr:`isShared`."""
        return self.publishers * self.messages

    @property
    def isShared(self) -> bool:
        """Whether each message is delivered to one of the subscribers, and not to all."""
        return self.dialect == "minimq"


class BenchClient(ABC):
    """A publisher or subscriber in one dialect, with a client of the library."""

    _topic: str
    _client: Any

    def publish(self, payloads: list[bytes]) -> None:
        """Send these messages."""
        self._client.publish_many(self._topic, payloads)

    def flush(self) -> None:
        """Wait until all sent messages are processed."""
        self._client.flush()

    @abstractmethod
    def receive(self, timeout: float) -> list[bytes]:
        """Return at least one message, and acknowledge the previous ones; none after ``timeout`` seconds."""

    def close(self) -> None:
        """End the connection after all ACKs."""
        self._client.close()


class IdentityBenchClient(BenchClient):
    """The Identity dialect, over a WebSocket of its own; each message is one text."""

    def __init__(self, plan: Plan, subscribes: bool) -> None:
        address = plan.address
        urls = addressesOf(address.url)
        self._timeout = address.timeout
        if urls[0].scheme == "stdio":
            raise SettingError("WebSocket is not supported over stdio://")
        url, found = _dialled(urls, address)
        assert isinstance(found, socket.socket)
        self._socket = found
        self._socket.settimeout(0)
        host, path = f"{url.host or 'localhost'}:{url.port}", _path(url, address.credentials)
        self._stream = WebSocketClientStream(host, path, "identity", 16 * MEBIBYTE, isText=True)
        self._head, self._message = f"PUBLISH:{plan.topic}:".encode(), f"MSG:{plan.topic}:".encode()
        self._subscribes = subscribes
        self._messages: list[bytes] = []
        self._answers: set[bytes] = set()
        self._exchange(b"", lambda: self._stream.isOpen)
        self._ask(f"SUBSCRIBE:{plan.topic}", f"SUB-ACK:{plan.topic}")

    def publish(self, payloads: list[bytes]) -> None:
        self._exchange(b"".join(self._stream.framed(self._head + each) for each in payloads), lambda: True)

    def flush(self) -> None:
        # This request is answered after all messages.
        self._ask(f"UNSUBSCRIBE:{_BARRIER}", f"UNSUB-ACK:{_BARRIER}")

    def receive(self, timeout: float) -> list[bytes]:
        with suppress(TimeoutError):
            self._exchange(b"", lambda: bool(self._messages), timeout)
        came, self._messages = self._messages, []
        return came

    def close(self) -> None:
        self._socket.close()

    def _ask(self, text: str, answer: str) -> None:
        wanted = answer.encode()
        self._answers.discard(wanted)
        self._exchange(self._stream.framed(text.encode()), lambda: wanted in self._answers)

    def _exchange(self, data: bytes, holds: Callable[[], bool], timeout: float | None = None) -> None:
        """Send, and read meanwhile, until all is sent and a condition holds; raises TimeoutError or ClientError."""
        timeout = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        left = memoryview(data)
        while True:
            if self._stream.due:
                left = memoryview(b"".join((*self._stream.due, left)))
                self._stream.due.clear()
            if not left and holds():
                return
            waiting = deadline - time.monotonic()
            if waiting <= 0:
                raise TimeoutError(f"the broker did not respond within {timeout:g} seconds")
            readable, writable, _ = select.select([self._socket], [self._socket] if left else [], [], waiting)
            with suppress(*_RETRY):
                if writable:
                    left = left[self._socket.send(left) :]
                    deadline = time.monotonic() + timeout
            if readable:
                self._read()

    def _read(self) -> None:
        try:
            while True:
                data = self._socket.recv(_READ)
                texts = self._stream.pieces(data)
                if not data or self._stream.isClosed:
                    raise ConnectionLost("the broker closed the connection")
                for text in texts:
                    self._take(text)
        except _RETRY:
            return
        except (OSError, BrokerError) as error:
            raise ConnectionLost(f"the connection ended: {error}") from error

    def _take(self, text: bytes) -> None:
        if text.startswith(self._message):
            if self._subscribes:
                self._messages.append(text.split(b":", 3)[3])
        elif text.startswith(b"ERROR:"):
            raise ClientError(f"the broker refused: {text[6:].decode(errors='replace')}")
        else:
            self._answers.add(text)


def _dialled(urls: Sequence[Url], address: Address) -> tuple[Url, socket.socket | PipeSocket]:
    context = (address.tls or Tls()).context() if urls[0].isSecure else None
    for url in urls[:-1]:
        with suppress(ConnectionLost):
            return url, dial(url, address.timeout, context)
    return urls[-1], dial(urls[-1], address.timeout, context)


def _path(url: Url, credentials: object) -> str:
    shown = dict(credentials) if isinstance(credentials, dict) else {}
    kind = shown.pop("type", None)
    if kind == "basic":
        raise SettingError("--dialect identity needs a token or an API key")
    return (url.path or "/") + (f"?{urlencode(shown)}" if shown else "")


_TOGETHER, _TAKEN = 1000, 100  #: Messages that a BlipMQ client and a MiniMQ consumer fetch at once.


class FlexiBenchClient(BenchClient):
    """The FlexiMQ dialect; messages are MessagePack bin."""

    def __init__(self, plan: Plan, subscribes: bool) -> None:
        self._topic = plan.topic
        self._client = plan.address.connect(reconnect=None)
        self._subscription: Subscription[Delivery] | None = self._client.subscribe(plan.topic) if subscribes else None

    def receive(self, timeout: float) -> list[bytes]:
        assert self._subscription is not None
        found: list[bytes] = []
        delivery = self._subscription.next(timeout)
        while delivery is not None:
            found.append(delivery.value)
            isMore = self._subscription.waiting and len(found) < 1000
            delivery = self._subscription.next(0) if isMore else None
        return found


class BlipBenchClient(BenchClient):
    """The BlipMQ dialect with QoS 1; each subscriber has its own subscription."""

    def __init__(self, plan: Plan, subscribes: bool) -> None:
        address = plan.address
        shown = dict(address.credentials or {"type": "api_key", "api_key": ""})
        if shown["type"] != "api_key":
            raise SettingError("--dialect blipmq needs an API key")
        self._topic = plan.topic
        key, timeout = shown["api_key"], address.timeout
        self._client = blipmq.connect(address.url, key, tls=address.tls, timeout=timeout, reconnect=None)
        self._subscription = self._client.subscribe(plan.topic, prefetch=_TOGETHER) if subscribes else None

    def receive(self, timeout: float) -> list[bytes]:
        assert self._subscription is not None
        return [delivery.payload for delivery in self._subscription.next_many(_TOGETHER, timeout)]

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.next(0)
        super().close()


class MiniBenchClient(BenchClient):
    """The MiniMQ dialect: all subscribers consume one queue."""

    def __init__(self, plan: Plan, subscribes: bool) -> None:
        address = plan.address
        if address.credentials is not None:
            raise SettingError("MiniMQ has no credentials: use a client certificate")
        self._topic = plan.topic
        self._client = minimq.connect(address.url, tls=address.tls, timeout=address.timeout, reconnect=None)
        self._consumer = self._client.consumer(plan.topic, prefetch=_TAKEN) if subscribes else None
        if self._consumer is not None:
            self._consumer.next(0)  # before its first CONSUME, a queue would drop messages over its limit

    def publish(self, payloads: list[bytes]) -> None:
        self._client.produce_many(self._topic, [payload.decode() for payload in payloads])

    def flush(self) -> None:
        """A no-op: :meth:`publish` waits until all messages are in the queue."""

    def receive(self, timeout: float) -> list[bytes]:
        assert self._consumer is not None
        return [message.content.encode() for message in self._consumer.next_many(_TAKEN, timeout)]

    def close(self) -> None:
        if self._consumer is not None:
            for message in self._consumer.next_many(_TAKEN, 0):
                self._consumer.leave(message)
        super().close()


#: Makes the clients by dialect: a subscriber if the flag is set, otherwise a publisher.
BENCH_CLIENTS: dict[str, Callable[[Plan, bool], BenchClient]] = {
    "fleximq": FlexiBenchClient,
    "blipmq": BlipBenchClient,
    "minimq": MiniBenchClient,
    "identity": IdentityBenchClient,
}
