"""The survey of queues and topics."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.web.queue_survey import QueueSurveyor
from tests.broker.parts import makeBroker, text
from tests.slow_journal import SlowJournal


class StoredTests(SynchronousTestCase):
    """The topics with the oldest stored messages."""

    def test_asManyAsAreWantedOfThoseThatMayBeSeenOldestFirst(self) -> None:
        """As many as are wanted, of those that may be seen, oldest first."""
        clock, journal = Clock(), SlowJournal()
        broker = makeBroker(clock, journal=journal, durable=("#",))
        publisher = broker.join("any")
        for second, topic in enumerate(("b", "secret", "a", "c", "b")):
            journal.now = second * 1_000_000
            broker.publish(Envelope(broker.topicFor(publisher, topic), publisher, MessageSource()), text("x"), 1)
        journal.commit()
        clock.advance(10)
        survey = Deferred.fromCoroutine(QueueSurveyor(broker, clock).survey(2, lambda topic: topic != "secret"))
        self.assertEqual(self.successResultOf(survey).oldest, [("b", 10.0), ("a", 8.0)])
