"""When what is sent is written, and which of several lines is listened to."""

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
    """A line that remembers what was done to it."""

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
    """Remembers what it was told."""

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
    """Let a line come about."""
    connection.transportMade(wire)
    connection.transportConnected(wire)


class ConnectionTests(SynchronousTestCase):
    """A connection whose line is there."""

    def setUp(self) -> None:
        """Connect."""
        self.loop, self.client, self.wire = Turns(), Client(), Wire()
        self.connection = Connection(self.loop, *self.client.callbacks)
        connect(self.connection, self.wire)

    def test_together(self) -> None:
        """What is sent in one turn is written at once, at its end."""
        self.connection.send(b"a")
        self.connection.send(b"b")
        self.assertEqual(self.wire.done, [])
        self.loop.clock.advance(0)
        self.assertEqual(self.wire.done, [b"ab"])

    def test_now(self) -> None:
        """What is sent now takes what was collected along, and nothing is left for the end of the turn."""
        self.connection.send(b"a")
        self.connection.sendNow(b"b")
        self.loop.clock.advance(0)
        self.assertEqual(self.wire.done, [b"ab"])

    def test_framed(self) -> None:
        """The frame is put around what is written, and asked for where nothing was sent."""
        connection = Connection(self.loop, *self.client.callbacks, lambda data: b"<" + data + b">")
        connect(connection, self.wire)
        connection.send(b"a")
        connection.send(b"b")
        connection.writePending()
        connection.writePending()
        self.assertEqual(self.wire.done, [b"<ab>", b"<>"])

    def test_patience(self) -> None:
        """Below 64 KiB nobody waits; from there on, until the line takes more."""
        self.successResultOf(Deferred.fromCoroutine(self.connection.sendAndDrain(MUCH[:-1])))
        self.connection.transportPaused(self.wire)
        waiting = Deferred.fromCoroutine(self.connection.sendAndDrain(b"x"))
        self.assertEqual(self.wire.done, [MUCH])
        self.loop.clock.advance(0)
        self.assertNoResult(waiting)
        self.connection.transportResumed(self.wire)
        self.successResultOf(waiting)

    def test_patienceForFewBytes(self) -> None:
        """While the line takes no more, senders of few bytes wait, too."""
        self.connection.transportPaused(self.wire)
        waiting = Deferred.fromCoroutine(self.connection.sendAndDrain(b"x"))
        self.loop.clock.advance(0)
        self.assertNoResult(waiting)
        self.connection.transportResumed(self.wire)
        self.successResultOf(waiting)

    def test_automaticAnswers(self) -> None:
        """While the line takes no more, up to 1 MiB of automatic answers is written, and the rest is dropped."""
        self.connection.transportPaused(self.wire)
        for _ in range(20):
            self.connection.sendAnswer(MUCH)
        self.loop.clock.advance(0)
        self.assertEqual(sum(len(each) for each in self.wire.done if isinstance(each, bytes)), 1 << 20)
        self.connection.transportResumed(self.wire)
        self.connection.sendAnswer(b"a")
        self.loop.clock.advance(0)
        self.assertEqual(self.wire.done[-1], b"a")

    def test_patienceEnds(self) -> None:
        """Nobody waits for a line that has ended."""
        self.connection.transportPaused(self.wire)
        waiting = Deferred.fromCoroutine(self.connection.sendAndDrain(MUCH))
        self.loop.clock.advance(0)
        self.connection.drop()
        self.successResultOf(waiting)

    def test_told(self) -> None:
        """The client is told what happens on the line."""
        self.connection.bytesReceived(self.wire, b"a")
        self.connection.transportLost(self.wire, ConnectionLost("gone"))
        self.assertEqual(self.client.told, ["made", b"a", "gone"])

    def test_end(self) -> None:
        """The end comes behind what was collected."""
        self.connection.send(b"a")
        self.connection.end()
        self.assertEqual(self.wire.done, [b"a", "close"])
        self.assertIsNone(self.connection.transport)

    def test_drop(self) -> None:
        """What was collected for a line that is dropped is written to no other."""
        self.connection.send(b"a")
        self.connection.drop()
        other = Wire()
        connect(self.connection, other)
        self.loop.clock.advance(0)
        self.assertEqual((self.wire.done, other.done), (["abort"], []))

    def test_deaf(self) -> None:
        """What happens on a line that was dropped is nobody's business."""
        self.connection.drop()
        self.connection.bytesReceived(self.wire, b"a")
        self.connection.transportLost(self.wire, ConnectionLost("gone"))
        self.assertEqual(self.client.told, ["made"])

    def test_late(self) -> None:
        """A line that comes when nobody listens for it any more is aborted."""
        for leave in (self.connection.drop, self.connection.end, lambda: self.connection.transportMade(Wire())):
            late = Wire()
            self.connection.transportMade(late)
            leave()
            self.connection.transportConnected(late)
            self.assertEqual(late.done, ["abort"])
        self.assertEqual(self.client.told, ["made"])
