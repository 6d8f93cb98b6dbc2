"""MiniMQ conversations in which CONSUME waits (``--consume-wait``)."""

from fleximq.broker.envelope import Envelope
from fleximq.dialects.minimq.messages import SOURCE
from fleximq.values.message import Content, Message
from tests.dialects.minimq.case import MiniCase

MESSAGE = b"1:::t:::x::::::\n"


class _WaitCase(MiniCase):
    """One consumer waits for five seconds."""

    def setUp(self) -> None:
        """Let somebody consume what is not there yet."""
        super().setUp()
        self.listen(consumeWait=5.0)
        self.consumer = self.peer()
        self.assertEqual(self.consumer.ask(b"CONSUME:t\n"), b"")

    def produce(self, line: bytes = b"PRODUCE:1:::t:::x\n") -> None:
        """Let somebody else produce, and the reactor turn."""
        self.peer().say(line)
        self.turn()

    def turn(self) -> None:
        """Let the reactor turn."""
        self.clock.pump([0, 0])


class WaitTests(_WaitCase):
    """What ends the wait."""

    def test_message(self) -> None:
        """A message that comes in time is the answer, at once."""
        self.clock.advance(4.9)
        self.produce()
        self.assertEqual(self.consumer.heard(), MESSAGE)

    def test_nothing(self) -> None:
        """NO_MSG comes when the time is over."""
        self.clock.advance(4.9)
        self.assertEqual(self.consumer.heard(), b"")
        self.clock.advance(0.1)
        self.turn()
        self.assertEqual(self.consumer.heard(), b"NO_MSG\n")

    def test_once(self) -> None:
        """After the answer nothing more comes, neither a message nor NO_MSG."""
        self.produce()
        self.consumer.heard()
        self.produce(b"PRODUCE:2:::t:::x\n")
        self.clock.advance(10)
        self.assertEqual(self.consumer.heard(), b"")

    def test_late(self) -> None:
        """A message that comes too late is not taken."""
        self.clock.advance(5)
        self.turn()
        self.consumer.heard()
        self.produce()
        self.assertEqual(self.peer().ask(b"CONSUME:t\n"), MESSAGE)

    def test_foreign(self) -> None:
        """A publication from another dialect ends the wait as well."""
        broker = self.context.broker
        client = broker.join("other")
        broker.publish(Envelope(broker.topicFor(client, "t"), client, SOURCE), [Message(b"x", Content.BYTES)], 1)
        self.turn()
        self.assertEqual(self.consumer.heard(), b"id-1:::t:::x::::::\n")

    def test_redelivery(self) -> None:
        """So does a message that returns."""
        self.produce()
        self.consumer.heard()
        self.clock.advance(28)
        second = self.peer()
        self.assertEqual(second.ask(b"CONSUME:t\n"), b"")
        self.clock.advance(2)
        self.turn()
        self.assertEqual(second.heard(), MESSAGE)

    def test_firstCome(self) -> None:
        """Who waits longest is served first."""
        second = self.peer()
        second.say(b"CONSUME:t\n")
        self.produce()
        self.assertEqual((self.consumer.heard(), second.heard()), (MESSAGE, b""))
        self.produce(b"PRODUCE:2:::t:::x\n")
        self.assertEqual(second.heard(), b"2:::t:::x::::::\n")

    def test_otherTopic(self) -> None:
        """A message to another topic does not end the wait."""
        self.produce(b"PRODUCE:1:::u:::x\n")
        self.assertEqual(self.consumer.heard(), b"")

    def test_availableAtOnce(self) -> None:
        """What is there already is not waited for."""
        self.produce(b"PRODUCE:1:::u:::x\n")
        self.assertEqual(self.peer().ask(b"CONSUME:u\n"), b"1:::u:::x::::::\n")


class BehindTests(_WaitCase):
    """Lines behind a CONSUME that waits."""

    def test_wait(self) -> None:
        """They wait too, and are answered in order."""
        self.assertEqual(self.consumer.ask(b"PING:\nPRODUCE:2:::u:::x\nCONSUME:u\n"), b"")
        self.produce()
        self.assertEqual(self.consumer.heard(), MESSAGE + b"PONG:\n2\n2:::u:::x::::::\n")

    def test_sameRead(self) -> None:
        """Whether they came in the same read or not; what stood before was answered."""
        peer = self.peer()
        self.assertEqual(peer.ask(b"PING:\nPRODUCE:2:::u:::x\nCONSUME:v\nPING:\n"), b"PONG:\n2\n")
        self.produce(b"PRODUCE:1:::v:::x\n")
        self.assertEqual(peer.heard(), b"1:::v:::x::::::\nPONG:\n")

    def test_waitAgain(self) -> None:
        """A second CONSUME behind the first waits for as long, from then on."""
        self.consumer.say(b"CONSUME:t\nPING:\n")
        self.clock.advance(5)
        self.turn()
        self.assertEqual(self.consumer.heard(), b"NO_MSG\n")
        self.clock.advance(4.9)
        self.turn()
        self.assertEqual(self.consumer.heard(), b"")
        self.clock.advance(0.1)
        self.turn()
        self.assertEqual(self.consumer.heard(), b"NO_MSG\nPONG:\n")

    def test_paused(self) -> None:
        """Once lines wait behind, no more is read until the answer."""
        self.assertFalse(self.consumer.paused)
        self.consumer.say(b"PING:\n")
        self.assertTrue(self.consumer.paused)
        self.produce()
        self.assertFalse(self.consumer.paused)

    def test_ownProduce(self) -> None:
        """A PRODUCE behind one's own waiting CONSUME does not serve it: it is not its turn."""
        self.assertEqual(self.consumer.ask(b"PRODUCE:1:::t:::x\nCONSUME:t\n"), b"")
        self.clock.advance(5)
        self.turn()
        self.assertEqual(self.consumer.heard(), b"NO_MSG\n1\n" + MESSAGE)

    def test_chain(self) -> None:
        """A consumer's next lines are worked through after the publication that served it has reached everybody."""
        broker = self.context.broker
        other = broker.join("other")
        subscription = broker.openSubscription(other, None, "t", 1)
        self.consumer.say(b"PRODUCE:2:::t:::second\n")
        self.produce(b"PRODUCE:1:::t:::first\n")
        got = [message.payload for message in broker.subscription(other, None, subscription.id).poll(other, 5)[1]]
        self.assertEqual(got, [b"first", b"second"])


class GivenUpTests(_WaitCase):
    """Consumers that go while they wait."""

    def assertKept(self) -> None:
        """A message that is produced now is there for somebody else."""
        self.produce()
        self.assertEqual(self.peer().ask(b"CONSUME:t\n"), MESSAGE)

    def test_lost(self) -> None:
        """A lost connection takes no message."""
        self.consumer.leave()
        self.assertKept()

    def test_nextInLine(self) -> None:
        """The next who waits is served instead."""
        second = self.peer()
        second.say(b"CONSUME:t\n")
        self.consumer.leave()
        self.produce()
        self.assertEqual(second.heard(), MESSAGE)

    def test_halfClosed(self) -> None:
        """The end of input ends the wait: nobody can tell it from a connection that is closed."""
        self.consumer.endInput()
        self.turn()
        self.assertEqual(self.consumer.heard(), b"NO_MSG\n")
        self.assertTrue(self.consumer.closed)
        self.assertKept()

    def test_linesBehind(self) -> None:
        """Lines behind are answered all the same, and no CONSUME among them waits."""
        self.consumer.say(b"PING:\nCONSUME:u\nPRODUCE:2:::u:::x\n").endInput()
        self.turn()
        self.assertEqual(self.consumer.heard(), b"NO_MSG\nPONG:\nNO_MSG\n2\n")
        self.assertTrue(self.consumer.closed)

    def test_endRightBehindMessage(self) -> None:
        """The end of input may come between the message and the lines behind it."""
        self.consumer.say(b"PING:\n")
        self.peer().say(b"PRODUCE:1:::t:::x\n")
        self.consumer.endInput()
        self.turn()
        self.assertEqual(self.consumer.heard(), MESSAGE + b"PONG:\n")
        self.assertTrue(self.consumer.closed)

    def test_lostRightBehindMessage(self) -> None:
        """A connection lost just then is no trouble; its lines are forgotten."""
        self.consumer.say(b"PRODUCE:2:::u:::x\n")
        self.peer().say(b"PRODUCE:1:::t:::x\n")
        self.consumer.leave()
        self.turn()
        self.assertIsNone(self.context.broker.topics.find("u"))

    def test_timersAreGone(self) -> None:
        """A wait that was given up leaves nothing behind."""
        self.consumer.leave()
        waiting = [call for call in self.clock.getDelayedCalls() if call.getTime() == 5.0]
        self.assertEqual(waiting, [])
