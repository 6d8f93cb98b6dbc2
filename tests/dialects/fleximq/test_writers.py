"""The writers of FlexiMQ: the form of a client's output, and how often a message is converted."""

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from fleximq.compiled import choice
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.fleximq import writers
from fleximq.dialects.fleximq.writers import AnyWriter, ArrayWriter, HeldMessages, LayoutBWriter, Writer
from fleximq.dialects.outbox import Outbox
from fleximq.wire.fleximq_header import MessageType
from tests.wire.flexi_frames import frame
from tests.wire.flexi_variants import LAYOUT_B, MAPS, POSITIONAL, inLayoutB

PUBLICATION = frame("PUB", 1000, {"topic": "t"}, b"\x01")
REPLY = frame("REP", 1000, {"status": 404}, b"\x01")


class WriterCase(SynchronousTestCase):
    """An outbox on a string."""

    def setUp(self) -> None:
        """Begin with nothing sent, and count conversions to layout B."""
        self.clock = Clock()
        self.transport = StringTransport()
        self.outbox = Outbox(self.transport, WriteTurn(self.clock), 1 << 20, lambda: None)
        self.conversions = 0
        convert = choice.toLayoutB

        def counted(frames: bytes) -> bytes:
            self.conversions += 1
            return bytes(convert(frames))

        self.patch(choice, "toLayoutB", counted)

    def sent(self) -> bytes:
        """Return the output since the last call."""
        self.clock.advance(0)
        value: bytes = self.transport.value()
        self.transport.clear()
        return value


class FormTests(WriterCase):
    """One message in each form."""

    def test_writerSendsTheBytesItIsGiven(self) -> None:
        """The document's form is not touched."""
        writer = Writer(self.outbox)
        for send in (writer.deliver, writer.replay, writer.forward, writer.receiveBroadcast):
            send(PUBLICATION)
            self.assertEqual(self.sent(), PUBLICATION)

    def test_layoutBWriterConvertsAllOutput(self) -> None:
        """Messages of others as well as the broker's."""
        writer = LayoutBWriter(Writer(self.outbox))
        for send in (writer.deliver, writer.replay, writer.forward, writer.receiveBroadcast):
            send(REPLY)
            self.assertEqual(self.sent(), inLayoutB(REPLY))
        [heard] = LAYOUT_B.cut(writer.encoded(MessageType.REP, {"status": 404}))
        self.assertEqual(heard.header, {"status": 404})

    def test_arrayWriterNamesStatusesButNotThoseOfPublications(self) -> None:
        """In the layout of the writer that it is given."""
        for inner, variant in ((Writer(self.outbox), MAPS), (LayoutBWriter(Writer(self.outbox)), LAYOUT_B)):
            writer = ArrayWriter(inner)
            writer.forward(REPLY)
            writer.receiveBroadcast(REPLY)
            self.assertEqual([each.header for each in variant.cut(self.sent())], [{"status": "NotFound"}] * 2)
            writer.deliver(REPLY)
            self.assertEqual([each.header for each in variant.cut(self.sent())], [{"status": 404}])
            [heard] = variant.cut(writer.encoded(MessageType.REP, {"status": 404}))
            self.assertEqual(heard.header, {"status": POSITIONAL.status(404)})

    def test_largeValueIsAChunkOfItsOwnInTheDocumentsForm(self) -> None:
        """In layout B the same bytes are one chunk, as the payload's length precedes the header."""
        value = {"rows": memoryview(bytes(1 << 17))}
        writers: list[tuple[AnyWriter, int]] = [(Writer(self.outbox), 2), (LayoutBWriter(Writer(self.outbox)), 1)]
        whole = []
        for writer, chunks in writers:
            reply = writer.reply({"status": 200}, value)
            self.assertEqual(len(reply), chunks)
            whole.append(b"".join(reply))
        self.assertEqual(inLayoutB(whole[0]), whole[1])


class ConversionTests(WriterCase):
    """A message to many clients with layout B."""

    def test_aChunkIsConvertedOnceForAllItsReceivers(self) -> None:
        """The next chunk is converted again, also if its bytes are equal."""
        receivers = [LayoutBWriter(Writer(self.outbox)) for _ in range(3)]
        for count, chunk in enumerate((PUBLICATION, bytes(bytearray(PUBLICATION))), 1):
            for receiver in receivers:
                receiver.deliver(chunk)
            self.assertEqual(self.conversions, count)
        self.assertEqual(self.sent(), inLayoutB(PUBLICATION) * 6)

    def test_framesReceivedInLayoutBAreSentOnWithoutConversion(self) -> None:
        """Those of a read, up to the first frame that is cut."""
        run = inLayoutB(PUBLICATION) * 3
        frames = writers.fromLayoutB(run + run[:40], 1 << 20)
        self.assertEqual(frames, PUBLICATION * 3)
        LayoutBWriter(Writer(self.outbox)).deliver(frames, 3)
        self.assertEqual((self.sent(), self.conversions), (run, 0))


class HeldTests(WriterCase):
    """Messages for a client whose name is not known everywhere yet."""

    def test_heldMessagesAreSentInOrderOnRelease(self) -> None:
        """None before it."""
        held = HeldMessages(Writer(self.outbox))
        held.forward(b"a")
        held.receiveBroadcast(b"b")
        held.forward(b"c")
        self.assertEqual(self.sent(), b"")
        held.release()
        self.assertEqual(self.sent(), b"abc")
