"""The paths of queues: define, list, pause; ``/queue/settle`` has its tests with the dialect."""

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope, MessageSource, QueueDelivery
from fleximq.errors import BadRequest, Conflict, NotFound
from tests.broker.parts import askAt, makeBroker, text


class WorkQueuePathCase(SynchronousTestCase):
    """A broker in memory."""

    def setUp(self) -> None:
        """Begin with a client."""
        self.broker = makeBroker(Clock())
        self.client = self.broker.join("any")

    def ask(self, path: str, **arguments: Any) -> Any:
        """Return an answer that comes at once."""
        return askAt(self.broker, path, arguments)

    def publish(self, topic: str, *contents: str) -> None:
        """Publish these texts."""
        envelope = Envelope(self.broker.topicFor(self.client, topic), self.client, MessageSource())
        self.broker.publish(envelope, text(*contents), len(contents))

    def consume(self, name: str, prefetch: int = 10) -> list[QueueDelivery]:
        """Become a consumer, and return the list that gets its deliveries."""
        heard: list[QueueDelivery] = []
        self.broker.consumeFrom(self.client, name, heard.extend, lambda error: None, prefetch)
        return heard


class DefineTests(WorkQueuePathCase):
    """``/queue/define``."""

    def test_theAnswerIsTheDefinition(self) -> None:
        """Without the defaults."""
        found = self.ask("/queue/define", queue="mails", sources=["orders.*", "mail"], lease=30, retry={"first": 2})
        self.assertEqual((found["queue"], found["sources"], found["lease"]), ("mails", ["mail", "orders.*"], 30))
        self.assertEqual(found["retry"]["first"], 2)
        self.assertNotIn("paused", found)

    def test_aDefinedQueueReceivesItsSources(self) -> None:
        """From then on, without a consumer; and always the topic of its name."""
        self.ask("/queue/define", queue="mails", sources=["orders.*", "mail"])
        self.publish("orders.paid", "a")
        self.publish("mail", "b")
        self.publish("mails", "c")
        self.publish("orders", "not a source")
        self.assertEqual([each.message.payload for each in self.consume("mails")], [b"a", b"b", b"c"])

    def test_theSameAgainChangesNothing(self) -> None:
        """Also with defaults spelt out."""
        first = self.ask("/queue/define", queue="mails", lease=30)
        self.assertEqual(self.ask("/queue/define", queue="mails", lease=30, sources=["mails"], paused=False), first)

    def test_anotherDefinitionIsAConflictWithBoth(self) -> None:
        """Unless it replaces the first."""
        self.ask("/queue/define", queue="mails", lease=30)
        error = self.assertRaises(Conflict, self.ask, "/queue/define", queue="mails", lease=60)
        self.assertIn("30", str(error))
        self.assertIn("60", str(error))
        self.assertEqual(self.ask("/queue/define", queue="mails", lease=60, replace=True)["lease"], 60)

    def test_wrongDefinitionsAreRefused(self) -> None:
        """With a sentence that names the key."""
        for key, value in (
            ("queue", ""), ("queue", 1), ("lease", -1), ("lease", "1"), ("sources", "a"), ("colour", "red"),
            ("replace", 1), ("expired", "burnt"), ("max_attempts", 0), ("retry", {"last": 1}),
        ):  # fmt: skip
            error = self.assertRaises(BadRequest, self.ask, "/queue/define", **{"queue": "mails", key: value})
            self.assertIn(key, str(error))
        self.assertRaises(BadRequest, self.ask, "/queue/define")


class ListTests(WorkQueuePathCase):
    """``/queue/list``."""

    def test_aRowHasDefinitionAndNumbers(self) -> None:
        """Of a queue with a consumer, and of one that nobody defined."""
        self.ask("/queue/define", queue="mails", lease=30)
        self.consume("mails", 1)
        self.publish("mails", "a", "b")
        self.consume("jobs")
        first, second = self.ask("/queue/list")["queues"]
        self.assertEqual((first["queue"], first["definition"], first["sources"]), ("jobs", None, ["jobs"]))
        numbers = {key: second[key] for key in ("queue", "consumers", "messages", "in_flight", "durable")}
        expected = {"queue": "mails", "consumers": 1, "messages": 1, "in_flight": 1, "durable": False}
        self.assertEqual(numbers, expected)
        self.assertEqual(second["definition"], {"lease": 30})

    def test_aConsumerThatAsksCounts(self) -> None:
        """As in ``/broker/queues``."""
        self.broker.consumeMany(self.client, "jobs", 1)
        found = [self.ask(path)["queues"][0]["consumers"] for path in ("/queue/list", "/broker/queues")]
        self.assertEqual(found, [1, 1])

    def test_itIsPaged(self) -> None:
        """By name."""
        for name in "abc":
            self.ask("/queue/define", queue=name)
        found = self.ask("/queue/list", limit=2)
        self.assertEqual(([row["queue"] for row in found["queues"]], found["next"]), (["a", "b"], "b"))
        self.assertEqual([row["queue"] for row in self.ask("/queue/list", after="b")["queues"]], ["c"])


class PauseTests(WorkQueuePathCase):
    """``/queue/pause``."""

    def test_aPausedQueueDeliversNothingUntilItIsResumed(self) -> None:
        """It receives all the same."""
        heard = self.consume("jobs")
        self.assertEqual(self.ask("/queue/pause", queue="jobs"), {"queue": "jobs", "paused": True})
        self.publish("jobs", "a")
        self.assertEqual(heard, [])
        self.ask("/queue/pause", queue="jobs", paused=False)
        self.assertEqual([each.message.payload for each in heard], [b"a"])

    def test_anUnknownQueueIsNotFound(self) -> None:
        """404; a wrong ``paused`` 400."""
        self.assertRaises(NotFound, self.ask, "/queue/pause", queue="jobs")
        self.assertRaises(BadRequest, self.ask, "/queue/pause", queue="jobs", paused=1)
