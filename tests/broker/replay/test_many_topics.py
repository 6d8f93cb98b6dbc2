"""Wildcard subscriptions and listings over many topics of the journal take the reactor in slices."""

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.broker.paths import path_table
from fleximq.broker.replay.feed import DeferredForm
from fleximq.broker.replay.replay import TOPICS_AT_ONCE, Start
from fleximq.errors import NoLongerKept
from fleximq.interfaces import IRights
from fleximq.limits import NO_LIMITS
from fleximq.rights import Action
from tests.broker.parts import makeBroker, text, turn
from tests.broker.replay.test_feed import Reader, WithOffsets
from tests.slow_journal import SlowJournal

_TOPICS = 4 * TOPICS_AT_ONCE
_FORM = DeferredForm(WithOffsets())


class CountingJournal(SlowJournal):
    """Counts the most topics that were looked up in one turn; its bounds are made once, as they do not change."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = 0
        self.slices: list[int] = []

    def topics(self, limit: int, start: str = "", before: str = "") -> list[str]:
        """Count what is returned."""
        found = super().topics(limit, start, before)
        self.looked += len(found)
        return found

    def turn(self) -> None:
        """Remember how many were looked up."""
        self.slices.append(self.looked)
        self.looked = 0


@implementer(IRights)
class OnlyA:
    """Rights to topics that begin with "a"."""

    limits = NO_LIMITS

    def forClient(self, id: int) -> "OnlyA":
        """Return itself."""
        return self

    def may(self, action: str, name: str) -> bool:
        """Tell whether it does."""
        return name.startswith("a") or action == Action.READ

    def mayMatch(self, action: str, pattern: str) -> bool:
        """Allow all patterns."""
        return True

    def mayAll(self, action: str) -> bool:
        """Not all."""
        return False


class ManyTopicsTests(SynchronousTestCase):
    """A journal with many durable, retained topics, in two trees."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.journal = CountingJournal()
        self.broker = makeBroker(self.clock, journal=self.journal, durable=("#",), retain=("a.#", "b.#"))
        self.publisher = self.broker.join("any")
        for number in range(_TOPICS):
            self.publish(f"b.{number:05}")
        self.publish("a.x", "a/y")
        self.journal.commit()
        self.client = self.broker.join("fleximq")
        self.reader = Reader()
        self.reader.form = _FORM
        self.journal.looked = 0

    def publish(self, *names: str) -> None:
        """Publish a message to each."""
        for name in names:
            topic = self.broker.topicFor(self.publisher, name)
            self.broker.publish(Envelope(topic, self.publisher, MessageSource()), text("x"), 1)

    def turns(self) -> int:
        """Run turns of the reactor until nothing is scheduled; return how many."""
        self.journal.turn()
        number = 0
        while turn(self.clock):
            self.journal.turn()
            number += 1
        while self.reader.later:
            self.reader.settle()
        return number

    def subscribe(self, name: str) -> None:
        """Subscribe live, with retained messages."""
        self.broker.subscribe(self.client, self.reader, name)
        self.broker.recall(self.client, self.reader, name)

    def test_retained(self) -> None:
        """Retained messages of all topics are delivered in order, and then what was published meanwhile."""
        self.subscribe("#")
        self.publish("b.00000", "a.new")
        self.journal.commit()
        self.turns()
        last = _TOPICS + 2
        self.assertEqual(self.reader.offsets, list(range(1, last + 3)))
        self.assertLessEqual(max(self.journal.slices), 2 * TOPICS_AT_ONCE)
        self.assertGreater(len(self.journal.slices), 3)
        self.assertEqual(self.broker.topics.proxies, {})

    def test_onlyThePrefix(self) -> None:
        """A pattern whose first level is literal looks at the topics of that level only."""
        self.subscribe("a.*")
        self.turns()
        self.assertEqual((max(self.journal.slices), self.reader.offsets), (2, [_TOPICS + 1, _TOPICS + 2]))

    def test_unsubscribed(self) -> None:
        """The end of a subscription ends its look at the topics."""
        for _ in range(20):
            self.subscribe("#")
            self.broker.unsubscribe(self.client, "#")
            self.follow("#", "first")
            self.broker.unsubscribe(self.client, "#")
        self.assertLessEqual(self.turns(), 2)
        self.assertEqual(self.reader.offsets, [])

    def test_repeated(self) -> None:
        """Repeated in one turn, a subscription looks at the topics once, and the others of the client wait for it."""
        for _ in range(100):
            self.follow("b.#", "first")
        self.follow("*.#", "first")
        self.assertLess(self.turns(), 20)
        self.assertLessEqual(max(self.journal.slices), 2 * TOPICS_AT_ONCE)
        self.assertEqual(self.reader.offsets, list(range(1, _TOPICS + 3)))

    def test_manyShort(self) -> None:
        """Of many patterns with few topics too, a turn looks up some."""
        for _ in range(100):
            self.follow("a.*", "first")
            self.subscribe("a/*")
            self.broker.unsubscribe(self.client, "a/*")
        self.turns()
        self.assertLessEqual(max(self.journal.slices), 20)
        self.assertEqual(self.reader.offsets[-2:], [_TOPICS + 1, _TOPICS + 2])

    def test_oneSliceOfAll(self) -> None:
        """However many look, a turn has one slice."""
        for pattern in ("#", "*.#", "b.#", "*.*", "b.*"):
            self.subscribe(pattern)
        self.turns()
        self.assertLessEqual(max(self.journal.slices[1:]), TOPICS_AT_ONCE)
        self.assertEqual(self.reader.offsets, list(range(1, _TOPICS + 3)))

    def follow(self, name: str, kind: str, number: int = 0) -> None:
        """Subscribe from a start."""
        self.broker.follow(self.client, self.reader, name, Start(kind, number))

    def test_first(self) -> None:
        """The first message of many topics is looked for in slices; later ones follow."""
        self.follow("b.#", "first")
        self.publish("b.00000")
        self.journal.commit()
        self.turns()
        self.assertEqual(self.reader.offsets, [*range(1, _TOPICS + 1), _TOPICS + 3])
        self.assertLessEqual(max(self.journal.slices), 2 * TOPICS_AT_ONCE)

    def test_startsInARow(self) -> None:
        """Subscriptions that start one message after the other are read together."""
        self.reader.chunkBytes = 1 << 20
        self.journal.patient = True
        before = self.journal.reads
        for number in range(200):
            self.follow(f"b.{number:05}", "first")
        while self.journal.asked or self.reader.later:
            self.journal.answer(self.journal.asked)
            self.reader.settle()
        self.assertEqual(self.reader.offsets, list(range(1, 201)))
        self.assertLessEqual(self.journal.reads - before, 3)

    def test_last(self) -> None:
        """So is the last one, which is one from before the subscription."""
        self.follow("b.#", "last")
        self.publish("b.09999")
        self.journal.commit()
        self.turns()
        self.assertEqual(self.reader.offsets, [_TOPICS, _TOPICS + 3])

    def test_noLongerKept(self) -> None:
        """An offset that was removed ends the subscription as soon as this is known."""
        self.journal.forget(10)
        self.follow("b.#", "offset", 5)
        self.turns()
        [(name, error)] = self.reader.failures
        self.assertEqual((name, type(error), self.client.subscriptions), ("b.#", NoLongerKept, {}))

    def test_removals(self) -> None:
        """A feed compares removals that concern others in slices too, and goes on."""
        self.follow("b.#", "first")
        self.journal.removed += [(f"c.{number}", 1 << 40) for number in range(10_000)]
        self.turns()
        self.assertEqual((len(self.reader.offsets), self.reader.failures), (_TOPICS, []))

    def test_listings(self) -> None:
        """So are pages for those who may see few topics."""
        self.client.rights = OnlyA()
        for path in ("/broker/topics", "/journal/bounds"):
            answers: list[Any] = []
            self.journal.slices.clear()
            path_table.answer(self.broker, self.client, path, {"limit": 2, "after": "a."}, answers.append)
            self.assertGreaterEqual(self.turns(), 1)
            self.assertLessEqual(max(self.journal.slices), 1001)
            [answer] = answers
            self.assertEqual([each["topic"] for each in answer["topics"]], ["a.x", "a/y"])
            self.assertIsNone(answer["next"])
