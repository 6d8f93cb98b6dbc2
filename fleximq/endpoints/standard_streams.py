"""The process's own standard input and output as an endpoint that serves one client.

Twisted's own endpoint neither reports the end of the connection nor can close it while the peer does not read. The
descriptors stay open as long as the process, so that no file opened later reuses their numbers.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import IProtocolFactory, IReactorTime, IStreamServerEndpoint
from twisted.internet.stdio import PipeAddress, StandardIO
from twisted.python.failure import Failure
from zope.interface import implementer

#: Seconds that a closing connection has to send pending output.
CLOSE_TIMEOUT = 2.0


class StandardAddress(PipeAddress):
    """The client's address."""

    def __str__(self) -> str:
        return "standard input"


class StandardStreams(StandardIO):
    """The one connection; ``ended`` fires with None when it is lost."""

    _writer: Any

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self.ended: Deferred[None] = Deferred()
        super().__init__(*arguments, **more)

    def getPeer(self) -> StandardAddress:
        return StandardAddress()

    def loseConnection(self) -> None:
        """Send pending output, then close both streams."""
        super().loseConnection()
        if self._writer is None:
            self.connectionLost(Failure(ConnectionDone()))

    def connectionLost(self, reason: Failure) -> None:
        if not self.disconnected:
            super().connectionLost(reason)  # type: ignore[misc]  # untyped in Twisted
            self.ended.callback(None)

    def abortConnection(self) -> None:
        """Close both streams now; unsent output is dropped."""
        self.connectionLost(Failure(ConnectionAborted()))

    def finish(self, clock: IReactorTime) -> "Deferred[None]":
        """Send pending output, for :data:`CLOSE_TIMEOUT` seconds at most, then close; fires when closed."""
        if not self.disconnected:
            self.loseConnection()
            late = clock.callLater(CLOSE_TIMEOUT, self.abortConnection)
            self.ended.addCallback(lambda _: late.cancel() if late.active() else None)
        return self.ended


@implementer(IStreamServerEndpoint)
class StandardStreamsEndpoint:
    """Listens by connecting the only client. ``descriptors``: the file descriptors to read from and write to."""

    def __init__(self, reactor: Any, descriptors: tuple[int, int] = (0, 1)) -> None:
        self._reactor = reactor
        self._descriptors = descriptors

    def listen(self, factory: IProtocolFactory) -> "Deferred[Any]":
        factory.doStart()
        protocol = factory.buildProtocol(StandardAddress())
        connected: Deferred[StandardStreams] = Deferred()
        try:
            streams = StandardStreams(protocol, *self._descriptors, reactor=self._reactor)
        except Exception:
            connected.errback()
        else:
            streams.ended.addCallback(lambda _: factory.doStop())
            connected.callback(streams)
        return connected
