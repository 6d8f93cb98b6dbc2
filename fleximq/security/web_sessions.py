"""Sessions of the console's users, and tickets with which their pages open connections.

A session is found by a random text in the browser's cookie, a ticket is a token that is accepted once. Of both only
hashes are stored. They end by the monotonic clock, and with the process. Their rights are looked up at each use.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from fleximq.errors import NoCapacity, Unauthorized
from fleximq.security.principal import Admitted

#: Seconds until a session ends: after sign-in, and after its last request.
MAX_SECONDS, IDLE_SECONDS = 12 * 3600.0, 3600.0
#: Maximum number of sessions, and of one principal; the least recently used one ends.
MAX_SESSIONS, MAX_OWN_SESSIONS = 1000, 20
#: Seconds in which a ticket is accepted; maximum number of tickets, and of one principal.
TICKET_SECONDS, MAX_TICKETS, MAX_OWN_TICKETS = 30.0, 1000, 20
#: Every ticket begins with this, so that no other checker is asked about it.
TICKET = "fleximq-ticket-"
_BYTES = 32


@dataclass(eq=False, slots=True, repr=False)
class WebSession:
    """One session: its principal, the token that its changing requests must carry, and when it ends and was used."""

    admitted: Admitted
    csrf: str
    ends: float
    used: float


class _Ticket(NamedTuple):
    admitted: Admitted
    session: WebSession | None
    until: float


class WebSessions:
    """All sessions and tickets of a broker; ``seconds`` is the monotonic clock."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._sessions: OrderedDict[bytes, WebSession] = OrderedDict()  # the least recently used first
        self._tickets: OrderedDict[bytes, _Ticket] = OrderedDict()

    def __len__(self) -> int:
        self._forget()
        return len(self._sessions)

    def begin(self, admitted: Admitted, lasting: float = MAX_SECONDS) -> tuple[str, WebSession]:
        """Return a new session and its random text; ``lasting``: the seconds until its credentials end."""
        self._forget()
        own = [key for key, each in self._sessions.items() if _nameOf(each.admitted) == _nameOf(admitted)]
        if len(own) >= MAX_OWN_SESSIONS:
            self._end(own[0])
        elif len(self._sessions) >= MAX_SESSIONS:
            self._end(next(iter(self._sessions)))
        now, text = self._seconds(), secrets.token_urlsafe(_BYTES)
        session = WebSession(admitted, secrets.token_urlsafe(_BYTES), now + min(lasting, MAX_SECONDS), now)
        self._sessions[_hash(text)] = session
        return text, session

    def find(self, text: str) -> WebSession | None:
        """Return the session of this text, None if there is none; this is a use of it."""
        key = _hash(text)
        session = self._sessions.get(key)
        if session is None:
            return None
        if self._isOver(session):
            self._end(key)
            return None
        session.used = self._seconds()
        self._sessions.move_to_end(key)
        return session

    def end(self, text: str) -> None:
        """End the session of this text, and its tickets; ignored without one."""
        self._end(_hash(text))

    def ticket(self, admitted: Admitted, session: WebSession | None) -> str:
        """Return a ticket for this principal, which ends with the session; raises NoCapacity if there are too many."""
        self._forget()
        own = [key for key, each in self._tickets.items() if _nameOf(each.admitted) == _nameOf(admitted)]
        if len(own) >= MAX_OWN_TICKETS:
            del self._tickets[own[0]]
        elif len(self._tickets) >= MAX_TICKETS:
            raise NoCapacity("there are too many tickets, try again later")
        text = TICKET + secrets.token_urlsafe(_BYTES)
        self._tickets[_hash(text)] = _Ticket(admitted, session, self._seconds() + TICKET_SECONDS)
        return text

    def redeem(self, text: str) -> Admitted:
        """Return the principal of a ticket, which is not accepted again; raises Unauthorized if there is none."""
        found = self._tickets.pop(_hash(text), None)
        if found is None or found.until <= self._seconds():
            raise Unauthorized("this ticket was used before, or has expired")
        return found.admitted

    def _isOver(self, session: WebSession) -> bool:
        now = self._seconds()
        return now >= session.ends or now >= session.used + IDLE_SECONDS

    def _forget(self) -> None:
        """Remove all that has ended."""
        for key in [key for key, each in self._sessions.items() if self._isOver(each)]:
            self._end(key)
        while self._tickets and next(iter(self._tickets.values())).until <= self._seconds():
            self._tickets.popitem(last=False)

    def _end(self, key: bytes) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            for each in [ticket for ticket, found in self._tickets.items() if found.session is session]:
                del self._tickets[each]


def _nameOf(admitted: Admitted) -> str | None:
    return None if admitted.principal is None else admitted.principal.name


def _hash(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
