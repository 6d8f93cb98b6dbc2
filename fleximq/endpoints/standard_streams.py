"""The process's own standard input and output as an endpoint that serves one client.

Twisted's has no way to tell that the connection is over, nor to end it while the peer does not read. The descriptors
themselves stay open for as long as the process lives, so that no file opened later is taken for one of them.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import IProtocolFactory, IReactorTime, IStreamServerEndpoint
from twisted.internet.stdio import PipeAddress, StandardIO
from twisted.python.failure import Failure
from zope.interface import implementer

#: Seconds that a closing connection has for sending what waits.
CLOSE_TIMEOUT = 2.0


class StandardAddress(PipeAddress):
    """Where the client is."""

    def __str__(self) -> str:
        return "standard input"


class StandardStreams(StandardIO):
    """The one connection; ``ended`` fires with None when it is lost."""

    _writer: Any

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self.ended: Deferred[None] = Deferred()
        super().__init__(*arguments, **more)

    def getPeer(self) -> StandardAddress:
        """Return where the client is."""
        return StandardAddress()

    def loseConnection(self) -> None:
        """Send what waits, then be done with both streams."""
        super().loseConnection()
        if self._writer is None:
            self.connectionLost(Failure(ConnectionDone()))

    def connectionLost(self, reason: Failure) -> None:
        """Be done with both streams."""
        if not self.disconnected:
            super().connectionLost(reason)  # type: ignore[misc]  # untyped in Twisted
            self.ended.callback(None)

    def abortConnection(self) -> None:
        """Be done with both streams now; what was not sent is dropped."""
        self.connectionLost(Failure(ConnectionAborted()))

    def finish(self, clock: IReactorTime) -> "Deferred[None]":
        """Send what waits, for :data:`CLOSE_TIMEOUT` seconds at most, then close; the result fires when that is
        done."""
        if not self.disconnected:
            self.loseConnection()
            late = clock.callLater(CLOSE_TIMEOUT, self.abortConnection)
            self.ended.addCallback(lambda _: late.cancel() if late.active() else None)
        return self.ended


@implementer(IStreamServerEndpoint)
class StandardStreamsEndpoint:
    """Listens by connecting the one client there is.

    :param descriptors: the file descriptors to read from and write to.
    """

    def __init__(self, reactor: Any, descriptors: tuple[int, int] = (0, 1)) -> None:
        self._reactor = reactor
        self._descriptors = descriptors

    def listen(self, factory: IProtocolFactory) -> "Deferred[Any]":
        """Return the connection, which has begun."""
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
