"""Runs a program as a FlexiMQ client on its standard input and output (``--spawn``; FlexiMQ document 6.4).

The child finds the client id that it will get in ``FLEXIMQ_CLIENT_ID``, is let in without credentials as
``spawn:<name>``, and writes to the broker's standard error as it likes. It is started again whenever it ends, each
time after twice the time, until it has run for a while.

The rule for a program that the broker has started itself: it comes in without credentials, under its own name.
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
from fleximq.interfaces import IAdmission, IRights
from fleximq.security.principal import SPAWN, Admitted, Principal
from fleximq.services.process.child_process import Child


@implementer(IAdmission)
class SpawnedAdmission:
    """Lets in whoever comes, as one principal. What it shows is not looked at.

    :param name: the program's; as a principal it is ``spawn:<name>``.
    :param rightsOf: returns what a principal may do at the time.
    """

    required = False

    def __init__(self, name: str, rightsOf: Callable[[Principal | None], IRights]) -> None:
        self._principal = Principal(SPAWN + name, scheme="spawn")
        self._rightsOf = rightsOf

    def refusal(self, address: Any) -> str | None:
        """Turn nobody away."""
        return None

    def admit(self, credentials: Any, address: Any) -> Deferred[Admitted]:
        """Return the one who was invited."""
        return succeed(Admitted(self._principal, self._rightsOf(self._principal)))

    def renewed(self, admitted: Admitted) -> Admitted:
        """Return the one who was invited, with the rights of today."""
        return Admitted(self._principal, self._rightsOf(self._principal))


#: Seconds until a child is started again, the first time and at most.
SOON, LATEST = 1.0, 60.0
#: A child that ran for so many seconds is started again as soon as the first time.
STEADY = 60.0
#: Where a child finds its client id.
CLIENT_ID = "FLEXIMQ_CLIENT_ID"

#: What systemd tells the broker is not meant for its children.
_NOT_INHERITED = ("NOTIFY_SOCKET", "LISTEN_", "CREDENTIALS_DIRECTORY", "WATCHDOG_")

_log = Logger("fleximq.services.children")


class ChildService(Service):
    """Keeps one program running.

    :param reactor: spawns the process.
    :param line: the program and its arguments, as a shell would read them.
    :param context: what the connections of the broker have at hand.
    :param environment: the variables that the child inherits, as far as they are meant for it.
    :param rightsOf: returns what a principal may do.
    """

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
        self._delay = SOON
        self._timer: IDelayedCall | None = None
        self._child: Child | None = None
        self._protocol: Any = None  # there with the child
        self._gone: Deferred[None] | None = None

    def startService(self) -> None:
        """Start it as soon as the reactor runs."""
        super().startService()
        self._timer = self._reactor.callLater(0, self._start)

    def stopService(self) -> Deferred[None]:
        """Tell it that the broker stops, and end it; what is returned fires when it has gone."""
        super().stopService()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._child is None:
            return succeed(None)
        gone = self._gone = Deferred()
        self._dismiss(self._child)
        return gone

    def _dismiss(self, child: Child) -> None:
        session: Session = self._protocol.session
        if session.state is ConnectionState.CLOSED:
            child.loseConnection()
        else:
            session.warn()
            session.end(STOPPED)

    def _start(self) -> None:
        id = self.context.broker.reserve()
        started = self._reactor.seconds()

        def ended(reason: Failure) -> None:
            self._child = None
            self.context.broker.release(id)
            if self._reactor.seconds() - started >= STEADY:
                self._delay = SOON
            self._again("ended" if reason.check(ProcessDone) else str(reason.value).rstrip("."))

        program = shutil.which(self.words[0], path=self._environment.get("PATH"))
        if program is None:
            self.context.broker.release(id)
            self._again("there is no such program")
            return
        context = replace(self.context, reserved=id)
        self._protocol = FlexiFactory(context).buildProtocol(None)
        self._child = Child(self._reactor, self.title, self._protocol, ended)
        try:
            self._spawn(self._child, program, id)
        except OSError as error:
            ended(Failure(error))

    def _spawn(self, child: Child, program: str, id: int) -> None:
        environment = {**self._environment, CLIENT_ID: str(id)}
        process = self._reactor.spawnProcess(child, program, self.words, environment, childFDs={0: "w", 1: "r", 2: 2})
        _log.info("Started {name} as client {id}, process {pid}", name=self.title, id=id, pid=process.pid)

    def _again(self, reason: str) -> None:
        """Start it again after a while, or be done."""
        if self._gone is not None:
            _log.info("{name} has gone: {reason}", name=self.title, reason=reason)
            gone, self._gone = self._gone, None
            gone.callback(None)
        elif self.running:
            _log.warn(
                "{name}: {reason}; starting it again in {delay:g} s", name=self.title, reason=reason, delay=self._delay
            )
            self._timer = self._reactor.callLater(self._delay, self._start)
            self._delay = min(self._delay * 2, LATEST)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a child gets from the broker's own."""
    return {name: value for name, value in environment.items() if not name.startswith(_NOT_INHERITED)}
