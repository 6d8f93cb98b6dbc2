"""One run of a spawned program: its standard input and output as the transport of a protocol.

FlexiMQ document 6.4. The run ends with the connection: a child that closes its output, or with which the protocol is
done, has :data:`GRACE` seconds to go by itself once its input is closed, then gets SIGTERM, and :data:`LAST_GRACE`
seconds later SIGKILL.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from twisted.internet.error import ConnectionDone, ProcessExitedAlready
from twisted.internet.interfaces import IAddress, IConsumer, IDelayedCall, IPushProducer, IReactorTime, ITransport
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

#: Seconds from the end of the conversation to SIGTERM.
GRACE = 1.0
#: Seconds from SIGTERM to SIGKILL.
LAST_GRACE = 4.0


@implementer(IAddress)
@dataclass(frozen=True)
class ChildAddress:
    """Where a child is: its name and process id."""

    name: str
    pid: int | None

    def __str__(self) -> str:
        return f"{self.name}, process {self.pid}"


@implementer(ITransport, IConsumer, IPushProducer)
class Child(ProcessProtocol):
    """Carries bytes between a protocol and the process it is spawned with.

    :param name: what the child is called.
    :param protocol: speaks with it; may know half-closed connections.
    :param ended: called with the reason when nothing is left of the process.
    """

    def __init__(self, clock: IReactorTime, name: str, protocol: Any, ended: Callable[[Failure], None]) -> None:
        self._clock = clock
        self._name = name
        self._protocol = protocol
        self._ended = ended
        self._connected = True
        self._timer: IDelayedCall | None = None
        self.disconnecting = False
        self.transport: Any = None

    # -- what the process does ---------------------------------------------------------------------

    def connectionMade(self) -> None:
        """Begin the conversation."""
        self._protocol.makeConnection(self)

    def outReceived(self, data: bytes) -> None:
        """Hand on what the child wrote."""
        if self._connected:
            self._protocol.dataReceived(data)

    def inConnectionLost(self) -> None:
        """The child's input is closed, by us or by itself."""
        if self.disconnecting:
            self._lost()
        elif self._connected:
            self._protocol.writeConnectionLost()

    def outConnectionLost(self) -> None:
        """The child will say no more: let it have its answers, and end it."""
        if self._connected:
            self._protocol.readConnectionLost()
        self._countdown()

    def processExited(self, reason: Failure) -> None:
        """The process has gone; do not wait for others that hold its streams."""
        self._later(GRACE, self.transport.loseConnection)

    def processEnded(self, reason: Failure) -> None:
        """Nothing is left."""
        self._stopTimer()
        self._lost()
        self._ended(reason)

    # -- what the protocol does (ITransport, IConsumer, IPushProducer) -----------------------------

    def write(self, data: bytes) -> None:
        """Send these bytes to the child."""
        self.transport.write(data)

    def writeSequence(self, data: Any) -> None:
        """Send these bytes to the child."""
        self.transport.write(b"".join(data))

    def loseConnection(self) -> None:
        """Send what waits, close the child's input, and end it."""
        if not self.disconnecting:
            self.disconnecting = True
            self.transport.closeStdin()
            self._countdown()

    def abortConnection(self) -> None:
        """Kill the child; what waits is dropped."""
        self.disconnecting = True
        self._signal("KILL")
        self._lost()

    def getPeer(self) -> ChildAddress:
        """Return who it is."""
        return ChildAddress(self._name, self.transport.pid)

    def getHost(self) -> ChildAddress:
        """Return who it is."""
        return self.getPeer()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Tell a producer when the child does not read."""
        self.transport.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        """Tell the producer nothing more."""
        self.transport.unregisterProducer()

    def pauseProducing(self) -> None:
        """Read no more from the child."""
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        """Read on."""
        self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """End it."""
        self.loseConnection()

    # -- the end -----------------------------------------------------------------------------------

    def _lost(self) -> None:
        if self._connected:
            self._connected = False
            self._protocol.connectionLost(Failure(ConnectionDone()))

    def _countdown(self) -> None:
        if self._timer is None:
            self._later(GRACE, self._terminate)

    def _terminate(self) -> None:
        self._later(LAST_GRACE, lambda: self._signal("KILL"))
        self.loseConnection()
        self._signal("TERM")

    def _signal(self, name: str) -> None:
        with suppress(ProcessExitedAlready):
            self.transport.signalProcess(name)

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        self._stopTimer()
        self._timer = self._clock.callLater(seconds, call)

    def _stopTimer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
