"""The keys of queues and schedules in headers (docs/reference/dialects.rst, "Queues")."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadRequest
from fleximq.limits import MOST_MILLISECONDS
from fleximq.values.queue_keys import QueueKeys
from fleximq.wire.fleximq_header import MessageType, checkHeader


def keys(kind: str, **fields: Any) -> QueueKeys | None:
    """Return the keys of a header with the topic "a"."""
    return checkHeader(MessageType[kind], {"topic": "a", **fields}).queueing


class QueueKeysTests(SynchronousTestCase):
    """What a header may have."""

    def refused(self, sentence: str, kind: str, **fields: Any) -> None:
        """Check that a header is refused with this sentence."""
        with self.assertRaises(BadRequest) as caught:
            keys(kind, **fields)
        self.assertEqual(str(caught.exception), sentence)

    def test_aHeaderWithoutThemHasNone(self) -> None:
        """No key, or ``queue: false`` of a subscription, is an ordinary message."""
        self.assertIsNone(keys("PUB"))
        self.assertIsNone(keys("SUB"))
        self.assertIsNone(keys("UNSUB"))
        self.assertIsNone(keys("SUB", queue=False))
        self.assertEqual(keys("PUB", queue=False), QueueKeys())

    def test_aPublicationForWorkersNamesTheQueueOfItsTopic(self) -> None:
        """``queue: true``."""
        self.assertEqual(keys("PUB", queue=True), QueueKeys("a"))

    def test_aConsumerNamesAQueue(self) -> None:
        """By true, that of its topic, or by its name; ``prefetch`` is 1 without the key."""
        self.assertEqual(keys("SUB", queue=True), QueueKeys("a", 1))
        self.assertEqual(keys("SUB", queue="mails", prefetch=65_535), QueueKeys("mails", 65_535))
        self.assertEqual(keys("UNSUB", queue="mails"), QueueKeys("mails"))

    def test_aScheduleHasADelayOrATime(self) -> None:
        """``deliver_in`` or ``deliver_at``, also for workers."""
        self.assertEqual(keys("PUB", deliver_in=0), QueueKeys(delay=0))
        self.assertEqual(keys("PUB", deliver_at=1_700_000_000_000, queue=True), QueueKeys("a", due=1_700_000_000_000))
        self.assertEqual(keys("PUB", deliver_in=MOST_MILLISECONDS), QueueKeys(delay=MOST_MILLISECONDS))

    def test_limitsAreAccepted(self) -> None:
        """The least and the most of each number."""
        for name, least, most in (("priority", 0, 9), ("expires_in", 1, MOST_MILLISECONDS)):
            self.assertEqual(keys("PUB", **{name: least}), QueueKeys())
            self.assertEqual(keys("PUB", **{name: most}), QueueKeys())

    def test_aSentenceNamesTheKeyAndItsLimits(self) -> None:
        """Below, above, and of a wrong type; a boolean is no number."""
        for name, least, most in (
            ("priority", 0, 9),
            ("expires_in", 1, MOST_MILLISECONDS),
            ("deliver_in", 0, MOST_MILLISECONDS),
            ("deliver_at", 0, (1 << 53) - 1),
        ):
            sentence = f"{name!r} must be a whole number from {least} to {most}"
            for wrong in (least - 1, most + 1, "1", 1.0, None, True):
                self.refused(sentence, "PUB", **{name: wrong})
        for wrong in (-1, 65_536, "1", False):
            self.refused("'prefetch' must be a whole number from 0 to 65535", "SUB", queue=True, prefetch=wrong)

    def test_theQueueOfAPublicationIsTrueOrFalse(self) -> None:
        """A publication goes to all queues that have its topic as a source, so it cannot name one."""
        self.refused("'queue' of a PUB must be true or false", "PUB", queue="mails")

    def test_theKeyOfDeliveriesIsTheBrokers(self) -> None:
        """A subscriber that consumes too would take the message for one of its deliveries, and settle that."""
        self.refused("'delivery' is set by the broker alone", "PUB", delivery={"queue": "a", "tag": 14, "attempt": 1})

    def test_theQueueOfAConsumerIsTrueOrAName(self) -> None:
        """Anything else is refused."""
        for kind in ("SUB", "UNSUB"):
            self.refused("'queue' must be true, false or the name of a queue", kind, queue=1)

    def test_keysThatExcludeEachOtherAreRefused(self) -> None:
        """A message has one time, and a consumer starts at the head of its queue."""
        self.refused("a PUB has either 'deliver_in' or 'deliver_at'", "PUB", deliver_in=1, deliver_at=1)
        self.refused("a consumer of a queue must not have 'from'", "SUB", queue=True, **{"from": "first"})
        routing = [{"client_id": 1000}]
        sentence = "a PUB with 'queue', 'deliver_in' or 'deliver_at' must not have 'routing'"
        for name, value in (("queue", True), ("deliver_in", 1), ("deliver_at", 1)):
            self.refused(sentence, "PUB", routing=routing, **{name: value})
