"""How long sessions and tickets last, and how many there are."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import NoCapacity, Unauthorized
from fleximq.rights import EVERYTHING
from fleximq.security.principal import Admitted, Principal
from fleximq.security.web_sessions import (
    IDLE_SECONDS,
    MAX_OWN_SESSIONS,
    MAX_OWN_TICKETS,
    MAX_SECONDS,
    MAX_SESSIONS,
    MAX_TICKETS,
    TICKET_SECONDS,
    WebSessions,
)


def admitted(name: str) -> Admitted:
    """Return the admission of a principal."""
    return Admitted(Principal(name), EVERYTHING)


class SessionsTests(SynchronousTestCase):
    """Sessions."""

    def setUp(self) -> None:
        """Without sessions."""
        self.clock = Clock()
        self.sessions = WebSessions(self.clock.seconds)

    def test_found(self) -> None:
        """A session is found by its text, which cannot be guessed and is not stored."""
        (one, session), (other, _) = self.sessions.begin(admitted("ann")), self.sessions.begin(admitted("ann"))
        self.assertIs(self.sessions.find(one), session)
        self.assertIsNone(self.sessions.find(one[:-1]))
        self.assertIsNone(self.sessions.find(""))
        self.assertEqual(len({one, other, session.csrf}), 3)
        self.assertGreaterEqual(min(len(one), len(session.csrf)), 43)
        self.assertNotIn(one.encode(), b"".join(self.sessions._sessions))
        self.assertNotIn(session.csrf, repr(session))

    def test_idle(self) -> None:
        """A session that is used lasts, one that is not used ends."""
        text, _ = self.sessions.begin(admitted("ann"))
        for _ in range(3):
            self.clock.advance(IDLE_SECONDS - 1)
            self.assertIsNotNone(self.sessions.find(text))
        self.clock.advance(IDLE_SECONDS)
        self.assertIsNone(self.sessions.find(text))
        self.assertEqual(len(self.sessions), 0)

    def test_end(self) -> None:
        """Each session ends, however much it is used."""
        text, _ = self.sessions.begin(admitted("ann"))
        for _ in range(int(MAX_SECONDS // 1800) - 1):
            self.clock.advance(1800)
            self.assertIsNotNone(self.sessions.find(text))
        self.clock.advance(1800)
        self.assertIsNone(self.sessions.find(text))

    def test_endOfCredentials(self) -> None:
        """A session ends with its credentials."""
        text, _ = self.sessions.begin(admitted("ann"), 10)
        self.clock.advance(9)
        self.assertIsNotNone(self.sessions.find(text))
        self.clock.advance(1)
        self.assertIsNone(self.sessions.find(text))

    def test_many(self) -> None:
        """A principal has a number of sessions; the least recently used one ends for the next."""
        texts = [self.sessions.begin(admitted("ann"))[0] for _ in range(MAX_OWN_SESSIONS)]
        bob = self.sessions.begin(admitted("bob"))[0]
        self.sessions.find(texts[0])
        self.sessions.begin(admitted("ann"))
        self.assertEqual([self.sessions.find(text) is None for text in texts[:3]], [False, True, False])
        self.assertIsNotNone(self.sessions.find(bob))

    def test_all(self) -> None:
        """The number of all sessions is bounded."""
        for number in range(MAX_SESSIONS + 5):
            self.sessions.begin(admitted(f"user{number}"))
        self.assertEqual(len(self.sessions), MAX_SESSIONS)


class TicketTests(SynchronousTestCase):
    """Tickets."""

    def setUp(self) -> None:
        """A session."""
        self.clock = Clock()
        self.sessions = WebSessions(self.clock.seconds)
        self.text, self.session = self.sessions.begin(admitted("ann"))

    def ticket(self) -> str:
        """Return a ticket of the session."""
        return self.sessions.ticket(self.session.admitted, self.session)

    def test_once(self) -> None:
        """A ticket is accepted once."""
        ticket = self.ticket()
        self.assertIs(self.sessions.redeem(ticket), self.session.admitted)
        self.assertRaises(Unauthorized, self.sessions.redeem, ticket)

    def test_soon(self) -> None:
        """A ticket expires."""
        tickets = [self.ticket(), self.ticket()]
        self.clock.advance(TICKET_SECONDS - 1)
        self.sessions.redeem(tickets[0])
        self.clock.advance(1)
        self.assertRaises(Unauthorized, self.sessions.redeem, tickets[1])

    def test_signedOut(self) -> None:
        """The tickets of a session end with it, those of others do not."""
        mine, other = self.ticket(), self.sessions.ticket(admitted("bob"), None)
        self.sessions.end(self.text)
        self.assertRaises(Unauthorized, self.sessions.redeem, mine)
        self.sessions.redeem(other)

    def test_many(self) -> None:
        """A principal has a number of tickets; the oldest is replaced."""
        tickets = [self.ticket() for _ in range(MAX_OWN_TICKETS + 1)]
        self.assertRaises(Unauthorized, self.sessions.redeem, tickets[0])
        self.sessions.redeem(tickets[1])

    def test_all(self) -> None:
        """The number of all tickets is bounded, and those that expire make room."""
        for number in range(MAX_TICKETS):
            self.sessions.ticket(admitted(f"user{number}"), None)
        self.assertRaises(NoCapacity, self.ticket)
        self.clock.advance(TICKET_SECONDS)
        self.ticket()
