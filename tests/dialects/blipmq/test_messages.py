"""BlipMQ publications and deliveries, between frames and messages."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.dialects.blipmq.messages import SOURCES, renderDeliveries
from fleximq.interfaces import ISource
from fleximq.values.message import Content, Message
from fleximq.values.records import runOf
from tests.dialects.blipmq.case import publish


class SourceTests(SynchronousTestCase):
    """Messages out of runs."""

    def test_interface(self) -> None:
        """Both are sources."""
        for source in SOURCES:
            self.assertTrue(verifyObject(ISource, source))

    def test_messages(self) -> None:
        """The bytes of each become a message with the QoS of the source."""
        for qos, source in enumerate(SOURCES):
            messages = source.messages([b"a", b""])
            self.assertEqual(messages, [Message(b"a", Content.BYTES, qos), Message(b"", Content.BYTES, qos)])

    def test_kind(self) -> None:
        """They are messages, not just tuples that look the same."""
        self.assertIs(type(SOURCES[0].messages([b"a"])[0]), Message)

    def test_run(self) -> None:
        """What is kept of them is what would be kept of the messages."""
        for source in SOURCES:
            self.assertEqual(source.run([b"a", b""]), runOf(source.messages([b"a", b""])))

    def test_pick(self) -> None:
        """Some of them make a body of their own."""
        self.assertEqual(SOURCES[1].pick([b"a", b"b", b"c"], [0, 2]), [b"a", b"c"])


class RenderTests(SynchronousTestCase):
    """Deliveries as frames."""

    @given(st.lists(st.tuples(st.booleans(), st.binary(max_size=20)), min_size=1, max_size=20))
    def test_eachByItself(self, deliveries: list[tuple[bool, bytes]]) -> None:
        """Rendering many gives the same bytes as rendering each, whatever their order."""
        tags = [place if tracked else 0 for place, (tracked, _) in enumerate(deliveries, 1)]
        polls = range(100, 100 + len(tags))
        wanted = b"".join(
            publish("t", payload, int(tracked), tag or poll)
            for (tracked, payload), tag, poll in zip(deliveries, tags, polls, strict=True)
        )
        made = [Message(payload, Content.BYTES) for _, payload in deliveries]
        self.assertEqual(renderDeliveries("t", tags, made, polls), wanted)

    def test_fewer(self) -> None:
        """There may be more POLLs than deliveries."""
        rendered = renderDeliveries("t", [0], [Message(b"x", Content.BYTES)], [7, 8])
        self.assertEqual(rendered, publish("t", b"x", 0, 7))
