"""Who is connected, so that everybody is told when the broker stops.

Without this the reactor would cut all connections as it stops: answers that wait would be lost, and a WebSocket would
get no close frame. Connections that have not shown their dialect, and those of dialects whose protocols have no
session, are still left to the reactor. docs/operating.rst, "Stopping".
"""

from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakSet

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IProtocol, IProtocolFactory, IReactorTime
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from fleximq.dialects.session import STOPPED, ConnectionState, Session
from fleximq.services.network.listener_factory import ListenerDialects

#: Who was told that the broker stops may go on until it says nothing for so many seconds, and nobody waits for an
#: answer any more; at most for this part of the time.
QUIET, PART = 0.5, 0.5
#: Who has got everything has so many seconds for its own end, and as many again until it is cut off.
LAST = 1.0
#: Seconds between two looks at who is still there, and at least so many times what a look takes.
_LOOK, _REST = 0.01, 4

_log = Logger("fleximq.services.guests")


class OpenConnections:
    """Notes the protocols that factories build, and ends their sessions. ``leaving`` says that it does.

    :param clock: measures how long they are waited for.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._protocols: WeakSet[Any] = WeakSet()
        self._notified: dict[Session, float] = {}
        self._done: dict[Session, float] = {}
        self.stopping = False

    def of(self, dialects: ListenerDialects) -> ListenerDialects:
        """Return the same dialects with factories that note each protocol they build."""
        return dialects._replace(
            streams=self._recording(dialects.streams), webSockets=self._recording(dialects.webSockets)
        )

    def add(self, protocol: Any) -> None:
        """Note a protocol that no factory of a listener has built."""
        self._protocols.add(protocol)

    def _recording(self, factories: Mapping[str, IProtocolFactory]) -> dict[str, IProtocolFactory]:
        return {name: _RecordingFactory(each, self) for name, each in factories.items()}

    def dismiss(self, timeout: float) -> "Deferred[None]":
        """Tell everybody that the broker stops, and end all sessions.

        What is returned fires when their connections are closed, which they are after ``timeout`` seconds in any case.
        """
        self.stopping = True
        now = self._clock.seconds()
        return self._look(now + PART * timeout, now + timeout)

    def _look(self, finish: float, deadline: float) -> "Deferred[None]":
        now = self._clock.seconds()
        present = list(self._present())
        if present and now >= deadline:
            _log.warn("{number} connections did not end in time and are cut off", number=len(present))
            for session in present:
                session.outbox.abort()
            present = []
        if not present:
            self._notified.clear()
            self._done.clear()
            return succeed(None)
        self._urge(present, now, finish)
        later: Deferred[None] = Deferred()
        self._clock.callLater(max(_LOOK, _REST * (self._clock.seconds() - now)), later.callback, None)
        return later.addCallback(lambda ignored: self._look(finish, deadline))

    def _urge(self, present: list[Session], now: float, finish: float) -> None:
        """Tell those who do not know it yet, and end the sessions whose time has come."""
        busy = any(session.client is not None and session.broker.waiting(session.client) for session in present)
        for session in present:
            if session not in self._notified:
                self._notified[session] = now
                session.warn()
            if now >= finish:
                session.dismiss()
                session.end(STOPPED)
            elif not session.mayFinish or session.state is not ConnectionState.OPEN:
                session.dismiss()
            elif not busy and now - max(session.lastReceived(), self._notified[session]) >= QUIET:
                session.dismiss()
            if session.outbox.empty:
                self._part(session, now - self._done.setdefault(session, now))

    def _part(self, session: Session, waited: float) -> None:
        """Wait no longer for somebody who has got everything."""
        if waited >= 2 * LAST:
            session.outbox.abort()
        elif waited >= LAST:
            session.outbox.finish()

    def _present(self) -> Iterator[Session]:
        for protocol in list(self._protocols):
            session = getattr(protocol, "session", None)
            if isinstance(session, Session) and session.state is not ConnectionState.CLOSED:
                yield session


class _RecordingFactory(Factory[Any]):
    """Builds what another factory builds."""

    noisy = False

    def __init__(self, inner: IProtocolFactory, connections: OpenConnections) -> None:
        self._inner = inner
        self._connections = connections

    def buildProtocol(self, addr: IAddress | None) -> IProtocol | None:
        """Build a protocol and note it."""
        protocol = self._inner.buildProtocol(addr)  # type: ignore[arg-type]  # a pipe has no address
        if protocol is not None:
            self._connections.add(protocol)
        return protocol

    def startFactory(self) -> None:
        """Start with the first port."""
        self._inner.doStart()

    def stopFactory(self) -> None:
        """Stop with the last port."""
        self._inner.doStop()
