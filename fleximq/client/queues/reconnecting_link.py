"""A connection on any event loop that reconnects by itself; each dialect adds its messages.

A link is used from the loop's own thread. Bytes sent in one turn of the loop are written together at its end.
"""

import logging
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Self

from fleximq.client.backoff import Backoff
from fleximq.client.errors import Answered, ClientError, ConnectionLost, JoinRefused
from fleximq.client.loops.connection import Callbacks, Connection
from fleximq.client.loops.interfaces import Cancellable, Loop
from fleximq.client.protocol.client_state import isTransient
from fleximq.client.protocol.completion import Pending
from fleximq.client.settings import TIMEOUT, ClientSettings, State
from fleximq.client.sockets import checkTls
from fleximq.errors import BrokerError, SettingError
from fleximq.values.urls import Url

#: The delays between polls of an empty queue.
IDLE = Backoff(first=0.005, most=0.5, factor=2.0, jitter=0.25)
_SCHEMES = ("tcp", "tls", "ipc")


def checkUrl(url: Url, settings: ClientSettings) -> None:
    """Check that these dialects support the URL.

    :raises SettingError: they do not.
    """
    if url.scheme not in _SCHEMES:
        raise SettingError(f"the URL is {url}, but this dialect supports only tcp://, tls:// and ipc://")
    checkTls(url, settings)


_log = logging.getLogger("fleximq.client.queues.link")
#: The connection is given up after this many unanswered PINGs.
_MAX_UNANSWERED = 3


class ReconnectingLink(ABC):
    """A connection to a broker.

    :raises SettingError: the dialect does not support the URL.
    """

    def __init__(self, loop: Loop, url: Url, settings: ClientSettings) -> None:
        checkUrl(url, settings)
        self.loop = loop
        self.settings = settings
        self._url = url
        self._state: State | None = None
        self._why: Exception | None = None
        self.connection = Connection(loop, Callbacks(self._connected, self._received, self._lose))
        self._joinWaiters: list[Pending[None]] = []
        self._keepAliveTimer: Cancellable | None = None
        self._reconnecting: Cancellable | None = None
        self._unanswered = 0

    async def open(self) -> Self:
        """Connect for the first time.

        :raises ConnectionLost: no broker of this dialect answers there.
        :raises Untrusted: one side does not trust the other's certificate.
        :raises JoinRefused: the broker refused to admit the client.
        """
        try:
            await self._join()
        except BaseException as error:
            self._end(error if isinstance(error, Exception) else None)
            raise
        return self

    @property
    def url(self) -> str:
        """The broker's URL."""
        return self._url.withoutQuery

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._state or State.AWAY

    def hang_up(self) -> None:
        """End the connection at once, without a flush."""
        self._end(None)

    # -- what a dialect does -----------------------------------------------------------------------

    @abstractmethod
    async def ping(self, timeout: float | None = TIMEOUT) -> float:
        """Return the round-trip time in seconds, which includes processing everything sent before."""

    @abstractmethod
    async def close(self, timeout: float | None = TIMEOUT) -> None:
        """Flush, and end the connection; iterations end."""

    @abstractmethod
    async def _handshake(self) -> None:
        """Send the first messages of a connection, and wait for the answers."""

    @abstractmethod
    def _parse(self, data: bytes) -> None:
        """Handle received bytes; raise BrokerError if they are invalid."""

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

    async def waitUntilJoined(self, timeout: float | None) -> None:
        """Wait for a connection.

        :raises ConnectionLost: the client will not reconnect.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        if self._state is State.JOINED:
            return
        self.checkOpen()
        pending: Pending[None] = Pending()
        self._joinWaiters.append(pending)
        try:
            await self.loop.wait(pending, timeout, "a connection")
        finally:
            with suppress(ValueError):
                self._joinWaiters.remove(pending)

    def checkOpen(self) -> None:
        """Check that the client is not closed.

        :raises ConnectionLost: it is closed.
        """
        if self._state is State.CLOSED:
            raise self._closedError()

    def _closedError(self) -> ConnectionLost:
        if isinstance(self._why, ConnectionLost):
            return type(self._why)(str(self._why))
        return ConnectionLost("the client is closed" + (f": {self._why}" if self._why else ""))

    # -- the line ----------------------------------------------------------------------------------

    async def _join(self) -> None:
        isJoined = False
        try:
            await self.loop.dial(self._url, self.settings, self.connection.listen())
            if self.connection.transport is None:
                raise ConnectionLost("the connection ended at once")
            await self._handshake()
            isJoined = self.connection.transport is not None and self._state is not State.CLOSED
            if not isJoined:
                raise ConnectionLost("the connection ended at once")
        except TimeoutError:
            raise ConnectionLost(f"the broker did not answer within {self.settings.timeout:g} seconds") from None
        finally:
            if not isJoined:
                self.connection.drop()
        self._enter(State.JOINED, None)
        self._onJoined()
        self._resolveJoinWaiters(None)
        if self._keepAliveTimer is None and self.settings.keep_alive is not None:
            self._keepAliveTimer = self.loop.later(self.settings.keep_alive, self._onKeepAlive)

    def _onKeepAlive(self) -> None:
        assert self.settings.keep_alive is not None
        self._keepAliveTimer = self.loop.later(self.settings.keep_alive, self._onKeepAlive)
        if self._state is not State.JOINED:
            return
        if self._unanswered >= _MAX_UNANSWERED:
            self._lose(ConnectionLost("the broker was silent for too long"))
            return
        self._unanswered += 1
        self._sendPing()

    def _connected(self) -> None:
        """Reset the keep-alive counter."""
        self._unanswered = 0

    def _received(self, data: bytes) -> None:
        """Handle received bytes."""
        self._unanswered = 0
        try:
            self._parse(data)
        except BrokerError as error:
            self._lose(ConnectionLost(f"the received bytes are not of this dialect: {error}"))

    def _lose(self, lost: ConnectionLost) -> None:
        """Drop the connection, and reconnect unless that is disabled."""
        if self._state is State.CLOSED:
            return
        wasJoined = self._state is State.JOINED
        self.connection.drop()
        if wasJoined and self.settings.reconnect is None:
            self._end(lost)
            return
        if wasJoined:
            self._enter(State.AWAY, lost)
        self._failPending(lost)
        if wasJoined and self._state is State.AWAY:
            self._reconnecting = self.loop.start(self._reconnect(lost))

    async def _reconnect(self, why: Exception) -> None:
        assert self.settings.reconnect is not None
        for pause in self.settings.reconnect.pauses():
            await self.loop.sleep(pause)
            if self._state is not State.AWAY:
                return
            try:
                await self._join()
                return
            except (ConnectionLost, JoinRefused) as error:
                why = error
                if not isTransient(error):
                    break
        self._end(why)

    def _end(self, why: Exception | None) -> None:
        """Close for good."""
        if self._state is State.CLOSED:
            return
        for each in (self._keepAliveTimer, self._reconnecting if why is None else None):
            if each is not None:
                with suppress(Exception):
                    each.cancel()
        self._keepAliveTimer = self._reconnecting = None
        self.connection.end()
        self._why = why
        self._enter(State.CLOSED, why)
        self._failPending(self._closedError())
        self._resolveJoinWaiters(self._closedError())

    def _resolveJoinWaiters(self, error: ClientError | None) -> None:
        arrivals, self._joinWaiters = self._joinWaiters, []
        for each in arrivals:
            if error is None:
                each.succeed(None)
            else:
                each.fail(error)

    def _enter(self, state: State, why: Exception | None) -> None:
        self._state = state
        if self.settings.on_state is not None:
            try:
                self.settings.on_state(state, why)
            except Exception:
                _log.exception("The callback on_state failed")


def refusedJoin(error: Answered) -> JoinRefused:
    """Convert an error of the handshake."""
    return JoinRefused(error.status, error.words)
