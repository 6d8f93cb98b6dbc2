"""The deadline of requests, their budget, and refusals before the body."""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.testing import StringTransport

from fleximq.security.principal import Admitted
from fleximq.values.unadmitted_budget import FREE_BYTES, UnadmittedBudget
from fleximq.web.site import LINGER, TIMEOUT, RequestRules, WebSite
from tests.web.asking import Granted, SiteCase

PEER = IPv4Address("TCP", "192.0.2.7", 50000)


class RequestCase(SiteCase):
    """Requests of up to 10 seconds and, all together, 3,000 bytes above the free ones."""

    def setUp(self) -> None:
        """Make the site."""
        super().setUp()
        self.budget = UnadmittedBudget(3000)
        self.refused: list[tuple[Any, int]] = []
        rules = RequestRules(self.budget, 10.0, lambda peer, code: self.refused.append((peer, code)))
        self.site: Any = WebSite(self.clock, (), self.pages, lambda: self.admitted, rules=rules)
        self.site.doStart()
        self.addCleanup(self.site.doStop)

    def connect(self, at: float | None = None) -> tuple[Any, StringTransport]:
        """Return a channel and its transport; the connection was made at this time."""
        channel = self.site.buildProtocol(None)
        if at is not None:
            channel.connectedAt = at
        transport = StringTransport(peerAddress=PEER)
        transport.abortConnection = transport.loseConnection  # type: ignore[method-assign]
        channel.makeConnection(transport)
        return channel, transport


def head(path: str, *fields: str, length: int = 0, method: str = "POST") -> bytes:
    """Return a head that announces so many bytes of JSON."""
    lines = f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *fields
    return "\r\n".join((*lines, f"Content-Length: {length}", "", "")).encode()


class DeadlineTests(RequestCase):
    """Requests that trickle in."""

    def test_bodyThatTricklesInIsCutOffAtDeadline(self) -> None:
        """A body that trickles in is cut off at the deadline."""
        channel, transport = self.connect()
        channel.dataReceived(head("/api/queues/purge", length=100))
        for _ in range(9):
            self.clock.advance(1)
            channel.dataReceived(b" ")
        self.assertFalse(transport.disconnecting)
        self.clock.advance(1)
        self.assertTrue(transport.disconnecting)
        self.assertIn(b"HTTP/1.1 408 ", transport.value())
        self.assertEqual(self.refused, [(PEER, 408)])
        channel.dataReceived(b" " * 100)
        self.assertEqual(transport.value().count(b"HTTP/1.1"), 1)
        channel.connectionLost(None)

    def test_fromTheConnection(self) -> None:
        """The deadline counts from the connection, not from the handover."""
        self.clock.advance(8)
        channel, transport = self.connect(at=0.0)
        channel.dataReceived(b"GET / HTTP/1.1\r\n")
        self.clock.advance(2)
        self.assertTrue(transport.disconnecting)

    def test_peerThatStaysConnectedAfterItsRefusalIsAborted(self) -> None:
        """A peer that stays connected after its refusal is aborted."""
        _, transport = self.connect()
        self.clock.advance(10)
        aborted: list[int] = []
        transport.abortConnection = lambda: aborted.append(1)  # type: ignore[method-assign]
        self.clock.advance(LINGER)
        self.assertEqual(aborted, [1])

    def test_unreadAnswer(self) -> None:
        """So is a peer that does not read its answer; the answer itself may take longer than the request."""
        channel, transport = self.connect()
        aborted: list[int] = []
        transport.abortConnection = lambda: aborted.append(1)  # type: ignore[method-assign]
        channel.dataReceived(head("/readyz", method="GET"))
        self.clock.advance(TIMEOUT - 1)
        self.assertEqual(aborted, [])
        self.clock.advance(1)
        self.assertEqual(aborted, [1])


class EarlyTests(RequestCase):
    """Requests that are refused before their body is read."""

    def answer(self, *said: bytes) -> bytes:
        """Return the first line of the answer."""
        channel, transport = self.connect()
        for each in said:
            channel.dataReceived(each)
        self.clock.advance(0)
        return bytes(transport.value().split(b"\r\n")[0])

    def test_noCredentials(self) -> None:
        """Without required credentials: 401."""
        self.admitted = None
        self.assertIn(b" 401 ", self.answer(head("/api/queues/purge", "Expect: 100-continue", length=1000)))

    def test_noRight(self) -> None:
        """Without the right: 403, also if a part of the body has arrived."""
        self.admitted = Admitted(None, Granted())
        self.assertIn(b" 403 ", self.answer(head("/api/queues/purge", length=1000) + b"{"))

    def test_otherMethodsAndUnknownPathsAreAnswered(self) -> None:
        """Other methods and unknown paths too."""
        self.assertIn(b" 405 ", self.answer(head("/api/queues/purge", length=1000, method="GET")))
        self.assertIn(b" 404 ", self.answer(head("/nowhere", length=1000)))
        self.assertIn(b" 405 ", self.answer(head("/", length=1000)))

    def test_goesOn(self) -> None:
        """An expected body is read: 100, then the answer."""
        said = self.answer(head("/api/queues/purge", "Expect: 100-continue", length=2))
        self.assertIn(b" 100 ", said)
        self.assertIn(b" 400 ", self.answer(head("/api/queues/purge", length=2), b"{", b"}"))

    def test_changedMeanwhile(self) -> None:
        """A right that was revoked while the body arrived is not granted."""
        channel, transport = self.connect()
        channel.dataReceived(head("/api/queues/purge", length=2))
        channel.admitted = Admitted(None, Granted())
        channel.dataReceived(b"{}")
        self.assertIn(b" 403 ", transport.value())


class BudgetTests(RequestCase):
    """The bytes of requests that are not complete."""

    def test_overIt(self) -> None:
        """The request that asks for more is refused with 503, the other is not."""
        (one, first), (two, second) = self.connect(), self.connect()
        for channel in (one, two):
            channel.dataReceived(head("/api/queues/purge", length=5000))
            channel.dataReceived(b" " * (FREE_BYTES + 1500))
        self.assertEqual((first.disconnecting, second.disconnecting), (False, True))
        self.assertIn(b"HTTP/1.1 503 ", second.value())
        one.connectionLost(None)
        two.connectionLost(None)
        self.assertEqual(self.budget.used, 0)
