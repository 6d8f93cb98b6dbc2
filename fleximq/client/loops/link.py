"""A connection on any event loop that reconnects by itself; each dialect adds its messages.

A link is used from the loop's own thread. Bytes sent in one turn of the loop are written together at its end.
"""

from abc import abstractmethod
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from logging import Logger
from typing import ClassVar, Self

from fleximq.client.errors import ConnectionLost, JoinRefused, isTransient
from fleximq.client.loops.connection import Cancel, Connection, Loop
from fleximq.client.reconnecting import Reconnecting
from fleximq.client.settings import ClientSettings, State
from fleximq.errors import BrokerError
from fleximq.values.urls import Url


class LoopLink(Reconnecting):
    """A connection to a broker; ``_dialect`` is named in the error for other bytes."""

    _dialect: ClassVar[str]

    def __init__(self, loop: Loop, urls: Sequence[Url], settings: ClientSettings, log: Logger) -> None:
        super().__init__(urls, settings, log)
        self._loop = loop
        self._connection = Connection(loop, self._connected, self._received, self._lose, self._framed)
        self._cancelKeepAlive: Cancel | None = None
        self._reconnecting: Cancel | None = None
        self._isJoining = False
        #: Cancel further tasks, at the end.
        self._cancels: set[Cancel] = set()

    async def open(self) -> Self:
        """Connect and join for the first time; raises ConnectionLost, Untrusted or JoinRefused."""
        try:
            await self._joinAny()
        except BaseException as error:
            self._end(error if isinstance(error, Exception) else None)
            raise
        return self

    async def _joinOnce(self) -> None:
        """Join on the next connection, for a loop that does not dial; the client ends if it may not try again.

        :raises ConnectionLost: the connection ended, or the client has one already.
        :raises JoinRefused: the broker refused.
        """
        if self._isJoining or self.state is not State.AWAY:
            raise ConnectionLost(f"the client is {self.state.value}, and needs no connection")
        self._isJoining = True
        try:
            await self._join()
        except (ConnectionLost, JoinRefused) as error:
            if not (self._reconnects and isTransient(error)):
                self._end(error)
            raise
        finally:
            self._isJoining = False

    def _begin(self) -> None:
        """Prepare for a new connection."""

    @abstractmethod
    async def _handshake(self) -> None:
        """Send the first messages of a connection, and wait for the answers."""

    def _joined(self) -> None:
        """Handle the end of the handshake."""

    @abstractmethod
    def _connected(self) -> None:
        """Handle a new transport."""

    def _framed(self, data: bytes) -> bytes:
        """Return the bytes to write."""
        return data

    @abstractmethod
    def _parse(self, data: bytes) -> None:
        """Handle received bytes; raise BrokerError if they are invalid."""

    @abstractmethod
    def _tick(self) -> bool:
        """Send a PING after an interval; False if the broker was silent for too long."""

    @abstractmethod
    def _lost(self, lost: ConnectionLost) -> None:
        """Fail all calls that wait for an answer, and enter AWAY if this was joined."""

    @abstractmethod
    def _closed(self, why: Exception | None) -> None:
        """Enter CLOSED."""

    async def _join(self) -> None:
        isJoined = False
        self._begin()
        try:
            await self._loop.dial(self._url, self._attempt, self._connection)
            await self._handshake()
            isJoined = True
        except TimeoutError:
            raise ConnectionLost(f"the broker did not answer within {self._attempt.timeout:g} seconds") from None
        finally:
            if not isJoined:
                self._connection.drop()
        self._joined()
        if self._cancelKeepAlive is None and self._settings.keep_alive is not None:
            self._cancelKeepAlive = self._loop.later(self._settings.keep_alive, self._onKeepAlive)

    def _onKeepAlive(self) -> None:
        assert self._settings.keep_alive is not None
        self._cancelKeepAlive = self._loop.later(self._settings.keep_alive, self._onKeepAlive)
        if not self._tick():
            self._lose(ConnectionLost("the broker was silent for too long"))

    def _received(self, data: bytes) -> None:
        try:
            self._parse(data)
        except BrokerError as error:
            self._lose(ConnectionLost(f"the received bytes are not {self._dialect}: {error}"))

    def _lose(self, lost: ConnectionLost) -> None:
        """Drop the connection, and reconnect unless that is disabled."""
        if self.state is State.CLOSED:
            return
        wasJoined = self.state is State.JOINED
        self._connection.drop()
        if wasJoined and not self._reconnects:
            self._end(lost)
            return
        self._lost(lost)
        if wasJoined and self.state is State.AWAY and self._loop.dials:
            self._reconnecting = self._loop.start(self._reconnect(lost))

    def _sleep(self, seconds: float) -> Awaitable[None]:
        return self._loop.sleep(seconds)

    @property
    def _isEnding(self) -> bool:
        return self._reconnecting is None

    def _end(self, why: Exception | None) -> None:
        if self.state is State.CLOSED:
            return
        returning, self._reconnecting = self._reconnecting, None
        for each in (self._cancelKeepAlive, returning if why is None else None, *self._cancels):
            if each is not None:
                with suppress(Exception):
                    each()
        self._cancelKeepAlive = None
        self._connection.end()
        self._closed(why)
