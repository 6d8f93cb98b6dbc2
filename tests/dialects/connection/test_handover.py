"""Stepping aside for the protocol that was found."""

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fleximq.dialects.connection.handover import Handover


class Inner(Protocol):
    """Notes what it is told."""

    connectedAt = -1.0

    def __init__(self, closing: bool = False) -> None:
        self.told: list[object] = []
        self._closing = closing

    def connectionMade(self) -> None:
        self.told.append("made")
        if self._closing:
            self.transport.loseConnection()  # type: ignore[union-attr]

    def dataReceived(self, data: bytes) -> None:
        self.told.append(data)

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.told.append("lost")


@implementer(IHalfCloseableProtocol)
class HalfInner(Inner):
    """Knows half-closed connections as well."""

    def readConnectionLost(self) -> None:
        self.told.append("no more to read")

    def writeConnectionLost(self) -> None:
        self.told.append("no more to write")


class HandoverTests(SynchronousTestCase):
    """A connection goes from the first protocol to the second."""

    def setUp(self) -> None:
        """A connection at its first protocol."""
        self.outer = Handover()
        self.outer.connectedAt = 12.5
        self.transport = StringTransport()
        self.outer.makeConnection(self.transport)

    def test_interface(self) -> None:
        """It takes what a half-closed connection says."""
        verifyObject(IHalfCloseableProtocol, self.outer)

    def test_bytes(self) -> None:
        """The second gets the transport, the bytes that were read, then those that come, then the end."""
        inner = Inner()
        self.outer.handOver(inner, b"first")
        self.outer.dataReceived(b"second")
        self.outer.connectionLost()
        self.assertEqual(inner.told, ["made", b"first", b"second", "lost"])
        self.assertIs(inner.transport, self.transport)

    def test_noBytes(self) -> None:
        """Nothing read, nothing given."""
        inner = Inner()
        self.outer.handOver(inner, b"")
        self.assertEqual(inner.told, ["made"])

    def test_whenLost(self) -> None:
        """All protocols that handed over learn of the loss once, the last one first."""
        inner = Inner()
        for count in (0, 1, 2, 3):
            told: list[object] = []
            outer, middle = Handover(), Handover()
            outer.makeConnection(self.transport)
            if count & 1:
                outer.whenLost = lambda told=told: told.append("outer")
            if count & 2:
                middle.whenLost = lambda told=told: told.append("middle")
            inner.told = told
            outer.handOver(middle, b"")
            middle.handOver(inner, b"")
            outer.connectionLost()
            self.assertEqual(told, ["made", "lost", *["middle"] * (count >> 1), *["outer"] * (count & 1)])

    def test_direct(self) -> None:
        """No call goes through the first one any more."""
        inner = Inner()
        self.outer.handOver(inner, b"")
        self.assertEqual(self.outer.dataReceived, inner.dataReceived)
        self.assertEqual(self.outer.connectionLost, inner.connectionLost)

    def test_connectedAt(self) -> None:
        """The second learns when the connection was made, if there is input for it."""
        for received, known in ((b"x", 12.5), (b"", -1.0)):
            inner = Inner()
            self.outer.handOver(inner, received)
            self.assertEqual(inner.connectedAt, known)

    def test_withoutConnectedAt(self) -> None:
        """A protocol that does not ask is not told."""
        inner = Protocol()
        self.outer.handOver(inner, b"")
        self.assertFalse(hasattr(inner, "connectedAt"))

    def test_halfClosed(self) -> None:
        """A half-closed connection is news for a protocol that knows them, and stays open."""
        inner = HalfInner()
        self.outer.handOver(inner, b"x")
        self.outer.readConnectionLost()
        self.outer.writeConnectionLost()
        self.assertEqual(inner.told, ["made", b"x", "no more to read", "no more to write"])
        self.assertFalse(self.transport.disconnecting)

    def test_notHalfClosed(self) -> None:
        """For another it is closed once its input has ended, when all is written; the end of its output is no news."""
        inner = Inner()
        self.outer.handOver(inner, b"x")
        self.outer.writeConnectionLost()
        self.assertFalse(self.transport.disconnecting)
        self.outer.readConnectionLost()
        self.assertTrue(self.transport.disconnecting)
        self.assertEqual(inner.told, ["made", b"x"])

    def test_closing(self) -> None:
        """A second that closes at once gets no bytes."""
        inner = Inner(closing=True)
        self.outer.handOver(inner, b"x")
        self.assertEqual(inner.told, ["made"])

    def test_none(self) -> None:
        """A factory that wants no more connections closes this one."""
        self.outer.handOver(None, b"x")
        self.assertTrue(self.transport.disconnecting)

    def test_chain(self) -> None:
        """One that steps aside itself takes the first one along, now or later."""
        middle, last = Handover(), HalfInner()
        self.outer.handOver(middle, b"")
        middle.handOver(last, b"first")
        self.outer.dataReceived(b"second")
        self.outer.readConnectionLost()
        self.outer.connectionLost()
        self.assertEqual(last.told, ["made", b"first", b"second", "no more to read", "lost"])
        self.assertEqual(self.outer.dataReceived, last.dataReceived)

    def test_before(self) -> None:
        """Before anything is found, the end of input ends the connection."""
        self.outer.writeConnectionLost()
        self.assertFalse(self.transport.disconnecting)
        self.outer.readConnectionLost()
        self.assertTrue(self.transport.disconnecting)
