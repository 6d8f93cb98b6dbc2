"""A BlipMQ or MiniMQ connection on any event loop that reconnects by itself; each dialect adds its messages."""

import logging
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress

from fleximq.client.backoff import Backoff
from fleximq.client.errors import Answered, ClientError, ConnectionLost, JoinRefused
from fleximq.client.loops.connection import Loop
from fleximq.client.loops.link import LoopLink
from fleximq.client.protocol.completion import Pending
from fleximq.client.settings import ClientSettings, State
from fleximq.errors import SettingError
from fleximq.values.urls import Url

#: The delays between polls of an empty queue.
IDLE = Backoff(first=0.005, most=0.5, factor=2.0, jitter=0.25)
_SCHEMES = ("tcp", "tls", "ipc")
_log = logging.getLogger(__name__)
#: The connection is given up after this many unanswered PINGs.
_MAX_UNANSWERED = 3


class ReconnectingLink(LoopLink):
    """A connection to a broker.

    :raises SettingError: the dialect does not support the URL.
    """

    _dialect = "of this dialect"

    def __init__(self, loop: Loop, urls: Sequence[Url], settings: ClientSettings) -> None:
        if urls[0].scheme not in _SCHEMES:
            raise SettingError(f"the URL is {urls[0]}, but this dialect supports only tcp://, tls:// and ipc://")
        super().__init__(loop, urls, settings, _log)
        self._state: State | None = None
        self._why: Exception | None = None
        self._joinWaiters: list[Pending[None]] = []
        self._unanswered = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__.removeprefix('Loop')} at {self.url}, {self.state.value}>"

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._state or State.AWAY

    # -- what a dialect does -----------------------------------------------------------------------

    @abstractmethod
    async def _greet(self) -> None:
        """Send the first messages of a connection, and wait for the answers."""

    @abstractmethod
    def _failPending(self, lost: ConnectionLost) -> None:
        """Fail all calls that wait for an answer on a lost connection."""

    @abstractmethod
    def _sendPing(self) -> None:
        """Send a PING."""

    @abstractmethod
    def _onJoined(self) -> None:
        """Send buffered messages on a new connection."""

    # -- waiting -----------------------------------------------------------------------------------

    async def _waitUntilJoined(self, timeout: float | None) -> None:
        """Wait for a connection.

        :raises ConnectionLost: the client will not reconnect.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        if self._state is State.JOINED:
            return
        self._checkOpen()
        pending: Pending[None] = Pending()
        self._joinWaiters.append(pending)
        try:
            await self._loop.wait(pending, timeout, "a connection")
        finally:
            with suppress(ValueError):
                self._joinWaiters.remove(pending)

    def _checkOpen(self) -> None:
        """Check that the client is not closed.

        :raises ConnectionLost: it is closed.
        """
        if self._state is State.CLOSED:
            raise self._closedError()

    def _closedError(self) -> ConnectionLost:
        if isinstance(self._why, ConnectionLost):
            return type(self._why)(str(self._why))
        return ConnectionLost("the client is closed" + (f": {self._why}" if self._why else ""))

    # -- the connection ----------------------------------------------------------------------------

    async def _handshake(self) -> None:
        if self._connection.transport is not None:
            await self._greet()
        if self._connection.transport is None or self._state is State.CLOSED:
            raise ConnectionLost("the connection ended at once")

    def _joined(self) -> None:
        self._enter(State.JOINED, None)
        self._onJoined()
        self._resolveJoinWaiters(None)

    def _tick(self) -> bool:
        if self._state is State.JOINED:
            if self._unanswered >= _MAX_UNANSWERED:
                return False
            self._unanswered += 1
            self._sendPing()
        return True

    def _connected(self) -> None:
        self._unanswered = 0

    def _received(self, data: bytes) -> None:
        self._unanswered = 0
        super()._received(data)

    def _lost(self, lost: ConnectionLost) -> None:
        if self._state is State.JOINED:
            self._enter(State.AWAY, lost)
        self._failPending(lost)

    def _closed(self, why: Exception | None) -> None:
        self._why = why
        self._enter(State.CLOSED, why)
        self._failPending(self._closedError())
        self._resolveJoinWaiters(self._closedError())

    def _resolveJoinWaiters(self, error: ClientError | None) -> None:
        waiters, self._joinWaiters = self._joinWaiters, []
        for each in waiters:
            if error is None:
                each.succeed(None)
            else:
                each.fail(error)

    def _enter(self, state: State, why: Exception | None) -> None:
        self._state = state
        self._report(state, why)


def refusedJoin(error: Answered) -> JoinRefused:
    """Convert an error of the handshake."""
    return JoinRefused(error.status, error.words)
