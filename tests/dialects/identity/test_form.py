"""Identity publications as a source, and as what subscribers take."""

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.presence import OwnMessages
from fleximq.broker.topics.topic_table import Topic
from fleximq.dialects.identity.form import IDENTITY_FORM, IdentitySource
from fleximq.interfaces import IForm, ISource
from fleximq.values.message import Content, Message
from fleximq.values.records import runOf
from tests.dialects.websocket_peer import TEXT, Frame, decode

SENDER = ConnectedClient(1000, "identity", "user-1234abcd")


class SourceTests(SynchronousTestCase):
    """The bodies of Identity runs."""

    def setUp(self) -> None:
        """Publish to news."""
        self.source = IdentitySource("news", SENDER.name)

    def test_interface(self) -> None:
        """It is a source."""
        verifyObject(ISource, self.source)

    def test_messages(self) -> None:
        """Its messages are texts that count as QoS 1."""
        self.assertEqual(
            self.source.messages([b"a", "é".encode()]),
            [Message(b"a", Content.TEXT, 1), Message("é".encode(), Content.TEXT, 1)],
        )

    def test_run(self) -> None:
        """What is kept of them is what would be kept of the messages."""
        body = [b"a", "é".encode()]
        self.assertEqual(self.source.run(body), runOf(self.source.messages(body)))

    def test_pick(self) -> None:
        """Some of them can be taken out."""
        self.assertEqual(self.source.pick([b"a", b"b", b"c"], [0, 2]), [b"a", b"c"])


class FormTests(SynchronousTestCase):
    """What every subscriber is handed."""

    def rendered(self, source: ISource, body: object, count: int, name: str = "news") -> list[Frame]:
        """Return the frames of a run."""
        frames, rest = decode(IDENTITY_FORM.render(Envelope(Topic(name), SENDER, source), body, count))
        self.assertEqual(rest, b"")
        return frames

    def test_interface(self) -> None:
        """It is a form."""
        verifyObject(IForm, IDENTITY_FORM)

    def test_ownRun(self) -> None:
        """A run of this dialect's is a frame for each text."""
        self.assertEqual(
            self.rendered(IdentitySource("news", SENDER.name), [b"a", b"", b"b" * 300], 3),
            [Frame(TEXT, b"MSG:news:user-1234abcd:" + each) for each in (b"a", b"", b"b" * 300)],
        )

    def test_foreignRun(self) -> None:
        """Another dialect's payloads become text."""
        for message, words in (
            (Message(b"\xa2hi", Content.MESSAGEPACK), b"hi"),
            (Message(b"\x81\xa1a\x01", Content.MESSAGEPACK), b'{"a":1}'),
            (Message(b"plain", Content.BYTES), b"plain"),
            (Message(b"\xff\x00", Content.BYTES), b"/wA="),
            (Message(b"text", Content.TEXT), b"text"),
        ):
            self.assertEqual(
                self.rendered(OwnMessages(), message, 1), [Frame(TEXT, b"MSG:news:user-1234abcd:" + words)]
            )
