"""Runs a program as a FlexiMQ client on its standard input and output (``--spawn``; FlexiMQ document 6.4).

The child gets its future client id in ``FLEXIMQ_CLIENT_ID``, joins without credentials as ``spawn:<name>``, and may
write to the broker's standard error. It is restarted whenever it ends; the delay doubles each time until it has run for
:data:`STEADY_SECONDS` seconds. A run ends with the connection: after the child closes its output, or the protocol
closes the connection, the child has :data:`GRACE` seconds to exit; then it gets SIGTERM, and SIGKILL
:data:`LAST_GRACE` seconds later.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone, ProcessDone, ProcessExitedAlready
from twisted.internet.interfaces import IAddress, IConsumer, IDelayedCall, IPushProducer, IReactorTime, ITransport
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.config.settings import command
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.session import STOPPED, Session
from fleximq.errors import NoCapacity
from fleximq.interfaces import IAdmission, IRights
from fleximq.security.principal import SPAWN, Admitted, Principal


@implementer(IAdmission)
class SpawnedAdmission:
    """Admits every connection as the principal ``spawn:<name>`` with its current rights; credentials are ignored."""

    required = False

    def __init__(self, name: str, rightsOf: Callable[[Principal | None], IRights]) -> None:
        self._principal = Principal(SPAWN + name, scheme="spawn")
        self._rightsOf = rightsOf

    def refusal(self, address: Any) -> str | None:
        return None

    def admit(self, credentials: Any, address: Any) -> Deferred[Admitted]:
        return succeed(self.renewed(None))

    def renewed(self, admitted: Admitted | None) -> Admitted:
        return Admitted(self._principal, self._rightsOf(self._principal))


#: Seconds from the end of the conversation to SIGTERM, and from there to SIGKILL.
GRACE, LAST_GRACE = 1.0, 4.0
#: Seconds before a child is restarted: the first delay and the maximum.
FIRST_DELAY, MAX_DELAY = 1.0, 60.0
#: After a run of this many seconds, the first delay applies again.
STEADY_SECONDS = 60.0
#: The environment variable with the client id.
CLIENT_ID = "FLEXIMQ_CLIENT_ID"

#: Variables from systemd for the broker itself.
_NOT_INHERITED = ("NOTIFY_SOCKET", "LISTEN_", "CREDENTIALS_DIRECTORY", "WATCHDOG_")

_log = Logger()


class ChildService(Service):
    """Restarts the program of a command line whenever it ends; it inherits a part of the broker's environment."""

    def __init__(
        self,
        reactor: Any,
        line: str,
        context: ListenerContext,
        environment: Mapping[str, str],
        rightsOf: Callable[[Principal | None], IRights],
    ) -> None:
        self.words = command(line)
        self.title = os.path.basename(self.words[0])
        self._reactor = reactor
        self.context = replace(context, admission=SpawnedAdmission(self.title, rightsOf))
        self._environment = inherited(environment)
        self._delay = FIRST_DELAY
        self._timer: IDelayedCall | None = None
        self._child: Child | None = None
        self._protocol: Any = None  # set together with the child
        self._gone: Deferred[None] | None = None

    def startService(self) -> None:
        """Start the program as soon as the reactor runs."""
        super().startService()
        self._timer = self._reactor.callLater(0, self._start)

    def stopService(self) -> Deferred[None]:
        """Warn the program of the stop and end it; the Deferred fires when it has exited."""
        super().stopService()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._child is None:
            return succeed(None)
        gone = self._gone = Deferred()
        session: Session = self._protocol.session
        if session.state is ConnectionState.CLOSED:
            self._child.loseConnection()
        else:
            session.warn()
            session.end(STOPPED)
        return gone

    def _start(self) -> None:
        try:
            clientId = self.context.broker.reserve()
        except NoCapacity as error:
            self._restart(str(error))
            return
        started = self._reactor.seconds()

        def ended(reason: Failure) -> None:
            self._child = None
            self.context.broker.release(clientId)
            if self._reactor.seconds() - started >= STEADY_SECONDS:
                self._delay = FIRST_DELAY
            self._restart("ended" if reason.check(ProcessDone) else str(reason.value).rstrip("."))

        program = shutil.which(self.words[0], path=self._environment.get("PATH"))
        if program is None:
            self.context.broker.release(clientId)
            self._restart("there is no such program")
            return
        self._protocol = FlexiFactory(replace(self.context, reserved=clientId)).buildProtocol(None)
        self._child = child = Child(self._reactor, self.title, self._protocol, ended)
        environment, streams = {**self._environment, CLIENT_ID: str(clientId)}, {0: "w", 1: "r", 2: 2}
        try:
            process = self._reactor.spawnProcess(child, program, self.words, environment, childFDs=streams)
        except OSError as error:
            ended(Failure(error))
        else:
            _log.info("Started {name} as client {id}, process {pid}", name=self.title, id=clientId, pid=process.pid)

    def _restart(self, reason: str) -> None:
        if self._gone is not None:
            _log.info("{name} has gone: {reason}", name=self.title, reason=reason)
            gone, self._gone = self._gone, None
            gone.callback(None)
        elif self.running:
            words = "{name}: {reason}; starting it again in {delay:g} s"
            _log.warn(words, name=self.title, reason=reason, delay=self._delay)
            self._timer = self._reactor.callLater(self._delay, self._start)
            self._delay = min(self._delay * 2, MAX_DELAY)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a child inherits."""
    return {name: value for name, value in environment.items() if not name.startswith(_NOT_INHERITED)}


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
