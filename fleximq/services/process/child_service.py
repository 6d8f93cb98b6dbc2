"""Runs a program as a FlexiMQ client on its standard input and output (``--spawn``; FlexiMQ document 6.4).

The child gets its future client id in ``FLEXIMQ_CLIENT_ID``, joins without credentials as ``spawn:<name>``, and may
write to the broker's standard error. It is restarted whenever it ends; the delay doubles each time until it has run for
:data:`STEADY_SECONDS` seconds.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ProcessDone
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fleximq.config.settings import command
from fleximq.dialects.context import Context
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.session import STOPPED, ConnectionState, Session
from fleximq.errors import NoCapacity
from fleximq.interfaces import IAdmission, IRights
from fleximq.security.principal import SPAWN, Admitted, Principal
from fleximq.services.process.child_process import Child


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
        context: Context,
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
            id = self.context.broker.reserve()
        except NoCapacity as error:
            self._restart(str(error))
            return
        started = self._reactor.seconds()

        def ended(reason: Failure) -> None:
            self._child = None
            self.context.broker.release(id)
            if self._reactor.seconds() - started >= STEADY_SECONDS:
                self._delay = FIRST_DELAY
            self._restart("ended" if reason.check(ProcessDone) else str(reason.value).rstrip("."))

        program = shutil.which(self.words[0], path=self._environment.get("PATH"))
        if program is None:
            self.context.broker.release(id)
            self._restart("there is no such program")
            return
        self._protocol = FlexiFactory(replace(self.context, reserved=id)).buildProtocol(None)
        self._child = child = Child(self._reactor, self.title, self._protocol, ended)
        environment, streams = {**self._environment, CLIENT_ID: str(id)}, {0: "w", 1: "r", 2: 2}
        try:
            process = self._reactor.spawnProcess(child, program, self.words, environment, childFDs=streams)
        except OSError as error:
            ended(Failure(error))
        else:
            _log.info("Started {name} as client {id}, process {pid}", name=self.title, id=id, pid=process.pid)

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
