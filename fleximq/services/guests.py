"""Who is connected, so that everybody is told when the broker stops.

Without this the reactor would cut all connections as it stops: answers that wait would be lost, and a WebSocket would
get no close frame. Connections that have not shown their dialect, and those of dialects whose protocols have no
session, are still left to the reactor.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakSet

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IProtocol, IProtocolFactory, IReactorTime
from twisted.internet.protocol import Factory

from fleximq.dialects.session import Session, State
from fleximq.services.spoken import Spoken

#: Seconds that all connections together have for their last answers and close frames.
PATIENCE = 1.0
#: Seconds between two looks at who is still there.
_LOOK = 0.01


class Guests:
    """Notes the protocols that factories build, and ends their sessions.

    :param clock: measures how long they are waited for.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._protocols: WeakSet[Any] = WeakSet()

    def of(self, spoken: Spoken) -> Spoken:
        """Return the same dialects with factories that note each protocol they build."""
        return spoken._replace(streams=self._noting(spoken.streams), webSockets=self._noting(spoken.webSockets))

    def _noting(self, factories: Mapping[str, IProtocolFactory]) -> dict[str, IProtocolFactory]:
        return {name: _NotingFactory(each, self._protocols) for name, each in factories.items()}

    def dismiss(self) -> "Deferred[None]":
        """End all sessions; what is returned fires when their connections are closed, or cut after a second."""
        for session in self._present():
            session.end("broker stopped")
        return self._gone(self._clock.seconds() + PATIENCE)

    def _gone(self, deadline: float) -> "Deferred[None]":
        present = list(self._present())
        if present and self._clock.seconds() >= deadline:
            for session in present:
                session.outbox.abort()
            present = []
        if not present:
            return succeed(None)
        later: Deferred[None] = Deferred()
        self._clock.callLater(_LOOK, later.callback, None)
        return later.addCallback(lambda ignored: self._gone(deadline))

    def _present(self) -> Iterator[Session]:
        for protocol in list(self._protocols):
            session = getattr(protocol, "session", None)
            if isinstance(session, Session) and session.state is not State.CLOSED:
                yield session


class _NotingFactory(Factory[Any]):
    """Builds what another factory builds."""

    noisy = False

    def __init__(self, inner: IProtocolFactory, protocols: "WeakSet[Any]") -> None:
        self._inner = inner
        self._protocols = protocols

    def buildProtocol(self, addr: IAddress | None) -> IProtocol | None:
        """Build a protocol and note it."""
        protocol = self._inner.buildProtocol(addr)  # type: ignore[arg-type]  # a pipe has no address
        if protocol is not None:
            self._protocols.add(protocol)
        return protocol

    def startFactory(self) -> None:
        """Start with the first port."""
        self._inner.doStart()

    def stopFactory(self) -> None:
        """Stop with the last port."""
        self._inner.doStop()
