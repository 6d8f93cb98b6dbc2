"""Sources and bounds of named queues: topics and patterns that fill them, and guards."""

from typing import Any

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.broker.paths.queue_detail import flying
from fleximq.errors import BadRequest, ConsumerEnded, InvalidTopic, NotKept, NotPermitted
from fleximq.rights import Action
from fleximq.security.permissions import Rights
from fleximq.values.publication_head import Head
from fleximq.values.queue_definition import QueueDefinition
from tests.broker.consumers.consuming import ConsumingCase, Worker
from tests.broker.parts import ask
from tests.broker.queueing import messages


class SourcesTests(ConsumingCase):
    """Which publications a queue receives."""

    def define(self, *sources: str, name: str = "t", **values: Any) -> None:
        self.broker.defineQueue(self.publisher, QueueDefinition(name, sources, **values), replace=True)

    def test_topicsAndPatternsFillIt(self) -> None:
        self.define("a", "b/*")
        for letter, topic in zip("abcdef", ("a", "b/x", "b/x/y", "t", "c", "b.z"), strict=True):
            self.publish(letter, topic)
        self.assertEqual(self.worker(10).names, "abdf")

    def test_aMessageOfSeveralSourcesArrivesOnce(self) -> None:
        self.define("a/b", "a/*", "#")
        self.publish("x", "a/b")
        self.publish("y", "t")
        self.assertEqual(self.worker(10).names, "xy")

    def test_aReplacedDefinitionChangesThem(self) -> None:
        self.define("a", "b/*")
        self.define("c", "d/*")
        for letter, topic in zip("abcd", ("a", "b/x", "c", "d/x"), strict=True):
            self.publish(letter, topic)
        self.assertEqual(self.worker(10).names, "cd")

    def test_aNewQueueHasTheSourceOfItsFirstConsumer(self) -> None:
        worker = Worker(self.broker).consume("mails", 10, "m/#")
        self.publish("a", "m/1")
        self.publish("b", "mails")
        self.assertEqual(worker.names, "ab")

    def test_aConsumerWithoutTheRightToANewSourceEnds(self) -> None:
        rights = Rights({Action.CONSUME: ["t"]})
        limited, other = self.worker(10, rights=rights), self.worker(10)
        self.broker.bindQueue(self.publisher, "t", ["secret"], [])
        self.assertEqual([[type(each) for each in one.errors] for one in (limited, other)], [[ConsumerEnded], []])
        self.publish("x", "secret")
        self.assertEqual((limited.names, other.names), ("", "x"))

    def test_settingsEndItToo(self) -> None:
        limited = self.worker(10, rights=Rights({Action.CONSUME: ["t"]}))
        self.broker.queueSettings.settle([QueueDefinition("t", ("t", "secret"))])
        self.publish("x", "secret")
        self.assertEqual((len(limited.errors), limited.names), (1, ""))

    def test_nobodySeesMessagesOfASourceWithoutTheRightToIt(self) -> None:
        """Neither by asking for single ones, nor by looking at those that wait or are in flight."""
        self.define("secret")
        self.publish("xy", "secret")
        self.worker()
        limited = self.broker.join("minimq", rights=Rights({Action.CONSUME: ["t"], Action.READ: ["#"]}))
        for look in (
            lambda: self.broker.consume(limited, "t"),
            lambda: self.broker.queues.whenAvailable(limited, "t", lambda: None),
            lambda: ask(self.broker, limited, "/broker/queues/peek", {"topic": "t"}, self.fail),
            lambda: flying(self.broker, limited, {"topic": "t"}, self.fail),
        ):
            error = self.assertRaises(NotPermitted, look)
            self.assertEqual(str(error), "consuming from 't' is not permitted without the right to all its sources")

    def test_invalidSourcesAreRefused(self) -> None:
        self.assertRaises(InvalidTopic, self.define, "/".join("*" * 40))
        self.assertIsNone(self.queue.definition)

    def test_itsPatternsMakeNoChannel(self) -> None:
        self.define("a/#")
        self.publish("x", "a/b")
        self.assertEqual(self.broker.channels(), [])
        self.assertEqual(self.broker.topics.subscriptions(self.broker.topics.get("a/b")), 0)

    def test_withoutAJournalItCannotBeDurable(self) -> None:
        self.assertRaises(BadRequest, self.define, durable=True)


class BoundsTests(ConsumingCase):
    """A full queue."""

    def define(self, **values: Any) -> None:
        self.broker.defineQueue(self.publisher, QueueDefinition("t", ("a/*",), **values), replace=True)

    def test_itRefusesPublicationsToAllItsSources(self) -> None:
        self.define(max_messages=3, when_full="refuse")
        self.publish("ab", "a/x")
        error = self.assertRaises(NotKept, self.publish, "cd", "a/y")
        self.assertEqual(list(error.refused), [1])
        self.assertRaises(NotKept, self.publish, "e", "t")
        self.assertEqual(self.worker(10).names, "abc")

    def test_itsFirstTopicIsGuardedToo(self) -> None:
        self.publish("x", "a/early")
        self.define(max_messages=1, when_full="refuse")
        self.publish("y", "a/early")
        self.assertRaises(NotKept, self.publish, "z", "a/early")

    def test_itDropsTheOldest(self) -> None:
        self.define(max_messages=2, when_full="drop-oldest")
        self.publish("abc", "a/x")
        self.assertEqual(self.worker(10).names, "bc")

    def test_otherwiseItRefusesWhatIsEnqueuedOnly(self) -> None:
        self.define(max_messages=2)
        worker = self.worker(1)
        self.publish("ab")
        envelope = Envelope(self.broker.topicFor(self.publisher, "t"), self.publisher, MessageSource())
        self.assertRaises(NotKept, self.broker.produce, envelope, messages("c"), 1)
        self.publish("d")
        worker.ack("a")
        self.assertEqual(worker.names, "ad")

    def test_anotherDefinitionFreesItsTopics(self) -> None:
        self.define(max_messages=1, when_full="refuse")
        self.publish("a", "a/x")
        self.define(max_messages=1, when_full="drop-oldest")
        self.publish("b", "a/x")
        self.assertEqual(self.worker(10).names, "b")
        self.assertFalse(self.broker.topics.get("a/x").needsOrder)

    def test_messagesOfOtherDialectsHaveTheirTopic(self) -> None:
        self.define()
        self.publish("a", "a/x")
        [delivery] = self.worker().got
        assert delivery.message.head is not None
        self.assertEqual(delivery.message.head, Head("a/x", b"", self.publisher.id))
