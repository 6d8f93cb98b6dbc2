"""One run of a spawned program: its standard input and output as the transport of a protocol.

FlexiMQ document 6.4. The run ends with the connection: when the child closes its output, or the protocol closes the
connection, the child has :data:`GRACE` seconds to exit after its input is closed. Then it gets SIGTERM, and SIGKILL
:data:`LAST_GRACE` seconds later.
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
    """The address of a child: its name and process id."""

    name: str
    pid: int | None

    def __str__(self) -> str:
        return f"{self.name}, process {self.pid}"


@implementer(ITransport, IConsumer, IPushProducer)
class Child(ProcessProtocol):
    """Carries bytes between a protocol and its child process; ``ended`` is called when both streams are gone."""

    def __init__(self, clock: IReactorTime, name: str, protocol: Any, ended: Callable[[Failure], None]) -> None:
        self._clock, self._name, self._protocol, self._ended = clock, name, protocol, ended
        self._connected = True
        self._timer: IDelayedCall | None = None
        self.disconnecting = False
        self.transport: Any = None

    # -- called for the process --------------------------------------------------------------------

    def connectionMade(self) -> None:
        self._protocol.makeConnection(self)

    def outReceived(self, data: bytes) -> None:
        if self._connected:
            self._protocol.dataReceived(data)

    def inConnectionLost(self) -> None:
        """The child's input is closed, by the broker or by the child."""
        if self.disconnecting:
            self._lost()
        elif self._connected:
            self._protocol.writeConnectionLost()

    def outConnectionLost(self) -> None:
        """The child has closed its output: send pending answers, then end it."""
        if self._connected:
            self._protocol.readConnectionLost()
        self._countdown()

    def processExited(self, reason: Failure) -> None:
        """The process has exited; do not wait for other processes that hold its streams."""
        self._later(GRACE, self.transport.loseConnection)

    def processEnded(self, reason: Failure) -> None:
        """The process has exited and its streams are closed."""
        self._stopTimer()
        self._lost()
        self._ended(reason)

    # -- called by the protocol (ITransport, IConsumer, IPushProducer) -----------------------------

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def writeSequence(self, data: Any) -> None:
        self.transport.write(b"".join(data))

    def loseConnection(self) -> None:
        """Send pending output, close the child's input, and end the child."""
        if not self.disconnecting:
            self.disconnecting = True
            self.transport.closeStdin()
            self._countdown()

    def abortConnection(self) -> None:
        """Kill the child; pending output is dropped."""
        self.disconnecting = True
        self._signal("KILL")
        self._lost()

    def getPeer(self) -> ChildAddress:
        return ChildAddress(self._name, self.transport.pid)

    getHost = getPeer

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.transport.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self.transport.unregisterProducer()

    def pauseProducing(self) -> None:
        self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        self.transport.resumeProducing()

    stopProducing = loseConnection

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
