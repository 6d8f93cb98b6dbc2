"""The face of a session on a byte stream, with FlexiMQ as what is spoken."""

import gc
import weakref
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import msgpack
from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.endpoints import TCP4ClientEndpoint, UNIXClientEndpoint, connectProtocol
from twisted.internet.interfaces import IHalfCloseableProtocol, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import Clock, deferLater
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.connection.slow_consumer import Block
from fleximq.dialects.connection.tcp_socket import tuneSocket
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.fleximq.messages import FlexiMessages
from fleximq.dialects.session import LINGER
from fleximq.dialects.stream import READ_FIRST, READ_LEAST, READ_MOST, READ_SECONDS, WRITE_BYTES, fit, tune
from fleximq.errors import BadRequest
from fleximq.limits import Limits
from tests.dialects.conversations import makeContext
from tests.dialects.flexi_peer import FlexiCase
from tests.wire.flexi_frames import Heard, cut, frame

#: Nothing that a client says or hears depends on how fast this machine is.
PATIENT: dict[str, Any] = {"keepalive": 3600.0, "handshakeTimeout": 3600.0}
#: Subscribers of one large output.
SUBSCRIBERS = 24


class StreamTests(FlexiCase):
    """Over a string."""

    def test_interface(self) -> None:
        """The protocol takes part in half-closed connections."""
        verifyObject(IHalfCloseableProtocol, self.server.connect().protocol)

    def test_oneWriteARead(self) -> None:
        """All that one read leads to is written to each connection at once."""
        alice, bob = self.server.join().subscribe("t"), self.server.join().subscribe("t")
        writes: dict[str, list[bytes]] = {"alice": [], "bob": []}
        alice.transport.write = writes["alice"].append
        bob.transport.write = writes["bob"].append
        one, other = (
            frame("PUB", alice.id, {"topic": "t"}, b"\x01"),
            frame("PUB", alice.id, {"topic": "t", "x": 1}, b"\x02"),
        )
        wrong = frame("PUB", alice.id, {"topic": ""})
        alice.say(one * 3 + other + wrong + one + other)
        self.assertEqual([len(each) for each in writes.values()], [1, 1])
        self.assertEqual(writes["bob"], [one * 3 + other + one + other])
        self.assertEqual([each.kind for each in cut(writes["alice"][0])], ["PUB"] * 4 + ["REP"] + ["PUB"] * 2)

    def test_nothingAfterTheEnd(self) -> None:
        """What a closing connection still says is not looked at."""
        alice, bob = self.server.join(), self.server.join().subscribe("t")
        alice.send("PUB", version=9)
        alice.protocol.dataReceived(frame("PUB", alice.id, {"topic": "t"}))
        self.assertEqual(bob.heard(), b"")

    def test_heard(self) -> None:
        """When the peer was last heard is noted."""
        alice = self.server.join()
        self.clock.advance(3)
        alice.say(b"\x01")
        self.assertEqual(alice.protocol.session.receivedAt, 3)

    def test_freed(self) -> None:
        """A connection that ended needs no garbage collector: thousands of short ones would keep it busy."""
        alice = self.server.join()
        freed = [weakref.ref(alice.protocol), weakref.ref(alice.protocol.session)]
        gc.disable()
        self.addCleanup(gc.enable)
        alice.leave()
        del alice
        self.clock.advance(60)
        self.assertEqual([each() for each in freed], [None, None])

    def test_unforeseen(self) -> None:
        """What nobody foresaw is logged, ends this connection, and others hear what was said before."""
        alice, bob = self.server.join(), self.server.join().subscribe("t")
        self.patch(FlexiMessages, "message_BCAST", lambda *arguments: [][1])
        alice.say(frame("PUB", alice.id, {"topic": "t"}, b"\x01") + frame("BCAST", alice.id))
        self.assertEqual(len(self.flushLoggedErrors(IndexError)), 1)
        self.assertEqual((alice.closed, bob.values()), (True, [1]))
        alice.leave()
        self.assertEqual(self.server.counts("left"), {"left: internal error": 1})

    def test_leaves(self) -> None:
        """A connection that is lost leaves the broker, once, and those concerned are told in the same turn."""
        alice, bob = self.server.join().subscribe("$sys/clients/left"), self.server.join()
        alice.request(bob.id, "/p", "R")
        bob.leave()
        self.assertEqual({each.kind for each in alice.messages()}, {"PUB", "REP"})
        bob.protocol.connectionLost(Failure(Exception("again")))
        self.assertEqual(self.server.counts("left"), {"left: connection lost": 1})

    def test_foreignTransport(self) -> None:
        """Transports that cannot be tuned are left alone."""
        tune(StringTransport())

    def test_raisedByTheSession(self) -> None:
        """An error that the session lets through is answered in its dialect."""

        def received(data: bytes) -> None:
            raise BadRequest("so it is")

        alice = self.server.join()
        alice.protocol.receive = received
        [heard] = alice.say(b"x").messages()
        self.assertEqual((heard.status, heard.value, alice.closed), (400, "so it is", False))


class SlowConsumerTests(FlexiCase):
    """Who does not read what it asked for is disconnected; nobody else notices."""

    def setUp(self) -> None:
        """Two subscribers, of which one does not read, and a publisher."""
        super().setUp()
        self.server = self.makeServer(limits=Limits(outboxBytes=10_000))
        self.slow, self.quick, self.busy = (self.server.join() for _ in range(3))
        for peer in (self.slow, self.quick):
            peer.subscribe("t")
        self.slow.producer.pauseProducing()

    def test_disconnected(self) -> None:
        """Over its budget it is aborted, with a counted reason; all others get everything."""
        for number in range(200):
            self.busy.publish("t", bytes(100), number=number)
        self.assertTrue(self.slow.transport.disconnected)
        self.assertEqual(len(self.quick.messages()), 200)
        self.slow.leave()
        self.assertEqual(self.server.counts("left"), {"left: slow consumer": 1})
        self.assertEqual(self.busy.barrier(), [])
        self.busy.publish("t", 1)
        self.assertEqual(self.quick.values(), [1])

    def test_belowTheBudget(self) -> None:
        """Below its budget it gets everything once it reads again."""
        sent = b""
        for number in range(50):
            self.busy.publish("t", bytes(100), number=number)
        sent = self.quick.heard()
        self.assertEqual((self.slow.heard(), self.slow.closed), (b"", False))
        self.slow.producer.resumeProducing()
        self.assertEqual(self.slow.heard(), sent)

    def test_ownAnswersToo(self) -> None:
        """Answers that are not read count as well."""
        while not self.slow.closed:
            self.slow.protocol.dataReceived(frame("PUB", self.slow.id, {"topic": ""}))
        self.slow.leave()
        self.assertEqual(self.server.counts("left"), {"left: slow consumer": 1})

    def test_noMoreThanItsBudget(self) -> None:
        """However much is published, no more is held than the budget and the message that met it."""
        for _ in range(500):
            self.busy.publish("t", bytes(100))
            self.assertLessEqual(self.slow.protocol.outbox.waiting, 10_200)


class LingerTests(FlexiCase):
    """A closing connection has ten seconds to take its last answers."""

    def test_takesThem(self) -> None:
        """Whoever takes them in time gets them, and is then closed."""
        peer = self.server.join()
        peer.producer.pauseProducing()
        peer.send("PUB", version=9)
        self.assertEqual((peer.closed, peer.heard()), (False, b""))
        self.clock.advance(LINGER - 0.1)
        peer.producer.resumeProducing()
        self.assertEqual(([each.status for each in peer.messages()], peer.closed), ([400], True))
        self.assertFalse(peer.transport.disconnected)

    def test_doesNot(self) -> None:
        """Whoever does not is aborted."""
        peer = self.server.join()
        peer.producer.pauseProducing()
        peer.send("PUB", version=9)
        self.clock.advance(LINGER + 0.1)
        self.assertTrue(peer.transport.disconnected)
        peer.leave()
        self.assertEqual(self.server.counts("left"), {"left: error 400": 1})

    def test_peerThatStays(self) -> None:
        """A transport that is closed and does not end is aborted too."""
        peer = self.server.join().send("PUB", version=9)
        self.assertFalse(peer.transport.disconnected)
        self.clock.advance(LINGER + 0.1)
        self.assertTrue(peer.transport.disconnected)
        self.assertIs(peer.protocol.session.state, ConnectionState.ENDING)


class Client(Protocol):
    """A FlexiMQ client on a real connection; ``id`` is its client id once it has joined."""

    transport: ITCPTransport

    def __init__(self) -> None:
        self.id = 0
        self.received = b""
        self.lost: Deferred[None] = Deferred()
        self._wanted: tuple[int, Deferred[bytes]] | None = None

    def dataReceived(self, data: bytes) -> None:
        """Collect, and tell whoever waits for so much."""
        self.received += data
        if self._wanted is not None and len(self.received) >= self._wanted[0]:
            (_, waiter), self._wanted = self._wanted, None
            waiter.callback(self.received)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell."""
        self.lost.callback(None)

    def when(self, size: int) -> "Deferred[bytes]":
        """Fire with what was received, when it is so many bytes."""
        waiter: Deferred[bytes] = Deferred()
        self._wanted = (size, waiter)
        self.dataReceived(b"")
        return waiter


class SocketTests(TestCase):
    """Over real sockets on loopback."""

    def setUp(self) -> None:
        """A broker on the real reactor."""
        self.context = makeContext(reactor, **PATIENT)  # type: ignore[arg-type]
        self.addCleanup(self.context.broker.stop)
        self.clients: list[Client] = []

    @inlineCallbacks
    def tearDown(self) -> Generator[Any, Any, None]:  # type: ignore[override]  # trial waits for the Deferred
        """Close what is open, and wait until the broker has seen it."""
        for client in self.clients:
            client.transport.abortConnection()
            yield client.lost
        while len(self.context.broker.clients):
            yield deferLater(reactor, 0)

    @inlineCallbacks
    def connect(self, unix: bool = False) -> Generator[Any, Any, Client]:
        """Return a new client."""
        if unix:
            path = self.mktemp()[-90:].replace("/", "_")
            port: Any = reactor.listenUNIX(path, FlexiFactory(self.context))  # type: ignore[attr-defined]
            endpoint: Any = UNIXClientEndpoint(reactor, path)
        else:
            factory: Any = FlexiFactory(self.context)
            port = reactor.listenTCP(0, factory, interface="127.0.0.1")
            endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port)
        tuneSocket(port.socket)
        self.addCleanup(port.stopListening)
        client: Client = yield connectProtocol(endpoint, Client())
        self.clients.append(client)
        return client

    @inlineCallbacks
    def join(self, unix: bool = False) -> Generator[Any, Any, Client]:
        """Return a client that has joined, with what it heard taken away."""
        client: Client = yield self.connect(unix)
        client.transport.write(frame("JOIN"))
        [heard] = cut((yield client.when(44)))
        client.id = heard.sender
        client.received = b""
        return client

    @inlineCallbacks
    def test_conversation(self) -> Generator[Any, Any, None]:
        """JOIN, SUB, PUB and PING over TCP and over a UNIX socket."""
        for unix in (False, True):
            client = yield self.join(unix)
            pub = frame("PUB", client.id, {"topic": "t"}, msgpack.packb("x" * 500_000))
            client.transport.write(frame("SUB", client.id, {"topic": "t"}) + pub * 5)
            received = yield client.when(5 * len(pub))
            self.assertTrue(received == pub * 5)

    @inlineCallbacks
    def test_tuned(self) -> Generator[Any, Any, None]:
        """The connection has no delay, and large reads and writes."""
        yield self.join()
        [client] = self.context.broker.clients
        peer: Any = client.peer
        transport = peer.outbox._transport
        self.assertTrue(transport.getTcpNoDelay())
        self.assertTrue(transport.getTcpKeepAlive())
        self.assertEqual((transport.bufferSize, transport.SEND_LIMIT), (READ_FIRST, WRITE_BYTES))

    @inlineCallbacks
    def test_manySubscribers(self) -> Generator[Any, Any, None]:
        """Many subscribers of large output get all of it, each once and in order, also when they read late."""
        subscribers: list[Any] = []
        for _ in range(SUBSCRIBERS):
            client: Client = yield self.join()
            client.transport.write(frame("SUB", client.id, {"topic": "t"}))
            subscribers.append(client)
        publisher: Client = yield self.join()
        while sum(len(client.subscriptions) for client in self.context.broker.clients) < SUBSCRIBERS:
            yield deferLater(reactor, 0)
        subscribers[0].transport.pauseProducing()
        frames = b"".join(
            frame("PUB", publisher.id, {"topic": "t"}, msgpack.packb(bytes([n % 256]) * 10_000)) for n in range(1000)
        )
        publisher.transport.write(frames)
        for each in subscribers[1:]:
            received = yield each.when(len(frames))
            self.assertEqual(received == frames, True)
        subscribers[0].transport.resumeProducing()
        received = yield subscribers[0].when(len(frames))
        self.assertEqual(received == frames, True)

    @inlineCallbacks
    def test_fullReads(self) -> Generator[Any, Any, None]:
        """A full read that is quick doubles the next one, up to the most; one that takes long halves it."""
        yield self.join()
        [client] = self.context.broker.clients
        peer: Any = client.peer
        transport = peer.outbox._transport
        full = tune(transport)
        self.assertEqual(full, transport.bufferSize)
        sizes = [fit(transport, 0.0) for _ in range(6)]
        self.assertEqual(sizes, [*(READ_FIRST << n for n in range(1, 5)), READ_MOST, READ_MOST])
        self.assertEqual(fit(transport, 2 * READ_SECONDS), READ_MOST)
        sizes = [fit(transport, 3 * READ_SECONDS) for _ in range(8)]
        self.assertEqual((sizes[0], sizes[-2:], transport.bufferSize), (READ_MOST // 2, [READ_LEAST] * 2, READ_LEAST))
        self.assertEqual([fit(transport, 0.0, 5000), fit(transport, 0.0, 5000)], [5000, 5000])
        self.assertEqual([tune(transport, 5000), fit(transport, 1.0, 1000)], [5000, 1000])

    @inlineCallbacks
    def test_halfClosed(self) -> Generator[Any, Any, None]:
        """A client that closes its sending side still gets its answers, large ones too, and then the end."""
        client = yield self.join()
        pub = frame("PUB", client.id, {"topic": "t"}, bytes(4 << 20))
        ping = frame("PING", client.id, {"keepalive": {"timestamp": 1}})
        client.transport.write(frame("SUB", client.id, {"topic": "t"}) + pub * 4 + ping)
        client.transport.loseWriteConnection()
        yield client.lost
        heard: list[Heard] = cut(client.received)
        self.assertEqual([each.kind for each in heard], ["PUB"] * 4 + ["PONG"])

    @inlineCallbacks
    def test_tooLarge(self) -> Generator[Any, Any, None]:
        """A length over the limit is answered, then the connection is closed."""
        client = yield self.join()
        client.transport.write(frame("PUB", client.id, bytes(65537))[:26])
        yield client.lost
        self.assertEqual([each.status for each in cut(client.received)], [413])

    @inlineCallbacks
    def meet(self) -> Generator[Any, Any, Any]:
        """Return a subscriber that has stopped reading, one that reads, and somebody to publish to them."""
        slow = yield self.join()
        quick = yield self.join()
        busy = yield self.join()
        for client in (slow, quick):
            client.transport.write(frame("SUB", client.id, {"topic": "t"}))
            client.transport.write(frame("PING", client.id, {"keepalive": {"timestamp": 1}}))
            yield client.when(1)
            client.received = b""
        slow.transport.pauseProducing()
        return slow, quick, busy

    @inlineCallbacks
    def test_slowConsumer(self) -> Generator[Any, Any, None]:
        """A client that stops reading is disconnected when its budget is used up; another gets everything."""
        self.context = makeContext(reactor, limits=Limits(outboxBytes=4 << 20), **PATIENT)  # type: ignore[arg-type]
        self.addCleanup(self.context.broker.stop)
        slow, quick, busy = yield self.meet()
        counts = self.context.broker.counts.events
        pub = frame("PUB", busy.id, {"topic": "t"}, bytes(1 << 20))
        said = 0
        while not counts["left: slow consumer"]:
            self.assertLess(said, 100)
            busy.transport.write(pub)
            said += 1
            yield quick.when(said * len(pub))
        self.assertTrue(quick.received == pub * said)
        self.assertEqual(len(self.context.broker.clients), 2)

    @inlineCallbacks
    def test_blocksForSoLong(self) -> Generator[Any, Any, None]:
        """Under block a publisher waits for one that stops reading, until that is cut off; nobody else loses any."""
        context = makeContext(reactor, limits=Limits(outboxBytes=1 << 20), **PATIENT)  # type: ignore[arg-type]
        self.addCleanup(context.broker.stop)
        clock = Clock()
        self.context = replace(context, policy=Block(clock, longest=1.0))
        slow, quick, busy = yield self.meet()
        publisher: Any = list(context.broker.clients)[-1].peer
        pubs = frame("PUB", busy.id, {"topic": "t"}, bytes(1 << 20)) * 16
        busy.transport.write(pubs)
        while publisher.listening:
            yield deferLater(reactor, 0)
        self.assertLess(len(quick.received), len(pubs))
        clock.advance(1.0)
        received = yield quick.when(len(pubs))
        self.assertTrue(received == pubs)
        self.assertEqual((context.broker.counts.events["left: slow consumer"], publisher.listening), (1, True))
