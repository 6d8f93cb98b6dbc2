"""The outbox: order, one write a turn, the byte budget, closing; over strings and over real sockets."""

import socket
from collections.abc import Callable, Generator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IPullProducer, IPushProducer
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock, deferLater
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface.verify import verifyObject

from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.outbox import MAX_UNREAD, Outbox

MEBIBYTE = 1 << 20


class Pausing(StringTransport):
    """A string that asks its producer to stop once it holds ``room`` bytes, until :meth:`drain`."""

    space = 100

    def write(self, data: bytes) -> None:
        """Take the bytes, and pause the producer if they are many."""
        super().write(data)
        if self.producer is not None and self.io.tell() > self.space:
            self.producer.pauseProducing()

    def drain(self) -> bytes:
        """Return what was written and ask for more."""
        written: bytes = self.value()
        self.clear()
        if self.producer is not None:
            self.producer.resumeProducing()
        return written

    def drainAll(self) -> bytes:
        """Drain until nothing comes any more."""
        parts = [self.drain()]
        while parts[-1]:
            parts.append(self.drain())
        return b"".join(parts)


class OutboxTests(SynchronousTestCase):
    """What is taken is written in order, at the end of the turn."""

    def setUp(self) -> None:
        """An outbox with a budget of 1,000 bytes on a transport that pauses it after 100."""
        self.clock = Clock()
        self.turn = WriteTurn(self.clock)
        self.transport = Pausing()
        self.overflows = 0
        self.outbox = Outbox(self.transport, self.turn, 1000, self.overflow)

    def overflow(self) -> None:
        """Count."""
        self.overflows += 1

    def say(self, *chunks: bytes) -> None:
        """Take these in one turn."""
        for chunk in chunks:
            self.outbox.deliver(chunk, 3)
        self.turn.flush()

    def test_unread(self) -> None:
        """What the peer has not read is known while it does not read."""
        self.say(b"x" * 50)
        self.assertEqual((self.outbox.unread, self.outbox.isUnread), (0, False))
        self.say(b"x" * 60)
        self.say(b"y" * 300)
        self.assertEqual((self.outbox.unread, self.outbox.isUnread), (360, True))
        self.transport.drainAll()
        self.assertEqual((self.outbox.unread, self.outbox.isUnread), (0, False))

    def test_tap(self) -> None:
        """A tap gets what is written until it is taken off."""
        tapped: list[bytes] = []
        remove = self.outbox.tap(tapped.append)
        self.say(b"one", b"two")
        remove()
        self.say(b"three")
        self.assertEqual((b"".join(tapped), self.transport.value()), (b"onetwo", b"onetwothree"))

    def test_tapOfBacklog(self) -> None:
        """A tap begins with a whole message, after what is buffered."""
        tapped: list[bytes] = []
        self.say(b"x" * 200)
        self.say(b"y" * 50)
        remove = self.outbox.tap(tapped.append)
        self.transport.drainAll()
        self.say(b"z" * 10)
        self.assertEqual(tapped, [b"z" * 10])
        remove()

    def test_tapTakenOffBefore(self) -> None:
        """One that is taken off before it begins never does."""
        tapped: list[bytes] = []
        self.say(b"x" * 200)
        self.say(b"y" * 50)
        self.outbox.tap(tapped.append)()
        self.transport.drainAll()
        self.say(b"z" * 10)
        self.assertEqual(tapped, [])

    def test_interfaces(self) -> None:
        """It is a producer of both kinds, and the transport's."""
        verifyObject(IPushProducer, self.outbox)
        verifyObject(IPullProducer, self.outbox)
        self.assertIs(self.transport.producer, self.outbox)
        self.assertTrue(self.transport.streaming)

    def test_oneWriteATurn(self) -> None:
        """What one turn brought is written at once, joined; nothing before its end."""
        writes: list[bytes] = []
        self.patch(self.transport, "write", writes.append)
        self.turn.open = True
        for chunk in (b"a", b"bc", b""):
            self.outbox.take(chunk)
        self.assertEqual(writes, [])
        self.turn.flush()
        self.say(b"d")
        self.assertEqual(writes, [b"abc", b"d"])

    def test_sameObject(self) -> None:
        """A single chunk is not copied."""
        writes: list[bytes] = []
        self.patch(self.transport, "write", writes.append)
        chunk = b"x" * 90
        self.say(chunk)
        self.assertIs(writes[0], chunk)

    def test_outsideATurn(self) -> None:
        """What is said outside a read is written in the clock's next round."""
        self.outbox.take(b"late")
        self.assertEqual(self.transport.value(), b"")
        self.clock.advance(0)
        self.assertEqual(self.transport.value(), b"late")

    def test_holds(self) -> None:
        """While the transport has enough, bytes wait, and are counted; then they follow in order."""
        self.say(b"a" * 101)
        self.say(b"b" * 60)
        self.say(b"c" * 60)
        self.assertEqual((self.transport.value(), self.outbox.waiting), (b"a" * 101, 120))
        self.assertEqual(self.transport.drainAll(), b"a" * 101 + b"b" * 60 + b"c" * 60)
        self.assertEqual(self.outbox.waiting, 0)

    def test_budget(self) -> None:
        """Up to the budget nothing happens; one byte above it, the unsent ones counted, overflow is called."""
        self.say(b"a" * 101)
        self.say(b"b" * 899)
        self.assertEqual(self.overflows, 0)
        self.say(b"c")
        self.assertEqual(self.overflows, 1)

    def test_metBelowTheMark(self) -> None:
        """A chunk that meets an idle transport is taken whole, however large."""
        self.say(b"a" * 5000)
        self.assertEqual((self.overflows, self.transport.drainAll()), (0, b"a" * 5000))

    def test_full(self) -> None:
        """A peer that leaves its budget or a megabyte unread is answered no further, until it has read."""
        for limit, first, more in ((1000, 800, 200), (1 << 30, MAX_UNREAD - 200, 200)):
            transport = Pausing()
            outbox = Outbox(transport, self.turn, limit, self.overflow)
            seen = [outbox.full]
            for size in (first, 0, more):
                outbox.take(b"x" * size)
                self.turn.flush()
                seen.append(outbox.full)
            transport.drainAll()
            seen.append(outbox.full)
            self.assertEqual(seen, [False, False, False, True, False], limit)

    def test_drainedIsForgotten(self) -> None:
        """What was sent does not count any more."""
        for _ in range(20):
            self.say(b"a" * 600)
            self.transport.drainAll()
        self.assertEqual(self.overflows, 0)

    def test_largeBacklog(self) -> None:
        """Of a large chunk the transport has only a portion at a time, so what it sent counts as sent."""
        outbox = Outbox(Pausing(), self.turn, 8 * MEBIBYTE, self.overflow)
        transport = outbox._transport
        outbox.take(bytes(8 * MEBIBYTE))
        self.turn.flush()
        self.assertEqual(len(transport.value()), MEBIBYTE)
        for _ in range(6):
            transport.drain()
        outbox.take(bytes(5 * MEBIBYTE))
        self.turn.flush()
        self.assertEqual(self.overflows, 0)
        self.assertEqual(len(transport.drainAll()), 7 * MEBIBYTE)

    def test_unsentCounts(self) -> None:
        """What the transport was given and has not sent is no room, portion by portion."""
        outbox = Outbox(Pausing(), self.turn, 8 * MEBIBYTE, self.overflow)
        transport = outbox._transport
        outbox.take(bytes(3 * MEBIBYTE))
        self.turn.flush()
        rooms = [outbox.space]
        for _ in range(3):
            transport.drain()
            rooms.append(outbox.space)
        self.assertEqual(rooms, [5 * MEBIBYTE, 6 * MEBIBYTE, 7 * MEBIBYTE, 8 * MEBIBYTE])

    def test_close(self) -> None:
        """All that waits is sent, also what this turn brought; then the connection is closed."""
        self.outbox.take(b"last")
        self.outbox.close()
        self.assertEqual((self.transport.value(), self.transport.disconnecting), (b"last", True))
        self.assertIsNone(self.transport.producer)

    def test_closeWhilePaused(self) -> None:
        """It is closed only when the transport has taken everything."""
        self.say(b"a" * 101)
        self.say(b"b" * 250)
        self.outbox.take(b"c")
        self.outbox.close()
        found = b""
        while not self.transport.disconnecting:
            part = self.transport.drain()
            self.assertNotEqual(part, b"")
            found += part
        found += self.transport.drain()
        self.assertEqual(found, b"a" * 101 + b"b" * 250 + b"c")

    def test_closedTakesNothing(self) -> None:
        """What comes after the close is dropped."""
        self.outbox.close()
        self.say(b"late")
        self.clock.advance(0)
        self.assertEqual(self.transport.value(), b"")

    def test_abort(self) -> None:
        """What waits is dropped, and the connection closed now."""
        self.say(b"a" * 101)
        self.say(b"b" * 50)
        self.outbox.take(b"c")
        self.outbox.abort()
        self.turn.flush()
        self.assertTrue(self.transport.disconnected)
        self.assertEqual((self.outbox.waiting, self.transport.value()), (0, b"a" * 101))

    def test_endings(self) -> None:
        """Closing and aborting in any order, and more than once, does no harm."""
        for words in ("close close", "close abort", "abort close", "abort abort", "close abort abort close"):
            for first in (b"", b"a" * 101):
                outbox = Outbox(Pausing(), self.turn, 1000, self.overflow)
                outbox.take(first)
                self.turn.flush()
                for word in words.split():
                    getattr(outbox, word)()
                self.turn.flush()
                self.assertEqual(outbox._transport.disconnected, "abort" in words, words)

    def test_gone(self) -> None:
        """When the connection is gone, everything is dropped in silence."""
        self.say(b"a" * 101)
        self.say(b"b" * 50)
        self.outbox.stopProducing()
        self.outbox.take(b"c" * 5000)
        self.turn.flush()
        self.assertEqual((self.outbox.waiting, self.overflows, self.transport.value()), (0, 0, b"a" * 101))

    @given(st.lists(st.one_of(st.binary(max_size=300), st.just(None))))
    def test_anyOrder(self, steps: list[bytes | None]) -> None:
        """Whatever is said and drained when: all bytes, in order."""
        transport = Pausing()
        outbox = Outbox(transport, self.turn, 1 << 30, self.overflow)
        found = b""
        for step in steps:
            if step is None:
                found += transport.drain()
            else:
                outbox.take(step)
                self.turn.flush()
        self.assertEqual(found + transport.drainAll(), b"".join(step for step in steps if step is not None))


class Server(Protocol):
    """The broker's side of a real connection: an outbox on its transport."""

    def connectionMade(self) -> None:
        """Make the outbox and tell the test."""
        factory: Any = self.factory
        self.lost: Deferred[None] = Deferred()
        self.outbox = Outbox(self.transport, factory.turn, factory.limit, factory.overflow)
        factory.made.callback(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """As a session does."""
        self.outbox.stopProducing()
        self.lost.callback(None)


class SocketTests(TestCase):
    """Plain sockets on loopback, where bytes go to the kernel at once; the reader is read by hand."""

    def factory(self, limit: int = 1 << 30) -> Any:
        """Return a factory whose ``made`` fires with its only protocol."""
        factory: Any = Factory.forProtocol(Server)
        factory.noisy = False
        factory.turn = self.turn = WriteTurn(reactor)
        factory.limit = limit
        factory.made = Deferred()
        factory.overflow = self.overflow
        self.overflows = 0
        return factory

    @inlineCallbacks
    def connect(self, limit: int = 1 << 30) -> Generator[Any, Any, Server]:
        """Return the server's side; ``self.reader`` is the other."""
        factory = self.factory(limit)
        port: Any = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.reader = socket.create_connection(("127.0.0.1", port.getHost().port))
        self.addCleanup(self.reader.close)
        self.reader.setblocking(False)
        server: Server = yield factory.made
        return server

    def overflow(self) -> None:
        """Count."""
        self.overflows += 1

    def say(self, server: Server, *chunks: bytes) -> None:
        """Take these in one turn."""
        for chunk in chunks:
            server.outbox.take(chunk)
        self.turn.flush()

    @inlineCallbacks
    def read(
        self, until: Callable[[bytearray], bool] = lambda found: False, size: int = 1 << 20
    ) -> Generator[Any, Any, bytes]:
        """Read until the connection ends or a condition is met, letting the reactor run in between."""
        found = bytearray()
        while not until(found):
            try:
                piece = self.reader.recv(size)
            except BlockingIOError:
                yield deferLater(reactor, 0)
                continue
            if not piece:
                break
            found += piece
        return bytes(found)

    @inlineCallbacks
    def test_atOnce(self) -> Generator[Any, Any, None]:
        """A small chunk is in the kernel when the turn ends, without a round of the reactor."""
        server = yield self.connect()
        self.say(server, b"hello")
        self.reader.setblocking(True)
        self.reader.settimeout(300)
        self.assertEqual(self.reader.recv(100), b"hello")

    @inlineCallbacks
    def test_linger(self) -> Generator[Any, Any, None]:
        """An outbox that lingers ends what goes out; the connection ends with the other side."""
        server = yield self.connect()
        server.outbox.linger()
        self.say(server, b"hello")
        server.outbox.close()
        self.assertTrue(server.outbox.empty)
        self.assertEqual((yield self.read()), b"hello")
        self.reader.send(b"x" * 1000)  # which would reset a connection that is closed
        for _ in range(20):
            yield deferLater(reactor, 0)
        self.assertTrue(server.transport.connected)
        server.outbox.finish()
        while server.transport.connected:
            yield deferLater(reactor, 0)

    @inlineCallbacks
    def test_lingerBehindTheEnd(self) -> Generator[Any, Any, None]:
        """A peer that has ended its side already is not waited for."""
        server = yield self.connect()
        server.outbox.finish()
        server.outbox.linger()
        server.outbox.close()
        while server.transport.connected:
            yield deferLater(reactor, 0)

    @inlineCallbacks
    def test_largeToAPausingReader(self) -> Generator[Any, Any, None]:
        """64 MiB to a reader that pauses arrive to the byte, and what is said meanwhile behind them, in order."""
        server = yield self.connect()
        block = bytes(range(256)) * 4096
        large = b"".join(bytes((number,)) + block for number in range(64))
        self.say(server, large)
        marks = [b"<%d>" % number for number in range(200)]
        found = b""
        for number, mark in enumerate(marks):
            self.say(server, mark)
            if number % 20 == 0:
                found += yield self.read(lambda got: len(got) >= 4 * MEBIBYTE)
        server.outbox.close()
        found += yield self.read()
        yield server.lost
        expected = large + b"".join(marks)
        self.assertEqual(len(found), len(expected))
        self.assertTrue(found == expected)
        self.assertEqual(self.overflows, 0)

    @inlineCallbacks
    def test_directAgain(self) -> Generator[Any, Any, None]:
        """After a backlog was drained, chunks go to the kernel at once again."""
        server = yield self.connect()
        size = 32 * MEBIBYTE  # both sides' buffers together grow to 10 where that is usual
        for _ in range(3):
            self.say(server, bytes(size))
            self.assertGreater(server.outbox.waiting, 0)
            yield self.read(lambda got: len(got) >= size)
            while server.transport.producer is not None:
                yield deferLater(reactor, 0)
            self.say(server, b"now")
            self.assertEqual(self.reader.recv(100), b"now")

    @inlineCallbacks
    def test_backlogIsNotCopied(self) -> Generator[Any, Any, None]:
        """A backlog is passed to the kernel without the transport's buffer."""
        server = yield self.connect()
        written: list[bytes] = []
        self.patch(server.transport, "write", written.append)
        self.say(server, bytes(32 * MEBIBYTE))
        yield self.read(lambda got: len(got) >= 32 * MEBIBYTE)
        self.assertEqual(written, [])

    @inlineCallbacks
    def test_refusedByTheSystem(self) -> Generator[Any, Any, None]:
        """Output that a UNIX socket refuses, because its peer has ended reading, ends the connection."""
        factory = self.factory()
        ours, self.reader = socket.socketpair()
        self.addCleanup(self.reader.close)
        descriptors: Any = reactor
        with ours:
            descriptors.adoptStreamConnection(ours.fileno(), socket.AF_UNIX, factory)
        server = yield factory.made
        self.reader.shutdown(socket.SHUT_RD)
        self.say(server, b"refused")
        yield server.lost

    @inlineCallbacks
    def test_closeSendsEverything(self) -> Generator[Any, Any, None]:
        """A close behind a backlog ends the connection when all of it was sent."""
        server = yield self.connect()
        self.say(server, b"a" * (5 * MEBIBYTE))
        self.say(server, b"b" * MEBIBYTE, b"c")
        server.outbox.take(b"d")
        server.outbox.close()
        found = yield self.read()
        self.assertTrue(found == b"a" * (5 * MEBIBYTE) + b"b" * MEBIBYTE + b"cd")
        yield server.lost

    @inlineCallbacks
    def test_closeAtOnce(self) -> Generator[Any, Any, None]:
        """A close behind little ends it at once."""
        server = yield self.connect()
        server.outbox.take(b"bye")
        server.outbox.close()
        found = yield self.read()
        self.assertEqual(found, b"bye")
        yield server.lost

    @inlineCallbacks
    def test_abortDrops(self) -> Generator[Any, Any, None]:
        """An abort drops what waits."""
        server = yield self.connect()
        self.say(server, bytes(64 * MEBIBYTE))
        server.outbox.abort()
        yield server.lost
        self.say(server, b"late")
        found = 0
        try:
            while piece := self.reader.recv(1 << 20):
                found += len(piece)
        except ConnectionResetError:
            pass
        self.assertLess(found, 64 * MEBIBYTE)

    @inlineCallbacks
    def test_readerLeaves(self) -> Generator[Any, Any, None]:
        """A reader that goes away in the midst of a backlog ends the connection; nothing is raised afterwards."""
        server = yield self.connect()
        self.say(server, bytes(16 * MEBIBYTE))
        self.reader.close()
        yield server.lost
        self.say(server, b"late")
        server.outbox.close()
        server.outbox.abort()
        self.assertEqual(server.outbox.waiting, 0)

    @inlineCallbacks
    def test_readerLeftBefore(self) -> Generator[Any, Any, None]:
        """A write to a reader that is gone ends the connection in its own time, without an error here."""
        server = yield self.connect()
        self.reader.close()
        for _ in range(20):
            self.say(server, bytes(100_000))
        yield server.lost

    @inlineCallbacks
    def test_slowReader(self) -> Generator[Any, Any, None]:
        """A reader that does not read goes over its budget."""
        server = yield self.connect(4 * MEBIBYTE)
        said = 0
        while not self.overflows:
            self.say(server, bytes(MEBIBYTE))
            said += MEBIBYTE
            self.assertLess(said, 64 * MEBIBYTE)
            yield deferLater(reactor, 0)
        self.assertGreater(server.outbox.waiting, 2 * MEBIBYTE)
        server.outbox.abort()
        yield server.lost

    @inlineCallbacks
    def test_readingReader(self) -> Generator[Any, Any, None]:
        """A reader that reads never does, though it gets many times its budget."""
        server = yield self.connect(4 * MEBIBYTE)
        for number in range(40):
            self.say(server, bytes((number,)) * MEBIBYTE)
            found = yield self.read(lambda got: len(got) >= MEBIBYTE)
            self.assertTrue(found == bytes((number,)) * MEBIBYTE)
        self.assertEqual(self.overflows, 0)

    @inlineCallbacks
    def test_views(self) -> Generator[Any, Any, None]:
        """Large views and what stands between them come in their order, also those that the kernel takes in part."""
        server = yield self.connect()
        whole = b"".join(number.to_bytes(4, "big") for number in range(3 * MEBIBYTE))
        pieces: list[bytes | memoryview] = [
            memoryview(whole)[:MEBIBYTE],
            b"between",
            memoryview(whole)[MEBIBYTE:],
            b"end",
        ]
        for piece in pieces:
            server.outbox.take(piece)
        self.turn.flush()
        found = yield self.read(lambda got: len(got) >= len(whole) + 10)
        self.assertTrue(found == b"".join(pieces))
        while server.outbox.waiting:
            yield deferLater(reactor, 0)
        self.say(server, b"later")
        found = yield self.read(lambda got: len(got) >= 5)
        self.assertEqual(found, b"later")
        self.assertEqual(server.outbox.traffic.bytesOut, len(whole) + 15)
