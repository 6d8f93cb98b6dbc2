"""The memory that connections take before they are admitted, in every dialect."""

import struct
import tracemalloc
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogLevel, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.fleximq_ws import FlexiWebSocketFactory
from fleximq.dialects.handshake import MAX_UNAUTHENTICATED_BYTES
from fleximq.dialects.minimq import MiniFactory
from fleximq.dialects.minimq.session import MALFORMED_LINES
from fleximq.dialects.session import OVER_BUDGET
from fleximq.dialects.websocket import protocol
from fleximq.limits import MEBIBYTE
from fleximq.security.credentials import Token
from fleximq.security.principal import Principal
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.unadmitted_budget import FREE_BYTES, UnadmittedBudget
from tests.dialects.admissions import FakeAdmission
from tests.dialects.conversations import Peer, makeContext
from tests.dialects.test_fleximq_ws import FlexiWebSocketPeer
from tests.dialects.websocket.test_inflation import deflated
from tests.dialects.websocket_peer import BINARY, CONTINUATION, DEFLATE, PING, PONG, masked
from tests.log_observer import observeLog
from tests.wire.flexi_frames import frame

SIZE = 10_000
#: A JOIN that announces a payload.
JOIN = frame("JOIN", 0)[:-8] + struct.pack(">Q", 1 << 23)
HELLO = struct.pack(">IBQ", 11, 1, 1) + b"\0\1"


def begun(head: bytes) -> bytes:
    """Return so many bytes of a message that begins like this."""
    return head + bytes(SIZE - len(head))


class BudgetTests(SynchronousTestCase):
    """A budget for one connection that has begun a message, and for half of another."""

    def setUp(self) -> None:
        """Open the listeners."""
        self.listen()

    def listen(self, **settings: Any) -> None:
        """Open them with an empty budget."""
        self.context: ListenerContext = makeContext(Clock(), **settings)
        self.context.unadmitted = self.budget = UnadmittedBudget((SIZE - FREE_BYTES) * 3 // 2)

    def streams(self) -> list[tuple[Any, bytes]]:
        """Return the factory of each dialect, and what begins a message."""
        context = self.context
        return [
            (FlexiFactory(context), begun(JOIN)),
            (BlipFactory(context), HELLO + begun(struct.pack(">IBQ", 1 << 16, 2, 2))),
            (MiniFactory(context), begun(b"PRODUCE:")),
        ]

    def test_overIt(self) -> None:
        """The connection that asks for more is closed, the other is not."""
        for factory, beginning in self.streams():
            one, two = Peer(factory).say(beginning), Peer(factory)
            two.say(beginning)
            self.assertEqual((one.closed, two.closed), (False, True))
            one.leave()
            two.leave()
            self.assertEqual(self.budget.used, 0)

    def test_trickled(self) -> None:
        """It is the same for bytes that arrive one by one."""
        for factory, beginning in self.streams():
            one, two = Peer(factory, piece=1).say(beginning), Peer(factory, piece=1)
            two.say(beginning)
            self.assertEqual((one.closed, two.closed), (False, True))
            one.leave()
            two.leave()

    def test_counted(self) -> None:
        """It is counted."""
        factory = FlexiFactory(self.context)
        Peer(factory).say(begun(JOIN))
        peer = Peer(factory).say(begun(JOIN))
        peer.leave()
        self.assertEqual(self.context.broker.counts.events[CountedEvent(EventFamily.NOT_LET_IN, OVER_BUDGET)], 1)

    def test_admitted(self) -> None:
        """An admitted client charges nothing."""
        joined = Peer(FlexiFactory(self.context)).say(frame("JOIN", 0))
        joined.say(begun(frame("BCAST", 1)[:-8] + struct.pack(">Q", 1 << 20)))
        self.assertEqual((joined.closed, self.budget.used), (False, 0))

    def test_released(self) -> None:
        """The admission releases it."""
        long = frame("JOIN", 0, {"note": "a" * 5000})
        peer = Peer(FlexiFactory(self.context)).say(long[:-1])
        self.assertEqual(self.budget.used, len(long) - 1 - FREE_BYTES)
        peer.say(long[-1:])
        self.assertEqual((peer.closed, self.budget.used), (False, 0))

    def test_checked(self) -> None:
        """Input during a credential check is charged, and released when that is decided."""
        admission = FakeAdmission({None: Principal("alice", scheme="test")}, later=True)
        self.listen(admission=admission)
        one, two = Peer(MiniFactory(self.context)), Peer(MiniFactory(self.context))
        for peer in (one, two):
            peer.say(b"PING:\n")
            peer.say(b"PING:\n" * (SIZE // 6))
        self.assertEqual((one.closed, two.closed), (False, True))
        admission.decide()
        self.assertEqual((one.closed, self.budget.used), (False, 0))

    def test_unreadOutput(self) -> None:
        """Answers that a peer does not read before admission are charged."""
        factory = FlexiWebSocketFactory(self.context)
        peer = FlexiWebSocketPeer(factory).upgrade()
        peer.producer.pauseProducing()
        for _ in range(200):
            peer.say(masked(PING, bytes(125)))
        self.assertTrue(peer.closed)


class ControlTests(SynchronousTestCase):
    """Frames before admission that leave nothing buffered."""

    def test_bound(self) -> None:
        """Control frames and empty fragments count, so that no more than the bound of a handshake is processed."""
        self.patch(protocol, "EARLY_FRAMES", MAX_UNAUTHENTICATED_BYTES)
        factory = FlexiWebSocketFactory(makeContext(Clock(), admission=FakeAdmission({})))
        for begin, repeated in ((b"", masked(PONG)), (masked(BINARY, fin=False), masked(CONTINUATION, fin=False))):
            peer = FlexiWebSocketPeer(factory).upgrade(begin)
            session = peer.protocol.session
            for _ in range(MAX_UNAUTHENTICATED_BYTES // 6000 + 2):
                self.assertEqual(session.reason, "")
                peer.say(repeated * 1000)
                if session.traffic.bytesIn > MAX_UNAUTHENTICATED_BYTES + 6000:
                    break
            self.assertEqual(session.reason, "error 413")
            received = session.traffic.bytesIn
            peer.say(repeated)
            self.assertEqual(session.traffic.bytesIn, received, "input after the refusal is dropped")

    def test_pipelined(self) -> None:
        """Messages after the JOIN do not count, also if they arrive with the request or during the check."""
        for later in (False, True):
            admission = FakeAdmission({Token("good"): Principal("alice", scheme="test")}, later=later)
            factory = FlexiWebSocketFactory(makeContext(Clock(), admission=admission))
            join = frame("JOIN", 0, {"auth": {"type": "token", "token": "good"}})
            peer = FlexiWebSocketPeer(factory).upgrade(masked(BINARY, join) + masked(PONG) * 30_000)
            if later:
                admission.decide()
            peer.say(masked(PONG))
            self.assertEqual((peer.closed, peer.protocol.session.state), (False, ConnectionState.OPEN))


class InflationTests(SynchronousTestCase):
    """Compressed messages before admission."""

    def test_bomb(self) -> None:
        """A message that inflates to 16 MiB takes no more than the bound of a handshake, on each of 15 connections."""
        factory = FlexiWebSocketFactory(makeContext(Clock()))
        said = masked(BINARY, deflated(begun(JOIN) + bytes(16 * MEBIBYTE - SIZE)), rsv=4)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        peers = [FlexiWebSocketPeer(factory).upgrade(Sec_WebSocket_Extensions=DEFLATE) for _ in range(15)]
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for peer in peers:
            peer.say(said[: len(said) // 2])
        self.assertLess(tracemalloc.get_traced_memory()[1] - before, 15 * 2 * MAX_UNAUTHENTICATED_BYTES)

    def test_withTheRequest(self) -> None:
        """It is the same if the message arrives together with the request."""
        factory = FlexiWebSocketFactory(makeContext(Clock()))
        said = masked(BINARY, deflated(JOIN + bytes(16 * MEBIBYTE)), rsv=4)
        peer = FlexiWebSocketPeer(factory).upgrade(said, Sec_WebSocket_Extensions=DEFLATE)
        self.assertLess(peer.protocol.session.buffered, 2 * MAX_UNAUTHENTICATED_BYTES)
        self.assertTrue(peer.closed or peer.protocol.session.reason)

    def test_window(self) -> None:
        """The window of an unfinished message is charged."""
        context = makeContext(Clock())
        peer = FlexiWebSocketPeer(FlexiWebSocketFactory(context)).upgrade(Sec_WebSocket_Extensions=DEFLATE)
        peer.say(masked(BINARY, deflated(b"\x01"), rsv=4, fin=False))
        self.assertGreater(context.unadmitted.used, 1 << 15)
        peer.leave()
        self.assertEqual(context.unadmitted.used, 0)

    def test_joined(self) -> None:
        """A message that begins with a JOIN is inflated whole after it."""
        context = makeContext(Clock())
        peer = FlexiWebSocketPeer(FlexiWebSocketFactory(context)).upgrade(Sec_WebSocket_Extensions=DEFLATE)
        large = frame("BCAST", 1, payload=bytes(MEBIBYTE))[:-1]
        peer.say(masked(BINARY, deflated(frame("JOIN", 0) + large), rsv=4))
        self.assertEqual((peer.protocol.session.buffered, context.unadmitted.used), (len(large), 0))


class LogTests(SynchronousTestCase):
    """Log lines that many connections cause."""

    def lines(self, factory: Any, said: bytes) -> int:
        """Return how many lines above debug a hundred connections in one second cause that say this."""
        lines: list[Any] = []
        observeLog(self, lines.append)
        for _ in range(100):
            Peer(factory).say(said).leave()
        return len([each for each in lines if each["log_level"] > LogLevel.debug])

    def test_refusedWebSockets(self) -> None:
        """A hundred refused requests cause ten lines, of which none quotes more than 200 characters."""
        factory, lines = FlexiWebSocketFactory(makeContext(Clock())), list[Any]()
        observeLog(self, lines.append)
        for _ in range(100):
            FlexiWebSocketPeer(factory).upgrade(path="//[" + "x" * 10_000)
        found = [formatEvent(each) for each in lines if "refusing a WebSocket" in each["log_format"]]
        self.assertEqual((len(found), max(map(len, found)) < 250), (10, True))

    def test_garbage(self) -> None:
        """Garbage causes ten lines, and where it counts as the command of a MiniMQ client, twenty."""
        context = makeContext(Clock())
        self.assertEqual(self.lines(FlexiFactory(context), bytes(100)), 10)
        self.assertEqual(self.lines(MiniFactory(makeContext(Clock())), b"GET\r\n"), 20)

    def test_clients(self) -> None:
        """Clients that are expected to stay are all logged."""
        self.assertEqual(self.lines(FlexiFactory(makeContext(Clock())), frame("JOIN", 0)), 200)


class MalformedTests(SynchronousTestCase):
    """Malformed lines of MiniMQ, which cost more than they have bytes."""

    def test_oneRead(self) -> None:
        """A thousand in one read are answered; one more ends the connection."""
        peer = Peer(MiniFactory(makeContext(Clock())))
        self.assertEqual((peer.ask(b"\n" * MALFORMED_LINES).count(b"\n"), peer.closed), (MALFORMED_LINES, False))
        self.assertEqual(peer.ask(b"\n" * (1 << 16)).count(b"\n"), MALFORMED_LINES + 1)
        self.assertTrue(peer.closed)
