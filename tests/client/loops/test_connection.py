"""When sent bytes are written, and which of several transports counts."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import ConnectionLost
from fleximq.client.loops.connection import Cancel, Connection, Loop, Transport
from fleximq.client.settings import ClientSettings
from fleximq.values.urls import Url

MUCH = b"x" * 65_536


class Turns(Loop):
    """A loop whose turns are steps of a clock."""

    def __init__(self) -> None:
        self.clock = Clock()

    def slot(self) -> tuple[Awaitable[None], Callable[[], None]]:
        waiting: Deferred[None] = Deferred()
        return waiting, lambda: None if waiting.called else waiting.callback(None)

    def later(self, seconds: float, call: Callable[[], None]) -> Cancel:
        timer = self.clock.callLater(seconds, call)
        return lambda: timer.cancel() if timer.active() else None

    def start(self, work: Coroutine[Any, Any, None]) -> Cancel:
        return Deferred.fromCoroutine(work).cancel

    async def dial(self, url: Url, settings: ClientSettings, connection: Connection) -> None:
        raise ConnectionLost("there is nobody here")


class Wire(Transport):
    """A transport that notes its calls."""

    def __init__(self) -> None:
        self.done: list[object] = []

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def pauseReading(self) -> None:
        self.done.append("pause")

    def resumeReading(self) -> None:
        self.done.append("resume")

    def close(self) -> None:
        self.done.append("close")

    def abort(self) -> None:
        self.done.append("abort")


class Client:
    """Notes the calls of a connection."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.callbacks = self.made, self.heard, self.lose

    def made(self) -> None:
        self.told.append("made")

    def heard(self, data: bytes) -> None:
        self.told.append(data)

    def lose(self, lost: ConnectionLost) -> None:
        self.told.append(str(lost))


def connect(connection: Connection, wire: Wire) -> None:
    """Connect a transport."""
    connection.transportMade(wire)
    connection.transportConnected(wire)


class ConnectionTests(SynchronousTestCase):
    """A connected connection."""

    def setUp(self) -> None:
        """Connect."""
        self.loop, self.client, self.wire = Turns(), Client(), Wire()
        self.connection = Connection(self.loop, *self.client.callbacks)
        connect(self.connection, self.wire)

    def test_bytesOfOneTurnAreWrittenTogether(self) -> None:
        """At its end."""
        self.connection.send(b"a")
        self.connection.send(b"b")
        self.assertEqual(self.wire.done, [])
        self.loop.clock.advance(0)
        self.assertEqual(self.wire.done, [b"ab"])

    def test_sendingNowTakesCollectedBytesAlong(self) -> None:
        """None are left for the end of the turn."""
        self.connection.send(b"a")
        self.connection.sendNow(b"b")
        self.loop.clock.advance(0)
        self.assertEqual(self.wire.done, [b"ab"])

    def test_writtenBytesAreFramedTogether(self) -> None:
        """The frame is asked for without bytes, too."""
        connection = Connection(self.loop, *self.client.callbacks, lambda data: b"<" + data + b">")
        connect(connection, self.wire)
        connection.send(b"a")
        connection.send(b"b")
        connection.writePending()
        connection.writePending()
        self.assertEqual(self.wire.done, [b"<ab>", b"<>"])

    def test_senderWaitsFromTheLimitOn(self) -> None:
        """Until the transport accepts more."""
        self.successResultOf(Deferred.fromCoroutine(self.connection.sendAndDrain(MUCH[:-1])))
        self.connection.transportPaused(self.wire)
        waiting = Deferred.fromCoroutine(self.connection.sendAndDrain(b"x"))
        self.assertEqual(self.wire.done, [MUCH])
        self.loop.clock.advance(0)
        self.assertNoResult(waiting)
        self.connection.transportResumed(self.wire)
        self.successResultOf(waiting)

    def test_senderOfFewBytesWaitsWhilePaused(self) -> None:
        """As others."""
        self.connection.transportPaused(self.wire)
        waiting = Deferred.fromCoroutine(self.connection.sendAndDrain(b"x"))
        self.loop.clock.advance(0)
        self.assertNoResult(waiting)
        self.connection.transportResumed(self.wire)
        self.successResultOf(waiting)

    def test_automaticAnswersAreLimitedWhilePaused(self) -> None:
        """To 1 MiB; others are dropped."""
        self.connection.transportPaused(self.wire)
        for _ in range(20):
            self.connection.sendAnswer(MUCH)
        self.loop.clock.advance(0)
        self.assertEqual(sum(len(each) for each in self.wire.done if isinstance(each, bytes)), 1 << 20)
        self.connection.transportResumed(self.wire)
        self.connection.sendAnswer(b"a")
        self.loop.clock.advance(0)
        self.assertEqual(self.wire.done[-1], b"a")

    def test_droppedTransportEndsWaits(self) -> None:
        """Of senders."""
        self.connection.transportPaused(self.wire)
        waiting = Deferred.fromCoroutine(self.connection.sendAndDrain(MUCH))
        self.loop.clock.advance(0)
        self.connection.drop()
        self.successResultOf(waiting)

    def test_eventsOfTheTransportAreReported(self) -> None:
        """In order."""
        self.connection.bytesReceived(self.wire, b"a")
        self.connection.transportLost(self.wire, ConnectionLost("gone"))
        self.assertEqual(self.client.told, ["made", b"a", "gone"])

    def test_endWritesCollectedBytes(self) -> None:
        """Then it closes the transport."""
        self.connection.send(b"a")
        self.connection.end()
        self.assertEqual(self.wire.done, [b"a", "close"])
        self.assertIsNone(self.connection.transport)

    def test_dropDiscardsCollectedBytes(self) -> None:
        """They are not written to the next transport."""
        self.connection.send(b"a")
        self.connection.drop()
        other = Wire()
        connect(self.connection, other)
        self.loop.clock.advance(0)
        self.assertEqual((self.wire.done, other.done), (["abort"], []))

    def test_droppedTransportIsIgnored(self) -> None:
        """Its bytes and its end."""
        self.connection.drop()
        self.connection.bytesReceived(self.wire, b"a")
        self.connection.transportLost(self.wire, ConnectionLost("gone"))
        self.assertEqual(self.client.told, ["made"])

    def test_lateTransportIsAborted(self) -> None:
        """One that is not expected any more."""
        for leave in (self.connection.drop, self.connection.end, lambda: self.connection.transportMade(Wire())):
            late = Wire()
            self.connection.transportMade(late)
            leave()
            self.connection.transportConnected(late)
            self.assertEqual(late.done, ["abort"])
        self.assertEqual(self.client.told, ["made"])
