"""Open connections, and their orderly end when the broker stops.

Otherwise pending answers would be lost, and WebSockets would get no close frame. The reactor still ends connections
without a session. docs/guides/operating.rst, "Stopping".
"""

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.session import STOPPED, Session

#: Clients warned of the stop may continue until they are silent for ``QUIET`` seconds and no answers are pending; at
#: most for the share ``PART`` of the timeout.
QUIET, PART = 0.5, 0.5
#: Seconds that a peer with complete output has to close its side; after twice that it is aborted.
LAST = 1.0
#: Minimum seconds between two checks, and minimum pause as a multiple of a check's duration.
_LOOK, _REST = 0.01, 4

_log = Logger()


class OpenConnections:
    """The open sessions of all listeners; the contexts of these share ``sessions``. ``stopping`` is true while the stop
    of the broker ends the sessions.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self.sessions: set[Session] = set()
        self._notified: dict[Session, float] = {}
        self._done: dict[Session, float] = {}
        self.stopping = False

    def drain(self, timeout: float) -> "Deferred[None]":
        """End all sessions; fires when their connections are closed, at the latest after ``timeout`` seconds."""
        self.stopping = True
        now = self._clock.seconds()
        return self._endWhenClosed(now + PART * timeout, now + timeout)

    def _endWhenClosed(self, finish: float, deadline: float) -> "Deferred[None]":
        now = self._clock.seconds()
        present = list(self.sessions)
        if present and now >= deadline:
            _log.warn("{number} connections did not end in time and are cut off", number=len(present))
            for session in present:
                session.outbox.abort()
            present = []
        if not present:
            self._notified.clear()
            self._done.clear()
            return succeed(None)
        self._dismissIdle(present, now, finish)
        later: Deferred[None] = Deferred()
        self._clock.callLater(max(_LOOK, _REST * (self._clock.seconds() - now)), later.callback, None)
        return later.addCallback(lambda ignored: self._endWhenClosed(finish, deadline))

    def _dismissIdle(self, present: list[Session], now: float, finish: float) -> None:
        """Warn sessions that were not warned yet, and end those that have had enough time since."""
        busy = any(session.client is not None and session.broker.openRequests(session.client) for session in present)
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
            waited = now - self._done.setdefault(session, now) if session.outbox.empty else 0.0
            if waited >= 2 * LAST:
                session.outbox.abort()
            elif waited >= LAST:
                session.outbox.finish()
