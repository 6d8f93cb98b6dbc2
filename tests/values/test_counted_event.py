"""Counted events and their texts."""

from collections import Counter

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.counted_event import CountedEvent, EventFamily


class CountedEventTests(SynchronousTestCase):
    """An event is its text, and says its family."""

    def test_textIsFamilysBeginningAndLabel(self) -> None:
        """The text is the family's beginning and the label."""
        event = CountedEvent(EventFamily.DROPPED, "queue full")
        self.assertEqual((event, event.family, event.label), ("dropped: queue full", EventFamily.DROPPED, "queue full"))
        self.assertEqual(CountedEvent(EventFamily.REDELIVERED), "redelivered")

    def test_eventsWithOneTextAreCountedTogetherAndAreTextInMessagePack(self) -> None:
        """Events with one text are counted together, and are text in MessagePack."""
        counts = Counter(CountedEvent(EventFamily.ERROR, "404") for _ in range(2))
        self.assertEqual(dict(counts), {"error: 404": 2})
        self.assertEqual(msgpack.unpackb(msgpack.packb(dict(counts))), {"error: 404": 2})
