"""What a MiniMQ client says and hears, without any I/O."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import ConnectionLost, ConsumeFailed, ProduceFailed
from fleximq.client.minimq.conversation import MiniConversation, lineOf
from fleximq.errors import BrokerError
from fleximq.wire.minimq_line import parseCommand
from fleximq.wire.minimq_message import MiniMessage, parseProduce

_FIELD = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


class TalkTests(SynchronousTestCase):
    """One connection."""

    def test_workflow(self) -> None:
        """The examples of the document, section 5, a byte at a time; answers come in the order of the commands."""
        talk = MiniConversation()
        message = MiniMessage("111-aaa", "my-topic", "This is a test message.")
        line, [produced] = talk.produce([message])
        self.assertEqual(line, b"PRODUCE:111-aaa:::my-topic:::This is a test message.::::::\n")
        line, consumed = talk.consume("my-topic")
        self.assertEqual((line, talk.ack("111-aaa")), (b"CONSUME:my-topic\n", b"ACK:111-aaa\n"))
        _, nothing = talk.consume("my-topic")
        line, ponged = talk.ping()
        self.assertEqual(line, b"PING:\n")
        for byte in b"111-aaa\n111-aaa:::my-topic:::This is a test message.::::::\nNO_MSG\nPONG:\r\n":
            talk.received(bytes([byte]))
        self.assertEqual((produced.result(), consumed.result(), nothing.result()), ("111-aaa", message, None))
        self.assertTrue(ponged.done)

    def test_errors(self) -> None:
        """Errors say what they are about, and those behind them are not disturbed."""
        talk = MiniConversation()
        produced, consumed = talk.produce([MiniMessage("i", "t", "c")])[1][0], talk.consume("t")[1]
        _, ponged = talk.ping()
        talk.received(b"ERROR:500:disk: full\nERROR:403:not permitted\nPONG:\n")
        failed = self.assertRaises(ProduceFailed, produced.result)
        self.assertEqual((failed.status, failed.words, failed.path, failed.id), (500, "disk: full", "t", "i"))
        self.assertEqual(self.assertRaises(ConsumeFailed, consumed.result).status, 403)
        self.assertIsNone(ponged.result())

    def test_unwritable(self) -> None:
        """Of several messages of which one cannot be written, none is expected to be answered."""
        talk = MiniConversation()
        several = [MiniMessage("i", "t", "c"), MiniMessage("j", "t", "line\nbreak")]
        self.assertRaises(ValueError, talk.produce, several)
        _, ponged = talk.ping()
        talk.received(b"PONG:\n")
        self.assertIsNone(ponged.result())

    def test_unasked(self) -> None:
        """A line that answers nothing, a PONG that is none, an error without a number, and no UTF-8."""
        self.assertRaises(BrokerError, MiniConversation().received, b"NO_MSG\n")
        for line in (b"HTTP/1.1 400\n", b"ERROR:x:y\n", b"\xff\n"):
            talk = MiniConversation()
            talk.ping()
            self.assertRaises(BrokerError, talk.received, line)

    def test_lost(self) -> None:
        """Whoever waits for an answer is told."""
        talk = MiniConversation()
        _, pending = talk.consume("t")
        talk.lost(ConnectionLost("gone"))
        self.assertRaises(ConnectionLost, pending.result)

    @given(_FIELD, _FIELD, _FIELD, _FIELD, _FIELD)
    def test_line(self, id: str, topic: str, content: str, correlation: str, replyTo: str) -> None:
        """What can be written is read by a broker as it was meant; all else is refused."""
        message = MiniMessage(id, topic, content, correlation, replyTo)
        try:
            line = lineOf(message)
        except ValueError:
            return
        self.assertEqual(line.count(b"\n"), 1)
        self.assertEqual(parseProduce(parseCommand(line[:-1]).payload, str), message)
