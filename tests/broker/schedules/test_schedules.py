"""Schedules in memory."""

from collections.abc import Sequence
from typing import Any

import msgpack
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope
from fleximq.broker.schedules.schedules import LOOK, RETRY
from fleximq.errors import BadRequest
from fleximq.limits import MOST_MILLISECONDS, Limits
from tests.broker.parts import AsMessages, Collector, makeBroker
from tests.broker.schedules.durable import SOURCE, batch


class Headers(AsMessages):
    """The headers of messages of a schedule, instead of the messages."""

    def render(self, envelope: Envelope, body: Any, count: int) -> Any:
        """Return one map for each message."""
        return [msgpack.unpackb(header) for header in envelope.source.run(body).headers]


class InMemoryTests(SynchronousTestCase):
    """A broker without a journal; the system clock is ``ahead`` of the monotonic one."""

    def setUp(self) -> None:
        """Begin, with a subscriber of the topic "t"."""
        self.clock = Clock()
        self.ahead = 1_000_000_000.0
        self.broker = makeBroker(self.clock, wall=lambda: self.clock.seconds() + self.ahead)
        self.me = self.broker.join("fleximq")
        self.seen = Collector()
        self.broker.subscribe(self.me, self.seen, "t")

    def now(self) -> int:
        """Return the milliseconds of the system clock."""
        return int(self.broker.wall() * 1000)

    def schedule(self, due: int, *payloads: bytes, topic: str = "t", **header: Any) -> list[Any]:
        """Schedule messages, and return the decisions."""
        told: list[Any] = []

        def decided(reason: str | None, places: Sequence[int]) -> None:
            told.append((reason, list(places)))

        body = batch(topic, header, *payloads)
        envelope = Envelope(self.broker.topicFor(self.me, topic), self.me, SOURCE)
        self.broker.schedule(envelope, body, len(payloads), due, decided)
        return told

    def test_publishesAtTheDueTime(self) -> None:
        """Not a millisecond before it."""
        self.assertEqual(self.schedule(self.now() + 500, b"a", b"b"), [(None, [0, 1])])
        self.clock.advance(0.499)
        self.assertEqual(self.seen.payloads(), [])
        self.clock.advance(0.001)
        self.assertEqual(self.seen.payloads(), [b"a", b"b"])
        self.assertEqual(len(self.broker.schedules), 0)

    def test_pastTimesAreDueAtOnce(self) -> None:
        """In the next turn."""
        self.schedule(5, b"a")
        self.assertEqual(self.seen.payloads(), [])
        self.clock.advance(0)
        self.assertEqual(self.seen.payloads(), [b"a"])

    def test_orderIsThatOfDueTimesThenOfArrival(self) -> None:
        """Also if all are late."""
        now = self.now()
        for after, payload in ((30, b"c"), (10, b"a"), (30, b"d"), (20, b"b")):
            self.schedule(now + after, payload)
        self.clock.advance(5)
        self.assertEqual(self.seen.payloads(), [b"a", b"b", b"c", b"d"])

    def test_headerHasTheScheduleAndNotTheRequest(self) -> None:
        """All other keys are published as they were."""
        seen = Collector(Headers())
        self.broker.subscribe(self.me, seen, "u")
        due = self.now() + 1000
        self.schedule(due, b"a", topic="u", deliver_at=due, message_id="m", schedule="forged", priority=7)
        [number] = self.broker.schedules.inMemory.timetable.blocks()[0].numbers
        self.clock.advance(1)
        expected = {"message_id": "m", "priority": 7, "schedule": {"id": number, "due": due}}
        self.assertEqual(seen.messages, [expected])

    def test_clockSetForwardMakesThemDue(self) -> None:
        """Within one look at the system clock."""
        self.schedule(self.now() + 3_600_000, b"a")
        self.ahead += 3600
        self.clock.advance(LOOK)
        self.assertEqual(self.seen.payloads(), [b"a"])

    def test_clockSetBackRepeatsNothing(self) -> None:
        """And what still waits is not early by the system clock."""
        due = self.now() + 1000
        self.schedule(due, b"a")
        self.schedule(due + 1000, b"b")
        self.clock.advance(1)
        self.ahead -= 100
        self.clock.pump([LOOK] * 100)
        self.assertEqual(self.seen.payloads(), [b"a"])
        self.clock.pump([LOOK] * 2)
        self.assertEqual(self.seen.payloads(), [b"a", b"b"])

    def test_opensAQueueIfTheHeaderSaysSo(self) -> None:
        """At the due time."""
        self.schedule(self.now() + 10, b"a", topic="jobs", queue=True)
        self.assertIsNone(self.broker.queues.get("jobs"))
        self.clock.advance(1)
        delivery = self.broker.consume(self.me, "jobs")
        assert delivery is not None
        self.assertEqual(delivery.message.payload, b"a")

    def test_refusedMessagesAreTriedAgain(self) -> None:
        """Until the queue has room; in order."""
        self.broker = makeBroker(self.clock, wall=self.broker.wall, limits=Limits(queueMessages=2))
        self.me = self.broker.join("fleximq")
        self.assertIsNone(self.broker.consume(self.me, "jobs"))  # now it has a consumer, and drops nothing
        self.schedule(self.now() + 10, b"a", b"b", b"c", topic="jobs", queue=True)
        self.clock.advance(1)
        self.assertEqual(len(self.broker.schedules), 1)
        taken = []
        queue = self.broker.queues.ensure("jobs").queue
        for _ in range(3):
            for delivery in self.broker.consumeMany(self.me, "jobs", 1):
                taken.append(delivery.message.payload)
                queue.acknowledge(delivery.tag)
            self.clock.advance(RETRY)
        self.assertEqual((taken, len(self.broker.schedules)), ([b"a", b"b", b"c"], 0))

    def test_tooFarAheadIsRefused(self) -> None:
        """Ten years are the limit."""
        self.schedule(self.now() + MOST_MILLISECONDS, b"a")
        with self.assertRaises(BadRequest):
            self.schedule(self.now() + MOST_MILLISECONDS + 1, b"a")
        self.assertEqual(len(self.broker.schedules), 1)
