"""Consumers whose messages have to be read back from the journal first: they wait, and nothing overtakes."""

from itertools import count
from typing import Any

from fleximq.dialects.minimq import protocol as minimq
from fleximq.dialects.stream import READ_SECONDS
from fleximq.limits import Limits
from tests.dialects.blipmq.case import BlipCase, ack, nack, ping, poll, pong, publish, subscribe
from tests.dialects.conversations import Peer
from tests.dialects.minimq.case import MiniCase
from tests.slow_journal import SlowJournal

#: So little that every second message is only in the journal.
LIMITS = Limits(queueMemory=2 * 4 * 300)
NAMES = [b"m%d" % number for number in range(1, 9)]


class BlipLoadingTests(BlipCase):
    """A POLL is answered when its message was read."""

    def listen(self, **settings: Any) -> None:
        """Open a listener with a journal that reads slowly."""
        self.journal = SlowJournal()
        self.journal.patient = True
        super().listen(journal=self.journal, limits=LIMITS, **settings)

    def begin(self) -> tuple[Peer, int]:
        """Return a peer with a subscription in which the messages wait."""
        peer = self.login()
        id = self.subscribed(peer, "t")
        for name in NAMES:
            peer.say(publish("t", name))
        self.journal.commit()
        return peer, id

    def read(self) -> None:
        """Let the journal give one answer."""
        self.journal.answer()
        self.clock.advance(0)

    def readAll(self) -> None:
        """Let the journal give all it is asked for."""
        while self.journal.asked:
            self.read()

    def deliveries(self, first: int, last: int) -> bytes:
        return b"".join(publish("t", NAMES[tag - 1], 1, correlation=tag) for tag in range(first, last + 1))

    def test_waits(self) -> None:
        peer, id = self.begin()
        self.assertEqual(peer.ask(b"".join(poll(id, tag) for tag in range(100, 108))), self.deliveries(1, 4))
        self.read()
        self.assertEqual(peer.heard(), self.deliveries(5, 8))

    def test_oneByOne(self) -> None:
        peer, id = self.begin()
        said = b""
        for number in range(8):
            said += peer.ask(poll(id, 100 + number))
            while not said.endswith(self.deliveries(number + 1, number + 1)):
                self.read()
                said += peer.heard()
        self.assertEqual(said, self.deliveries(1, 8))

    def test_nothingOvertakes(self) -> None:
        """What comes behind the POLL is answered behind it."""
        peer, id = self.begin()
        peer.ask(b"".join(poll(id, tag) for tag in range(100, 104)))
        self.assertEqual(peer.ask(poll(id, 104) + ping(9) + subscribe("u", 0, 10)), b"")
        self.readAll()
        self.assertEqual(peer.heard(), self.deliveries(5, 5) + pong(9) + ack(10, id + 1))

    def test_notRead(self) -> None:
        """Meanwhile the connection is left alone."""
        peer, id = self.begin()
        peer.ask(b"".join(poll(id, tag) for tag in range(100, 106)))
        self.assertTrue(peer.paused)
        self.readAll()
        self.assertFalse(peer.paused)

    def test_lost(self) -> None:
        """If all that was waited for is lost, there is nothing, and the conversation goes on."""
        peer, id = self.begin()
        peer.ask(b"".join(poll(id, tag) for tag in range(100, 104)))
        peer.say(poll(id, 104) + ping(9))
        self.journal.lose(5, 6, 7, 8)
        self.readAll()
        self.assertEqual(peer.heard(), pong(9))

    def test_gone(self) -> None:
        """Somebody who left while waiting is told nothing, and the messages are the next one's."""
        peer, id = self.begin()
        peer.ask(b"".join(poll(id, tag) for tag in range(100, 106)))
        peer.leave()
        self.readAll()
        other = self.login()
        other.say(b"".join(poll(id, tag) for tag in range(100, 108)))
        self.readAll()
        self.assertEqual(other.heard(), self.deliveries(1, 8))

    def test_inputEnds(self) -> None:
        """Who ends its input still gets what it asked for."""
        peer, id = self.begin()
        peer.ask(b"".join(poll(id, tag) for tag in range(100, 105)))
        peer.endInput()
        self.readAll()
        self.assertEqual((peer.heard(), peer.closed), (self.deliveries(5, 5), True))


class BlipSubscribingTests(BlipCase):
    """The id of a subscription that lasts is given when it is on disk."""

    def setUp(self) -> None:
        super().setUp()
        self.journal = SlowJournal()
        self.listen(journal=self.journal)
        self.me = self.login()
        self.login().say(publish("u", b"x"))

    def test_waits(self) -> None:
        self.assertEqual(self.me.ask(subscribe("t", 1, 7)), b"")
        self.journal.commit()
        self.context.turn.flush()
        self.assertEqual(self.me.heard(), ack(7, 1))

    def test_quality0(self) -> None:
        self.assertEqual(self.me.ask(subscribe("t", 0, 7)), ack(7, 1))

    def test_refusedAtOnce(self) -> None:
        self.journal.readOnly = "disk full"
        self.assertEqual(self.me.ask(subscribe("t", 1, 7)), nack(7, 500, "the subscription cannot be kept: disk full"))

    def test_refusedLater(self) -> None:
        self.me.say(subscribe("t", 1, 7))
        self.journal.readOnly = "disk full"
        self.journal.commit("disk full")
        self.context.turn.flush()
        self.assertIn(nack(7, 500, "durable publish failed: disk full"), self.me.heard())


class MiniLoadingTests(MiniCase):
    """A CONSUME is answered when its message was read, never by NO_MSG."""

    def listen(self, **settings: Any) -> None:
        """Open a listener with a journal that reads slowly."""
        self.journal = SlowJournal()
        self.journal.patient = True
        super().listen(journal=self.journal, limits=LIMITS, **settings)

    def begin(self) -> Peer:
        """Return a peer; the messages wait in the queue of ``t``."""
        peer = self.peer()
        for name in NAMES:
            peer.say(b"PRODUCE:%b:::t:::x::::::\n" % name)
        self.journal.commit()
        self.context.turn.flush()
        peer.heard()
        return peer

    def readAll(self) -> None:
        """Let the journal give all it is asked for."""
        self.clock.advance(0)
        while self.journal.asked:
            self.journal.answer()
            self.clock.advance(0)

    def lines(self, first: int, last: int) -> bytes:
        return b"".join(b"%b:::t:::x::::::\n" % name for name in NAMES[first - 1 : last])

    def test_waits(self) -> None:
        peer = self.begin()
        self.assertEqual(peer.ask(b"CONSUME:t\n" * 9), self.lines(1, 4))
        self.readAll()
        self.assertEqual(peer.heard(), self.lines(5, 8) + b"NO_MSG\n")

    def test_oneByOne(self) -> None:
        peer = self.begin()
        said = b""
        for _ in range(9):
            peer.say(b"CONSUME:t\n")
            self.readAll()
            said += peer.heard()
        self.assertEqual(said, self.lines(1, 8) + b"NO_MSG\n")

    def test_nothingOvertakes(self) -> None:
        peer = self.begin()
        peer.ask(b"CONSUME:t\n" * 4)
        self.assertEqual(peer.ask(b"CONSUME:t\nPING:\nCONSUME:t\nCONSUME:u\nHELP\n"), b"")
        self.readAll()
        said = peer.heard()
        self.assertTrue(said.startswith(self.lines(5, 5) + b"PONG:\n" + self.lines(6, 6) + b"NO_MSG\nERROR:400"))

    def test_longRead(self) -> None:
        """Also when other connections have their turn before the rest of the lines."""
        peer = self.begin()
        protocol = peer.protocol
        self.patch(protocol, "_seconds", count(step=2 * READ_SECONDS).__next__)
        self.patch(minimq, "LINES", 3)
        peer.say(b"CONSUME:t\n" * 9 + b"PING:\n")
        for _ in range(12):
            self.readAll()
        self.assertEqual(peer.heard(), self.lines(1, 8) + b"NO_MSG\nPONG:\n")

    def test_waitingConsumers(self) -> None:
        """Whoever may wait for a message waits for this one first."""
        self.listen(consumeWait=5.0)
        peer = self.begin()
        self.assertEqual(peer.ask(b"CONSUME:t\n" * 4), self.lines(1, 4))
        peer.say(b"CONSUME:t\n" * 5)
        for _ in range(12):
            self.readAll()
        self.assertEqual(peer.heard(), self.lines(5, 8))
        self.clock.advance(5)
        self.assertEqual(peer.heard(), b"NO_MSG\n")

    def test_inputEnds(self) -> None:
        peer = self.begin()
        peer.ask(b"CONSUME:t\n" * 5)
        peer.endInput()
        self.readAll()
        self.assertEqual((peer.heard(), peer.closed), (self.lines(5, 5), True))

    def test_gone(self) -> None:
        peer = self.begin()
        peer.ask(b"CONSUME:t\n" * 5)
        peer.leave()
        self.readAll()
        other = self.peer()
        other.say(b"CONSUME:t\n" * 4)
        self.readAll()
        self.assertEqual(other.heard(), self.lines(5, 8))

    def test_lost(self) -> None:
        peer = self.begin()
        peer.ask(b"CONSUME:t\n" * 5)
        self.journal.lose(5, 6, 7, 8)
        self.readAll()
        self.assertEqual(peer.heard(), b"NO_MSG\n")
