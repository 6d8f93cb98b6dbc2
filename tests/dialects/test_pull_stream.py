"""Peers that ask for more than they read, in the dialects that send only what was asked for."""

from itertools import count, product
from typing import Any

from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.blipmq import session as blipmq
from fleximq.dialects.connection.read_pauses import ReadPause
from fleximq.dialects.minimq import MiniFactory
from fleximq.dialects.pull_stream import (
    CHUNK_BYTES,
    READ_TIMEOUT,
    TRANSITIONS,
    PullEvent,
    PullState,
    PullStreamProtocol,
)
from fleximq.dialects.stream import READ_SECONDS
from fleximq.limits import Limits
from tests.dialects.blipmq.case import ack, auth, hello, ping, poll, pong, publish, subscribe
from tests.dialects.conversations import ConversationCase, Peer, makeContext

#: The next state for each event; "-" where the event cannot occur.
TABLE = """
                 CHECK    COMMIT_PENDING  OUTBOX_FULL     LOAD    QUEUE_EMPTY      TURN_OVER     RESUME CONTINUE
READY            CHECKING AWAITING_COMMIT AWAITING_READER LOADING AWAITING_MESSAGE AWAITING_TURN -      READY
CHECKING         -        -               -               -       -                -             READY  -
AWAITING_COMMIT  -        -               AWAITING_READER LOADING AWAITING_MESSAGE -             -      READY
AWAITING_READER  -        -               -               -       -                -             READY  AWAITING_READER
LOADING          -        -               -               -       -                -             READY  LOADING
AWAITING_MESSAGE -        -               -               -       -                -             -      READY
AWAITING_TURN    -        -               -               -       -                -             READY  AWAITING_TURN
"""


class PullTransitionTests(SynchronousTestCase):
    """The table of transitions."""

    def test_everyPair(self) -> None:
        """Each state and event has the listed next state, and unlisted pairs have none."""
        events, *rows = [line.split() for line in TABLE.strip().splitlines()]
        expected = {(row[0], event): next for row in rows for event, next in zip(events, row[1:], strict=True)}
        for state, event in product(PullState, PullEvent):
            found = TRANSITIONS[state, event].name if (state, event) in TRANSITIONS else "-"
            self.assertEqual(found, expected.pop((state.name, event.name)), (state, event))
        self.assertEqual(expected, {})


class UnreadTests(ConversationCase):
    """A peer whose transport takes nothing more."""

    def assertPatience(self, factory: Factory[Any], greeting: bytes, question: bytes, answer: bytes) -> None:
        """Questions are answered up to the limit, then left unread, and no answer is lost."""
        peer = Peer(factory)
        peer.ask(greeting)
        peer.producer.pauseProducing()
        peer.say(question)
        self.assertFalse(peer.paused)
        while not peer.paused:
            peer.say(question)
        self.assertFalse(peer.closed)
        self.assertEqual(peer.heard(), b"")
        peer.producer.resumeProducing()
        self.assertFalse(peer.paused)
        answers = peer.heard()
        self.assertEqual(answers, answer * (len(answers) // len(answer)))
        self.assertTrue(answers)

    def context(self) -> Any:
        """Return a context in which a connection may leave 1,000 bytes more unread than the transport holds."""
        return makeContext(Clock(), limits=Limits(outboxBytes=1000))

    def test_blipmq(self) -> None:
        """BlipMQ does not disconnect it."""
        self.assertPatience(BlipFactory(self.context()), hello() + auth(), ping(5), pong(5))

    def test_minimq(self) -> None:
        """Nor does MiniMQ."""
        self.assertPatience(MiniFactory(self.context()), b"PING:\n", b"PING:\n", b"PONG:\n")

    def test_leaves(self) -> None:
        """Such a peer may go."""
        peer = Peer(MiniFactory(self.context()))
        peer.say(b"PING:\n").producer.pauseProducing()
        while not peer.paused:
            peer.say(b"PING:\n")
        peer.leave()
        self.assertEqual(peer.protocol.outbox.waiting, 0)


class CutOffTests(ConversationCase):
    """A peer with unread answers has some time."""

    def setUp(self) -> None:
        """Have somebody not read."""
        super().setUp()
        self.context = makeContext(self.clock, limits=Limits(outboxBytes=1000))
        self.peer = Peer(MiniFactory(self.context))
        self.peer.say(b"PING:\n").producer.pauseProducing()
        while not self.peer.paused:
            self.peer.say(b"PING:\n" * 100)

    def test_takesNothing(self) -> None:
        """One that takes nothing all the time is cut off, and counted."""
        self.clock.advance(READ_TIMEOUT - 1)
        self.assertFalse(self.peer.closed)
        self.clock.advance(1)
        self.assertTrue(self.peer.closed)
        self.peer.leave()
        self.assertEqual(self.context.broker.counts.events["left: slow consumer"], 1)

    def test_takesSomething(self) -> None:
        """One that takes something has the time once more."""
        self.clock.advance(READ_TIMEOUT - 1)
        self.peer.protocol.outbox.waiting -= 1
        self.clock.advance(1)
        self.clock.advance(READ_TIMEOUT - 1)
        self.assertFalse(self.peer.closed)
        self.clock.advance(1)
        self.assertTrue(self.peer.closed)

    def test_takesAll(self) -> None:
        """One that takes all is waited for no longer."""
        self.peer.producer.resumeProducing()
        self.clock.advance(2 * READ_TIMEOUT)
        self.assertFalse(self.peer.closed)

    def test_leaves(self) -> None:
        """Nor is one that has gone."""
        self.peer.leave()
        self.context.broker.deadlines.stop()  # those of the session
        self.assertEqual(self.clock.getDelayedCalls(), [])


class PortionsTests(ConversationCase):
    """A peer that asks for more than may wait for it, in one read."""

    #: Bytes of a message; so many of them fit, so many there are.
    size, fit, there = CHUNK_BYTES // 4, 8, 20

    def setUp(self) -> None:
        """Open the listeners."""
        super().setUp()
        self.context = makeContext(self.clock, limits=Limits(outboxBytes=self.size * self.fit))

    def assertPortions(self, peer: Peer, question: bytes) -> bytes:
        """What is asked while nothing is read is answered as far as there is room, and the rest later."""
        broker, outbox = self.context.broker, peer.protocol.outbox
        peer.heard()
        peer.producer.pauseProducing()
        peer.say(question)
        self.assertTrue(peer.paused)
        self.assertTrue(
            self.size * self.fit <= outbox.waiting <= self.size * self.fit + 2 * CHUNK_BYTES, outbox.waiting
        )
        queue: Any = next(iter(broker.queues or broker.polledSubscriptions))
        self.assertGreater(queue.depth, 0)
        return self.read(peer)

    def read(self, peer: Peer) -> bytes:
        """Take all that waits for a peer, and all that comes then."""
        self.assertIs(peer.protocol.session.pullState, PullState.AWAITING_READER)
        peer.producer.resumeProducing()
        said = peer.heard()
        self.assertFalse(peer.closed)
        self.clock.advance(0)
        self.clock.advance(0)
        self.assertIs(peer.protocol.session.pullState, PullState.READY)
        return said + peer.heard()

    def test_minimq(self) -> None:
        """CONSUMEs: every one is answered once, in order, those behind the last message by NO_MSG, then the PING."""
        content = "x" * self.size
        peer = Peer(MiniFactory(self.context))
        for number in range(self.there):
            peer.say(f"PRODUCE:{number}:::t:::{content}\n".encode())
        said = self.assertPortions(peer, b"CONSUME:t\n" * (self.there + 2) + b"PING:\n")
        lines = [line.split(b":")[0].decode() for line in said.split(b"\n")]
        self.assertEqual(lines, [*map(str, range(self.there)), "NO_MSG", "NO_MSG", "PONG", ""])

    def test_minimqSingly(self) -> None:
        """CONSUMEs that may have to wait are asked one by one."""
        self.context = makeContext(self.clock, limits=self.context.settings.limits, consumeWait=1.0)
        content = "x" * self.size
        peer = Peer(MiniFactory(self.context))
        for number in range(self.there):
            peer.say(f"PRODUCE:{number}:::t:::{content}\n".encode())
        said = self.assertPortions(peer, b"CONSUME:t\n" * self.there + b"PING:\n")
        lines = [line.split(b":")[0].decode() for line in said.split(b"\n")]
        self.assertEqual(lines, [*map(str, range(self.there)), "PONG", ""])

    def blip(self, qos: int) -> Peer:
        """Return somebody who has subscribed to what there is now."""
        peer = Peer(BlipFactory(self.context))
        peer.say(hello() + auth() + subscribe("t", qos))
        for number in range(self.there):
            peer.say(publish("t", b"%02d" % number + bytes(self.size), qos))
        return peer

    def test_blipmq(self) -> None:
        """POLLs, of either QoS: the same."""
        for qos in (0, 1):
            self.context = makeContext(self.clock, limits=self.context.settings.limits)
            peer = self.blip(qos)
            said = self.assertPortions(peer, b"".join(poll(1, 50 + each) for each in range(self.there + 1)) + ping(9))
            due = [
                publish("t", b"%02d" % each + bytes(self.size), qos, each + 1 if qos else each + 50)
                for each in range(self.there)
            ]
            self.assertEqual(said, b"".join(due) + pong(9))

    def test_blipmqBetween(self) -> None:
        """What stands between POLLs is done in its turn."""
        peer = self.blip(0)
        said = self.assertPortions(peer, b"".join(poll(1, each) + ping(each) for each in range(self.there)))
        due = [publish("t", b"%02d" % each + bytes(self.size), 0, each) + pong(each) for each in range(self.there)]
        self.assertEqual(said, b"".join(due))

    def test_endOfInput(self) -> None:
        """A peer that says nothing more gets all its answers."""
        peer = self.blip(0)
        peer.heard()
        peer.producer.pauseProducing()
        peer.say(poll(1) * self.there).endInput()
        said = self.read(peer)
        self.assertEqual(len(said), self.there * len(publish("t", bytes(self.size + 2))))
        self.assertTrue(peer.closed)

    def test_leaves(self) -> None:
        """A peer may leave in the middle."""
        for peer in (self.blip(0), self.blip(1)):
            peer.producer.pauseProducing()
            peer.say(poll(1) * self.there)
            peer.leave()
            self.clock.advance(0)


class ReasonTests(SynchronousTestCase):
    """More than one reason not to read."""

    def setUp(self) -> None:
        """Connect somebody."""
        self.peer = Peer(MiniFactory(makeContext(Clock())))
        self.protocol: PullStreamProtocol = self.peer.protocol

    def test_all(self) -> None:
        """Reading goes on when every reason was taken back."""
        self.protocol.readPauses.pause(ReadPause.UNREAD)
        self.protocol.readPauses.pause(ReadPause.UNANSWERED)
        self.protocol.readPauses.resume(ReadPause.UNREAD)
        self.assertTrue(self.peer.paused)
        self.protocol.readPauses.resume(ReadPause.UNANSWERED)
        self.assertFalse(self.peer.paused)

    def test_once(self) -> None:
        """A reason given twice is taken back once."""
        self.protocol.readPauses.pause(ReadPause.UNREAD)
        self.protocol.readPauses.pause(ReadPause.UNREAD)
        self.protocol.readPauses.resume(ReadPause.UNREAD)
        self.assertFalse(self.peer.paused)

    def test_needless(self) -> None:
        """Taking back what was not given changes nothing."""
        self.protocol.readPauses.pause(ReadPause.UNREAD)
        self.protocol.readPauses.resume(ReadPause.UNANSWERED)
        self.assertTrue(self.peer.paused)


class SlowClock(Clock):
    """A clock on which each look takes 1 ms."""

    def seconds(self) -> float:
        """Return the time."""
        self.rightNow += 0.001
        return super().seconds()


class TurnTests(ConversationCase):
    """A read whose messages take longer than a turn may."""

    def setUp(self) -> None:
        """Open the listeners."""
        super().setUp()
        self.context = makeContext(SlowClock())

    def assertTurns(self, peer: Peer, question: bytes, answer: bytes, times: int) -> None:
        """Part of it is answered at once, and the rest in order in later turns, even if the input ends."""
        peer.heard()
        peer.say(question * times)
        self.assertIs(peer.protocol.session.pullState, PullState.AWAITING_TURN)
        first = peer.heard()
        self.assertTrue(0 < len(first) < len(answer) * times, len(first))
        peer.protocol.readConnectionLost()
        clock: Any = self.context.clock
        for _ in range(200):
            clock.advance(0)
        self.assertEqual(first + peer.heard(), answer * times)

    def test_minimq(self) -> None:
        """In MiniMQ."""
        self.assertTurns(Peer(MiniFactory(self.context)), b"PING:\n", b"PONG:\n", 2000)

    def test_blipmq(self) -> None:
        """In BlipMQ."""
        self.assertTurns(Peer(BlipFactory(self.context)).say(hello() + auth()), ping(5), pong(5), 200)

    def test_handshake(self) -> None:
        """The handshake may take more than one turn, too."""
        clock: Any = self.context.clock
        self.patch(clock, "seconds", count(step=2 * READ_SECONDS).__next__)
        peer = Peer(BlipFactory(self.context))
        for question, answer in (hello(), ack(1)), (auth(), ack(2)), (ping(5), pong(5)):
            peer.say(question)
            clock.advance(0)
            self.assertEqual(peer.heard(), answer)

    def test_copies(self) -> None:
        """A run of PUBLISHes is divided if there are many subscriptions."""
        self.patch(blipmq, "COPIES", 10)
        context = makeContext(self.clock)
        peer = Peer(BlipFactory(context)).say(hello() + auth() + subscribe("a") * 4)
        peer.say(publish("a", b"x") * 5)
        self.assertEqual({each.depth for each in context.broker.polledSubscriptions}, {2})
        self.clock.advance(0)
        self.assertEqual({each.depth for each in context.broker.polledSubscriptions}, {5})
        self.assertIs(peer.protocol.session.pullState, PullState.READY)
