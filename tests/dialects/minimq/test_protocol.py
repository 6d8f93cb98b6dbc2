"""MiniMQ conversations: PRODUCE, CONSUME, ACK, PING, what is refused, and the end."""

from itertools import permutations

from twisted.protocols.basic import LineReceiver
from zope.interface.verify import verifyObject

from fleximq.broker.envelope import Envelope
from fleximq.dialects.blipmq.messages import SOURCES
from fleximq.dialects.minimq import MiniFactory
from fleximq.dialects.minimq.messages import SOURCE
from fleximq.interfaces import ISource
from fleximq.limits import Limits
from fleximq.values.message import Content, Message
from fleximq.values.records import Run, runOf
from fleximq.wire.minimq_message import parseProduce
from tests.dialects.admissions import REFUSAL, REFUSING
from tests.dialects.conversations import inPieces, makeContext
from tests.dialects.minimq.case import NEW_IDS, MiniCase
from tests.slow_journal import SlowJournal

T1, T2, T3 = (b"%d:::t:::x::::::\n" % n for n in (1, 2, 3))


class ExampleTests(MiniCase):
    """The conversations of the document, sections 5, 6 and 8."""

    def test_produce(self) -> None:
        """5.1: the id answers a PRODUCE."""
        answer = self.peer().ask(b"PRODUCE:111-aaa:::my-topic:::This is a test message.::::::\n")
        self.assertEqual(answer, b"111-aaa\n")

    def test_consume(self) -> None:
        """5.2 and 5.3: the message, then NO_MSG; an ACK has no answer."""
        peer = self.peer()
        peer.ask(b"PRODUCE:111-aaa:::my-topic:::This is a test message.::::::\n")
        message = b"111-aaa:::my-topic:::This is a test message.::::::\n"
        self.assertEqual(peer.ask(b"CONSUME:my-topic\nCONSUME:my-topic\n"), message + b"NO_MSG\n")
        self.assertEqual(peer.ask(b"ACK:111-aaa\n"), b"")

    def test_asynchronous(self) -> None:
        """6.1: one client produces, another consumes."""
        a, b = self.peer(), self.peer()
        self.assertEqual(a.ask(b"PRODUCE:111-aaa:::logs:::User logged in.::::::\n"), b"111-aaa\n")
        self.assertEqual(b.ask(b"CONSUME:logs\n"), b"111-aaa:::logs:::User logged in.::::::\n")
        self.assertEqual(b.ask(b"CONSUME:logs\n"), b"NO_MSG\n")

    def test_requestReply(self) -> None:
        """6.2: a request with a reply topic, and its reply."""
        client, server = self.peer(), self.peer()
        request = b"222-bbb:::rpc_requests:::hello:::333-ccc:::reply.xyz\n"
        reply = b"444-ddd:::reply.xyz:::HELLO:::333-ccc:::\n"
        self.assertEqual(client.ask(b"PRODUCE:" + request), b"222-bbb\n")
        self.assertEqual(server.ask(b"CONSUME:rpc_requests\n"), request)
        self.assertEqual(server.ask(b"PRODUCE:" + reply), b"444-ddd\n")
        self.assertEqual(client.ask(b"CONSUME:reply.xyz\n"), reply)

    def test_serialization(self) -> None:
        """4: the example of a serialized message comes back as it is."""
        message = (
            b"b3d4a1e2-a8f1-4b2e-9a1c-12345abcdef:::rpc_requests:::hello world:::"
            b"c9e8b7a6-f5d4-4c3b-8a2f-fedcba543210:::reply.temp-topic-123\n"
        )
        peer = self.peer()
        peer.say(b"PRODUCE:" + message)
        peer.heard()
        self.assertEqual(peer.ask(b"CONSUME:rpc_requests\n"), message)

    def test_ping(self) -> None:
        """8: PING is answered by PONG."""
        self.assertEqual(self.peer().ask(b"PING:\n"), b"PONG:\n")


class ContentTests(MiniCase):
    """What a message may be made of."""

    def there(self, line: str, topic: str = "t") -> str:
        """PRODUCE a line and return what CONSUME gives."""
        peer = self.peer()
        peer.say(f"PRODUCE:{line}\n".encode())
        peer.heard()
        return peer.ask(f"CONSUME:{topic}\n".encode()).decode()

    def test_verbatim(self) -> None:
        """The content comes back byte for byte, whatever it holds."""
        for text in ("a:b::c", "a:::b", "你好é", '{"k":"v:1"}', "", "x  ", " ", "NO_MSG", "a:::b:::c:::d"):
            self.assertEqual(self.there(f"i:::t:::{text}::::::"), f"i:::t:::{text}::::::\n")

    def test_padded(self) -> None:
        """Three or four fields come back as five."""
        self.assertEqual(self.there("i:::t:::x"), "i:::t:::x::::::\n")
        self.assertEqual(self.there("i:::t:::x:::c"), "i:::t:::x:::c:::\n")

    def test_legacy(self) -> None:
        """The v1.0 form gets a new id, and comes back with three fields."""
        peer = self.peer()
        self.assertEqual(peer.ask(b"PRODUCE:t:old: style\n"), b"new-1\n")
        self.assertEqual(peer.ask(b"CONSUME:t\n"), b"new-1:::t:::old: style\n")

    def test_legacyIds(self) -> None:
        """Each of them gets an id of its own."""
        answers = "".join(f"{id}\n" for id in NEW_IDS)
        self.assertEqual(self.peer().ask(b"PRODUCE:t:x\n" * 3).decode(), answers)

    def test_ulids(self) -> None:
        """Outside of tests these are ULIDs."""
        peer = self.connect(MiniFactory(self.context))
        self.assertRegex(peer.ask(b"PRODUCE:t:x\n"), rb"^[0-9A-HJKMNP-TV-Z]{26}\n$")

    def test_crlf(self) -> None:
        """Lines may end with CR LF; answers do not."""
        peer = self.peer()
        self.assertEqual(peer.ask(b"PRODUCE:i:::t:::x::::::\r\nCONSUME:t\r\nPING:\r\n"), b"i\ni:::t:::x::::::\nPONG:\n")

    def test_sameIds(self) -> None:
        """Two messages with one id are both kept; an ACK removes the one that is longest in flight."""
        peer = self.peer()
        peer.ask(b"PRODUCE:i:::t:::1\nPRODUCE:i:::t:::2\n")
        self.assertEqual(peer.ask(b"CONSUME:t\nCONSUME:t\n"), b"i:::t:::1::::::\ni:::t:::2::::::\n")
        peer.say(b"ACK:i\n")
        self.clock.advance(30)
        self.assertEqual(peer.ask(b"CONSUME:t\nCONSUME:t\n"), b"i:::t:::2::::::\nNO_MSG\n")


class OrderTests(MiniCase):
    """Many commands at once."""

    def test_produces(self) -> None:
        """500 PRODUCEs are answered in order."""
        answers = self.peer().ask(b"".join(b"PRODUCE:p%d:::t:::%d\n" % (n, n) for n in range(500)))
        self.assertEqual(answers, b"".join(b"p%d\n" % n for n in range(500)))

    def test_everyOrder(self) -> None:
        """Whatever stands beside whatever: the answers come in the order of the commands."""
        said = {
            b"PRODUCE:a:::t:::x\n": b"a\n",
            b"PRODUCE:b:::u:::x\n": b"b\n",
            b"PRODUCE:bad\n": b"ERROR:400:the message is neither id:::topic:::content:::CorrelationID:::ReplyTo"
            b" nor topic:content\n",
            b"CONSUME:empty\n": b"NO_MSG\n",
            b"ACK:nobody\n": b"",
            b"PING:\n": b"PONG:\n",
        }
        for order in permutations(said):
            self.listen()
            self.assertEqual(self.peer().ask(b"".join(order)), b"".join(said[line] for line in order))

    def test_shared(self) -> None:
        """All consumers of a topic share one queue, in order and without duplicates."""
        one, two = self.peer(), self.peer()
        one.ask(b"".join(b"PRODUCE:%d:::t:::x\n" % n for n in range(6)))
        got = b"".join(peer.ask(b"CONSUME:t\n") for _ in range(3) for peer in (one, two))
        self.assertEqual(got, b"".join(b"%d:::t:::x::::::\n" % n for n in range(6)))

    def test_ownMessage(self) -> None:
        """A CONSUME finds what the line before it produced."""
        answers = self.peer().ask(b"PRODUCE:1:::t:::x::::::\nCONSUME:t\n")
        self.assertEqual(answers, b"1\n1:::t:::x::::::\n")


class FlightTests(MiniCase):
    """Between CONSUME and ACK."""

    def setUp(self) -> None:
        """Consume one of two messages."""
        super().setUp()
        self.consumer = self.peer()
        self.consumer.ask(b"PRODUCE:1:::t:::x\nPRODUCE:2:::t:::y\nCONSUME:t\n")

    def test_hidden(self) -> None:
        """A message in flight is not given twice."""
        self.assertEqual(self.peer().ask(b"CONSUME:t\nCONSUME:t\n"), b"2:::t:::y::::::\nNO_MSG\n")

    def test_returns(self) -> None:
        """Without an ACK it returns to the head, in order."""
        self.clock.advance(30)
        self.assertEqual(self.peer().ask(b"CONSUME:t\nCONSUME:t\n"), b"1:::t:::x::::::\n2:::t:::y::::::\n")

    def test_disconnect(self) -> None:
        """A disconnect does not bring it back earlier."""
        self.consumer.leave()
        self.clock.advance(29)
        self.assertEqual(self.peer().ask(b"CONSUME:t\n"), b"2:::t:::y::::::\n")

    def test_ack(self) -> None:
        """An ACK from any connection removes it for good."""
        self.peer().say(b"ACK:1\n")
        self.clock.advance(30)
        self.assertEqual(self.peer().ask(b"CONSUME:t\nCONSUME:t\n"), b"2:::t:::y::::::\nNO_MSG\n")

    def test_silence(self) -> None:
        """No ACK is ever answered, not even one that is no text."""
        said = b"ACK:1\nACK:1\nACK:nobody\nACK:\nACK:\xff\nACK:a:::b\nACK:" + b"x" * 2000 + b"\n"
        self.assertEqual(self.peer().ask(said), b"")

    def test_deadLetter(self) -> None:
        """After its last delivery a message is found at its dead-letter topic."""
        self.listen(maxDeliveries=2)
        peer = self.peer()
        peer.ask(b"PRODUCE:1:::t:::x\n")
        for _ in range(2):
            self.assertEqual(peer.ask(b"CONSUME:t\n"), b"1:::t:::x::::::\n")
            self.clock.advance(30)
        self.assertEqual(peer.ask(b"CONSUME:t\nCONSUME:$dead/t\n"), b"NO_MSG\n1:::$dead/t:::x::::::\n")


class RefusedTests(MiniCase):
    """What is answered by an error."""

    def test_badRequests(self) -> None:
        """Each gets one line of 400, and the connection lives on."""
        peer = self.peer()
        for line in (
            b"FOO:bar", b"hello", b"", b":", b"ping:", b" PING:", b"PRODUCE", b"PRODUCE:", b"PRODUCE:garbage",
            b"PRODUCE:a:::b", b"PRODUCE::::t:::empty id::::::", b"PRODUCE:i::::::no topic::::::",
            b"PRODUCE::no topic", b"PRODUCE:NO_MSG:::t:::x::::::", b"PRODUCE:ERROR:::t:::x::::::",
            b"PRODUCE:ERRORS:::t:::x", b"PRODUCE:u:::t:::\xff\xfe::::::", b"CONSUME", b"CONSUME:", b"CONSUME:\xff",
            b"CONSUME:" + b"x" * 1025, b"PRODUCE:i:::" + b"x" * 1025 + b":::x",
        ):  # fmt: skip
            answer, pong, _ = peer.ask(line + b"\nPING:\n").split(b"\n")
            self.assertRegex(answer, rb"^ERROR:400:[^\n]+$", line)
            self.assertEqual(pong, b"PONG:", line)

    def test_longestTopic(self) -> None:
        """A topic may have 1,024 bytes."""
        topic = b"x" * 1024
        answer = self.peer().ask(b"PRODUCE:i:::" + topic + b":::x\nCONSUME:" + topic + b"\n")
        self.assertEqual(answer, b"i\ni:::" + topic + b":::x::::::\n")

    def test_brokersTopics(self) -> None:
        """Only the broker publishes to ``$sys/`` and ``$dead/``."""
        peer = self.peer()
        for topic in (b"$sys/x", b"$dead/x"):
            answer = peer.ask(b"PRODUCE:i:::" + topic + b":::x\nPRODUCE:" + topic + b":x\nPING:\n")
            self.assertRegex(answer, rb"^(ERROR:403:[^\n]+\n){2}PONG:\n$")

    def test_otherDollars(self) -> None:
        """Other topics with a dollar are free."""
        self.assertEqual(self.peer().ask(b"PRODUCE:i:::$other:::x\n"), b"i\n")

    def test_deadMayBeConsumed(self) -> None:
        """CONSUME of a dead-letter topic is no PRODUCE."""
        self.assertEqual(self.peer().ask(b"CONSUME:$dead/x\n"), b"NO_MSG\n")

    def test_counted(self) -> None:
        """What was refused is counted."""
        self.peer().say(b"FOO:bar\n")
        self.assertEqual(self.context.broker.counts.events["error: 400"], 1)


class LineLimitTests(MiniCase):
    """Lines that are too long."""

    def test_longest(self) -> None:
        """A line of exactly the limit is carried, its end not counted."""
        self.listen(limits=Limits(line=1024))
        line = b"PRODUCE:i:::t:::".ljust(1024, b"x")
        self.assertEqual(self.peer().ask(line + b"\r\n"), b"i\n")

    def test_tooLong(self) -> None:
        """A longer one gets 400 behind the answers to the lines before it, and the connection closes."""
        self.listen(limits=Limits(line=1024))
        peer = self.peer()
        answers = peer.ask(b"PRODUCE:i:::t:::x\nPING:\n" + b"PRODUCE:j:::t:::".ljust(1025, b"x") + b"\nPING:\n")
        self.assertEqual(answers, b"i\nPONG:\nERROR:400:the line is longer than 1024 bytes\n")
        self.assertTrue(peer.closed)

    def test_unended(self) -> None:
        """It is refused before its end arrives."""
        self.listen(limits=Limits(line=1024))
        peer = self.peer()
        self.assertEqual(peer.ask(b"x" * 1024), b"")
        self.assertRegex(peer.ask(b"x"), b"^ERROR:400:")
        self.assertTrue(peer.closed)

    def test_megabyte(self) -> None:
        """A line of 1 MB is nothing special."""
        peer = self.peer()
        line = b"i:::t:::" + b"x" * 1_000_000 + b"::::::\n"
        self.assertTrue(peer.ask(b"PRODUCE:" + line + b"CONSUME:t\n") == b"i\n" + line)


class JoinTests(MiniCase):
    """The way in, and the handshake deadline."""

    def names(self) -> list[str]:
        """Return who is there."""
        return [client.name for client in self.context.broker.clients]

    def test_firstLine(self) -> None:
        """A client joins with its first whole line."""
        peer = self.peer()
        peer.say(b"PING:")
        self.assertEqual(self.names(), [])
        peer.say(b"\n")
        self.assertEqual(self.names(), ["minimq-1000"])

    def test_wrongLine(self) -> None:
        """Even when that line is wrong."""
        self.peer().say(b"nonsense\n")
        self.assertEqual(self.names(), ["minimq-1000"])

    def test_leaves(self) -> None:
        """And leaves with its connection."""
        peer = self.peer()
        peer.say(b"PING:\n").leave()
        self.assertEqual(self.names(), [])

    def test_deadline(self) -> None:
        """Without a whole line the connection ends after the time."""
        self.listen(handshakeTimeout=5.0)
        peer = self.peer()
        peer.say(b"PRODUCE:")
        self.clock.advance(5)
        self.assertTrue(peer.closed)

    def test_patience(self) -> None:
        """With one it may be silent for as long as it likes."""
        peer = self.peer()
        peer.say(b"PING:\n")
        self.clock.advance(3600)
        self.assertFalse(peer.closed)

    def test_refusedPeer(self) -> None:
        """A peer that may not come in gets 403 as the answer to its first line, and the connection closes."""
        self.factory = MiniFactory(makeContext(self.clock, admission=REFUSING))
        peer = self.peer()
        self.assertEqual(peer.ask(b"PING:\nPING:\n"), f"ERROR:403:{REFUSAL}\n".encode())
        self.assertTrue(peer.closed)

    def test_full(self) -> None:
        """A broker with as many clients as it may answers 500 and closes."""
        self.listen(limits=Limits(clients=1))
        self.peer().say(b"PING:\n")
        peer = self.peer()
        self.assertEqual(peer.ask(b"PING:\nPING:\n"), b"ERROR:500:the broker has as many clients as it may\n")
        self.assertTrue(peer.closed)


class RunTests(MiniCase):
    """Neighbouring CONSUMEs of one topic are answered together, and as if they were not."""

    def setUp(self) -> None:
        """Three messages wait, and one elsewhere."""
        super().setUp()
        self.client = self.peer()
        self.client.ask(b"".join(b"PRODUCE:%d:::t:::x\n" % n for n in (1, 2, 3)) + b"PRODUCE:4:::u:::y\n")

    def test_enough(self) -> None:
        """There are as many messages as CONSUMEs."""
        self.assertEqual(self.client.ask(b"CONSUME:t\n" * 3), T1 + T2 + T3)

    def test_tooFew(self) -> None:
        """Those that find nothing are told so, behind those that do."""
        self.assertEqual(self.client.ask(b"CONSUME:t\n" * 5), T1 + T2 + T3 + b"NO_MSG\n" * 2)

    def test_twoTopics(self) -> None:
        """Another topic's CONSUME is answered in its place."""
        answers = self.client.ask(b"CONSUME:t\nCONSUME:t\nCONSUME:u\nCONSUME:t\n")
        self.assertEqual(answers, T1 + T2 + b"4:::u:::y::::::\n" + T3)

    def test_pingBetween(self) -> None:
        """So is a PING between them."""
        self.assertEqual(self.client.ask(b"CONSUME:t\nPING:\nCONSUME:t\n"), T1 + b"PONG:\n" + T2)

    def test_produceBehind(self) -> None:
        """A PRODUCE behind them comes too late for them."""
        answers = self.client.ask(b"CONSUME:t\n" * 4 + b"PRODUCE:5:::t:::x\nCONSUME:t\n")
        self.assertEqual(answers, T1 + T2 + T3 + b"NO_MSG\n5\n5:::t:::x::::::\n")

    def test_acknowledgedBetween(self) -> None:
        """An ACK behind them finds what they brought."""
        self.client.ask(b"CONSUME:t\n" * 3 + b"ACK:1\nACK:3\n")
        self.clock.advance(self.context.settings.redelivery + 1)
        self.assertEqual(self.client.ask(b"CONSUME:t\n" * 2), T2 + b"NO_MSG\n")

    def test_wrongLineBehind(self) -> None:
        """What is wrong behind them is answered behind them."""
        for line in (b"", b"CONSUME:", b"PRODUCE:x", b"CONSUME"):
            answers = self.client.ask(b"CONSUME:t\n" + line + b"\n").split(b"\n")
            self.assertEqual([answer[:9] for answer in answers], [answers[0][:9], b"ERROR:400", b""], line)
            self.assertNotIn(b"ERROR", answers[0])

    def test_tooLongBehind(self) -> None:
        """So is what ends the connection."""
        self.listen(limits=Limits(line=1024))
        peer = self.peer()
        answers = peer.ask(b"CONSUME:t\nCONSUME:t\n" + b"x" * 1025)
        self.assertEqual(answers, b"NO_MSG\nNO_MSG\nERROR:400:the line is longer than 1024 bytes\n")
        self.assertTrue(peer.closed)

    def test_refused(self) -> None:
        """Each is answered by an error where the topic can have no queue."""
        self.listen(limits=Limits(queues=1))
        error = b"ERROR:500:there are 1 queues already\n"
        self.assertEqual(self.peer().ask(b"CONSUME:t\n" + b"CONSUME:u\n" * 2), b"NO_MSG\n" + error * 2)


class FullTests(MiniCase):
    """Queues and subscriptions that are full."""

    def setUp(self) -> None:
        """Allow two messages."""
        super().setUp()
        self.listen(limits=Limits(queueMessages=2))

    def test_consumedQueue(self) -> None:
        """A full queue that was ever consumed answers 500 to what does not fit, and takes what does."""
        peer = self.peer()
        peer.ask(b"CONSUME:t\n")
        answers = peer.ask(b"".join(b"PRODUCE:%d:::t:::x\n" % n for n in range(4)))
        error = b"ERROR:500:durable publish failed: queue is full\n"
        self.assertEqual(answers, b"0\n1\n" + error + error)
        self.assertEqual(peer.ask(b"CONSUME:t\n" * 3), b"0:::t:::x::::::\n1:::t:::x::::::\nNO_MSG\n")

    def test_otherQueue(self) -> None:
        """One that never was drops its oldest."""
        peer = self.peer()
        self.assertEqual(peer.ask(b"".join(b"PRODUCE:%d:::t:::x\n" % n for n in range(4))), b"0\n1\n2\n3\n")
        self.assertEqual(peer.ask(b"CONSUME:t\n" * 3), b"2:::t:::x::::::\n3:::t:::x::::::\nNO_MSG\n")

    def test_subscription(self) -> None:
        """A subscription that loses nothing refuses what it cannot hold; no queue gets that either."""
        broker = self.context.broker
        other = broker.join("other")
        broker.openSubscription(other, None, "t", 1)
        peer = self.peer()
        answers = peer.ask(b"".join(b"PRODUCE:%d:::t:::x\n" % n for n in range(3)))
        self.assertEqual(answers, b"0\n1\nERROR:500:durable publish failed: queue is full\n")

    def test_manyQueues(self) -> None:
        """A topic too many for a queue gets 500, each time."""
        self.listen(limits=Limits(queues=1))
        peer = self.peer()
        error = b"ERROR:500:there are 1 queues already\n"
        answers = peer.ask(b"PRODUCE:1:::a:::x\nPRODUCE:2:::b:::x\nPRODUCE:3:::b:::x\nCONSUME:c\nPING:\n")
        self.assertEqual(answers, b"1\n" + error * 3 + b"PONG:\n")


class OtherDialectsTests(MiniCase):
    """Between MiniMQ and the others."""

    def publish(self, message: Message) -> None:
        """Publish as somebody else, to a topic that has a queue."""
        self.peer().say(b"CONSUME:t\n")
        broker = self.context.broker
        client = broker.join("other")
        broker.publish(Envelope(broker.topicFor(client, "t"), client, SOURCE), [message], 1)

    def test_id(self) -> None:
        """A foreign message has a new id, by which it is acknowledged."""
        self.publish(Message(b"x", Content.BYTES))
        self.assertEqual(self.peer().ask(b"CONSUME:t\n"), b"id-1:::t:::x::::::\n")
        self.peer().say(b"ACK:id-1\n")
        self.clock.advance(30)
        self.assertEqual(self.peer().ask(b"CONSUME:t\n"), b"NO_MSG\n")

    def test_earlyReply(self) -> None:
        """A reply from another dialect waits for its first CONSUME, since a PRODUCE named its topic as ReplyTo."""
        self.peer().say(b"PRODUCE:1:::jobs:::x:::c:::reply\nPRODUCE:2:::jobs:::x:::c:::$sys/x\n")
        broker = self.context.broker
        service = broker.join("other")
        broker.publish(Envelope(broker.topicFor(service, "reply"), service, SOURCE), [Message(b"y", Content.BYTES)], 1)
        self.assertEqual(self.peer().ask(b"CONSUME:reply\n"), b"id-1:::reply:::y::::::\n")
        self.assertIsNone(broker.queues.get("$sys/x"))

    def test_ids(self) -> None:
        """Ids that it brought are kept."""
        self.publish(Message(b"\xa1x", Content.MESSAGEPACK, 1, "m", "c", "r"))
        self.assertEqual(self.peer().ask(b"CONSUME:t\n"), b"m:::t:::x:::c:::r\n")

    def test_lineBreak(self) -> None:
        """A line break cannot break the framing: the content is a JSON string."""
        self.publish(Message(b"two\nlines", Content.BYTES))
        self.assertEqual(self.peer().ask(b"CONSUME:t\n"), b'id-1:::t:::"two\\nlines"::::::\n')

    def published(self, line: bytes) -> Message:
        """PRODUCE a line and return the message that others get."""
        broker = self.context.broker
        other = broker.join("other")
        subscription = broker.openSubscription(other, None, "t", 1)
        self.peer().say(b"PRODUCE:" + line + b"\n")
        return broker.subscription(other, None, subscription.id).poll(other, 1)[1][0]

    def test_fields(self) -> None:
        """Others get text of QoS1 with the three ids."""
        message = self.published("i:::t:::é:::c:::r".encode())
        self.assertEqual(message, Message("é".encode(), Content.TEXT, 1, "i", "c", "r", line=True))

    def test_emptyFields(self) -> None:
        """Empty fields are none."""
        self.assertEqual(self.published(b"i:::t:::x::::::"), Message(b"x", Content.TEXT, 1, "i", line=True))

    def test_durable(self) -> None:
        """A PRODUCE is durable, and its publisher the client."""
        seen: list[Envelope] = []
        self.patch(self.context.broker, "produce", lambda envelope, run, count, decided: seen.append(envelope))
        self.peer().say(b"PRODUCE:i:::t:::x\n")
        self.assertEqual([(each.topic.name, each.publisher.name, each.qos, each.durable) for each in seen],
                         [("t", "minimq-1000", 1, True)])  # fmt: skip

    def test_source(self) -> None:
        """A run is a list of messages, of which some can be picked."""
        one, two = SOURCES[1].messages([b"1", b"2"])
        self.assertTrue(verifyObject(ISource, SOURCE))
        self.assertEqual(SOURCE.messages([one, two]), [one, two])
        self.assertEqual(SOURCE.pick([one, two], [1]), [two])

    def test_kept(self) -> None:
        """A run is kept as its messages are, some or all of them in the older form or with more than an id."""
        new = [parseProduce(f"{id}:::t:::x:::{id}:::", lambda: "").asMessage() for id in ("1", "2")]
        old = parseProduce("t:x", lambda: "3").asMessage()
        for body in ([*new, old], [old, old]):
            run = runOf(body)
            contents = [run.contents] * len(body) if isinstance(run.contents, int) else run.contents
            headers = [run.headers] * len(body) if isinstance(run.headers, bytes) else run.headers
            self.assertEqual(SOURCE.run(body), Run(headers, run.payloads, contents))
        self.assertEqual(SOURCE.run(new), runOf(new))


class SafetyTests(MiniCase):
    """The id as a confirmation."""

    def setUp(self) -> None:
        """Let the journal wait."""
        super().setUp()
        self.journal = SlowJournal()
        self.listen(journal=self.journal)

    def commit(self) -> None:
        """Say that all is safe, and let the reactor turn."""
        self.journal.commit()
        self.clock.pump([0, 0])

    def test_waits(self) -> None:
        """The id comes when the message is safe."""
        peer = self.peer()
        self.assertEqual(peer.ask(b"PRODUCE:1:::t:::x\n"), b"")
        self.commit()
        self.assertEqual(peer.heard(), b"1\n")

    def test_order(self) -> None:
        """Answers behind it wait too."""
        peer = self.peer()
        self.assertEqual(peer.ask(b"PRODUCE:1:::t:::x\nPING:\nFOO:\n"), b"")
        self.commit()
        self.assertEqual(peer.heard(), b"1\nPONG:\nERROR:400:unknown command\n")

    def test_ownMessage(self) -> None:
        """A CONSUME behind it finds the message, though it is not there before it is safe."""
        peer = self.peer()
        self.assertEqual(peer.ask(b"PRODUCE:1:::t:::x\nCONSUME:t\nPING:\n"), b"")
        self.commit()
        self.assertEqual(peer.heard(), b"1\n1:::t:::x::::::\nPONG:\n")

    def test_others(self) -> None:
        """Another connection's CONSUME does not wait for it."""
        self.peer().say(b"PRODUCE:1:::t:::x\n")
        self.assertEqual(self.peer().ask(b"CONSUME:t\n"), b"NO_MSG\n")

    def test_halfClosed(self) -> None:
        """A peer that has ended its input gets all its answers before the connection closes."""
        peer = self.peer()
        peer.say(b"PRODUCE:1:::t:::x\nCONSUME:t\n").endInput()
        self.assertFalse(peer.closed)
        self.commit()
        self.assertEqual(peer.heard(), b"1\n1:::t:::x::::::\n")
        self.assertTrue(peer.closed)

    def test_lost(self) -> None:
        """Nothing is taken for a connection that is lost meanwhile."""
        peer = self.peer()
        peer.say(b"PRODUCE:1:::t:::x\nCONSUME:t\n").leave()
        self.commit()
        self.assertEqual(self.peer().ask(b"CONSUME:t\n"), b"1:::t:::x::::::\n")


class EndTests(MiniCase):
    """How connections end."""

    def test_halfClosed(self) -> None:
        """A peer that ends its input gets its answers, then the connection closes."""
        peer = self.peer()
        peer.say(b"PRODUCE:1:::t:::x::::::\nCONSUME:t\n").endInput()
        self.assertEqual(peer.heard(), b"1\n1:::t:::x::::::\n")
        self.assertTrue(peer.closed)

    def test_unendedLine(self) -> None:
        """A line without its end is none."""
        peer = self.peer()
        peer.say(b"PING:\nPING:").endInput()
        self.assertEqual(peer.heard(), b"PONG:\n")

    def test_internalError(self) -> None:
        """What nobody foresaw is answered by 500, logged, and ends the connection."""
        self.patch(self.context.broker, "consume", _break)
        peer = self.peer()
        self.assertEqual(peer.ask(b"PING:\nCONSUME:t\nPING:\n"), b"PONG:\nERROR:500:internal error\n")
        self.assertTrue(peer.closed)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_lineReceiver(self) -> None:
        """The protocol is a LineReceiver, and a line that comes alone goes through its ``lineReceived``."""
        peer = self.peer()
        self.assertIsInstance(peer.protocol, LineReceiver)
        lines: list[bytes] = []
        self.patch(peer.protocol, "lineReceived", lines.append)
        peer.say(b"PING:\r\n").say(b"CONSUME:t\nrest")
        self.assertEqual(lines, [b"PING:", b"CONSUME:t"])


def _break(*arguments: object) -> None:
    raise ZeroDivisionError


globals().update(inPieces(ExampleTests, RunTests))
