"""A BlipMQ or MiniMQ connection on any event loop that reconnects by itself; each dialect adds its messages."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from fleximq.client.backoff import Backoff
from fleximq.client.errors import Answered, ClientError, ConnectionLost, JoinRefused
from fleximq.client.loops.connection import Loop
from fleximq.client.loops.link import LoopLink
from fleximq.client.protocol.completion import Pending, resolveAll
from fleximq.client.settings import JOINING_BYTES, TIMEOUT, ClientSettings, State
from fleximq.errors import SettingError, TooLarge
from fleximq.values.urls import Url

#: The delays between polls of an empty queue.
IDLE = Backoff(first=0.005, most=0.5, factor=2.0, jitter=0.25)
_SCHEMES = ("tcp", "tls", "ipc")
_log = logging.getLogger(__name__)
#: The connection is given up after this many unanswered PINGs.
_MAX_UNANSWERED = 3
T = TypeVar("T")


class QueueConversation(ABC):
    """The client's side of one connection, without I/O."""

    @abstractmethod
    def ping(self) -> tuple[bytes, Pending[None]]:
        """Return a PING, and a result that completes when all before it is processed and, where durable, on disk."""

    @abstractmethod
    def received(self, data: bytes) -> None:
        """Resolve the results of received answers.

        :raises BrokerError: the bytes are not of this dialect, or answer no request; the connection is unusable.
        """

    @abstractmethod
    def lost(self, lost: ConnectionLost) -> None:
        """Fail all pending results."""


class ReconnectingLink(LoopLink):
    """A connection to a broker; raises SettingError if the dialect does not support the URL."""

    _dialect = "of this dialect"
    _conversation: QueueConversation

    def __init__(self, loop: Loop, urls: Sequence[Url], settings: ClientSettings) -> None:
        if urls[0].scheme not in _SCHEMES:
            raise SettingError(f"the URL is {urls[0]}, but this dialect supports only tcp://, tls:// and ipc://")
        super().__init__(loop, urls, settings, _log)
        self._state: State | None = None
        self._why: Exception | None = None
        self._joinWaiters: list[Pending[None]] = []
        self._unanswered = self._greetingBytes = 0
        self._isGreeting = False
        #: Whether ACKs were sent that no PONG has confirmed yet.
        self._isUnacknowledged = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__.removeprefix('Loop')} at {self.url}, {self.state.value}>"

    @property
    def state(self) -> State:
        return self._state or State.AWAY

    async def ping(self, timeout: float | None = TIMEOUT) -> float:
        await self._waitUntilJoined(timeout)
        begun = time.perf_counter()
        await self._ask(self._conversation.ping(), timeout, "the answer to a PING")
        return time.perf_counter() - begun

    @abstractmethod
    async def _greet(self) -> None:
        """Send the first messages of a connection, and wait for the answers; raises Answered if one is an error."""

    @abstractmethod
    def _failPending(self, lost: ConnectionLost) -> None:
        """Handle a lost connection, apart from the results of its conversation."""

    @abstractmethod
    def _onJoined(self) -> None:
        """Send buffered messages on a new connection."""

    async def _ask(self, asked: tuple[bytes, Pending[T]], timeout: float | None, what: str) -> T:
        data, pending = asked
        self._connection.send(data)
        return await self._loop.wait(pending, timeout, what)

    async def _waitUntilJoined(self, timeout: float | None) -> None:
        """Wait for a connection; raises ConnectionLost if the client will not reconnect, or TimeoutError."""
        if self._state is not State.JOINED:
            self._checkOpen()
            await self._loop.waitAmong(self._joinWaiters, timeout, "a connection")

    def _checkOpen(self) -> None:
        if self._state is State.CLOSED:
            raise self._closedError()

    def _closedError(self) -> ConnectionLost:
        if isinstance(self._why, ConnectionLost):
            return type(self._why)(str(self._why))
        return ConnectionLost("the client is closed" + (f": {self._why}" if self._why else ""))

    @property
    def _ending(self) -> ClientError | None:
        """The error that ends iterations; None if the program has closed the client."""
        why = self._why
        return why if why is None or isinstance(why, ClientError) else ConnectionLost(str(why))

    async def _handshake(self) -> None:
        if self._connection.transport is not None:
            self._isGreeting, self._greetingBytes = True, 0
            try:
                await self._greet()
            except Answered as error:
                raise JoinRefused(error.status, error.words) from None
            finally:
                self._isGreeting = False
        if self._connection.transport is None or self._state is State.CLOSED:
            raise ConnectionLost("the connection ended at once")

    def _joined(self) -> None:
        self._enter(State.JOINED, None)
        self._onJoined()
        resolveAll(self._joinWaiters)

    def _tick(self) -> bool:
        if self._state is State.JOINED:
            if self._unanswered >= _MAX_UNANSWERED:
                return False
            self._unanswered += 1
            self._connection.send(self._conversation.ping()[0])
        return True

    def _connected(self) -> None:
        self._unanswered = 0

    def _parse(self, data: bytes) -> None:
        self._unanswered = 0
        if self._isGreeting:
            self._greetingBytes += len(data)
            if self._greetingBytes > JOINING_BYTES:
                raise TooLarge(f"more than {JOINING_BYTES} bytes arrived before the connection was accepted")
        self._conversation.received(data)

    def _lost(self, lost: ConnectionLost) -> None:
        if self._state is State.JOINED:
            self._enter(State.AWAY, lost)
        self._failPending(lost)
        self._conversation.lost(lost)

    def _closed(self, why: Exception | None) -> None:
        self._why = why
        self._enter(State.CLOSED, why)
        self._failPending(self._closedError())
        self._conversation.lost(self._closedError())
        resolveAll(self._joinWaiters, self._closedError())

    def _enter(self, state: State, why: Exception | None) -> None:
        self._state = state
        self._report(state, why)
