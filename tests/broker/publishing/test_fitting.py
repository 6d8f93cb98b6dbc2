"""Publications to a topic with a schema: what fits goes on, the rest is refused with its reason."""

from typing import Any

from fleximq.broker.envelope import Envelope
from fleximq.errors import NotKept, Unfit
from fleximq.values.message import Message
from tests.broker.parts import askAt, text
from tests.broker.publishing.test_publication_paths import DurableCase


def onlyGood(topic: str) -> Any:
    """Return a check of the topics ``t`` and ``d``: texts begin with ``good``."""

    def check(message: Message) -> str | None:
        return (
            None
            if message.payload.startswith(b"good")
            else f"{topic}.{message.payload.decode(errors='replace')} is bad"
        )

    return check if topic in ("t", "d") else None


class FittingTests(DurableCase):
    """Each operation that publishes."""

    def open(self, **rules: Any) -> None:
        super().open(**rules)
        self.broker.setSchemas(onlyGood)

    def refusedIn(self, act: Any) -> tuple[list[int], list[str]]:
        """Return the indexes of the messages that an act refuses, and their reasons."""
        error = self.assertRaises(Unfit, act)
        self.assertEqual(int(error.status), 422)
        return list(error.refused), [str(each) for each in error.each()]

    def test_othersOfARunArePublished(self) -> None:
        bob = self.subscribe(self.bob, "t")
        found = self.refusedIn(lambda: self.publish("good1", "a", "good2", "b"))
        self.assertEqual(found, ([1, 3], ["t.a is bad", "t.b is bad"]))
        self.assertEqual([each.payload for each in bob.messages], [b"good1", b"good2"])

    def test_runThatFitsIsOneRun(self) -> None:
        bob = self.subscribe(self.bob, "t")
        self.publish("good1", "good2")
        self.assertEqual(bob.counts, [2])

    def test_durable(self) -> None:
        """What fits is committed, and told with its own indexes."""
        envelope = self.envelope("d")
        publish = lambda: self.broker.publish(envelope, text("a", "good"), 2, self.appendState)  # noqa: E731
        self.assertEqual(self.refusedIn(publish), ([0], ["d.a is bad"]))
        self.journal.commit()
        self.assertEqual(self.told, [(None, [1])])

    def test_repeatedIds(self) -> None:
        """An id of a refused message is free again."""
        ids = ["1", "2"]
        bob = self.subscribe(self.bob, "d")
        once = lambda: self.broker.publishOnce(self.envelope("d"), text("a", "good"), ids)  # noqa: E731
        self.assertEqual(self.refusedIn(once), ([0], ["d.a is bad"]))
        self.journal.commit()
        self.broker.publishOnce(self.envelope("d"), text("good1", "good2"), ids)
        self.journal.commit()
        self.assertEqual([each.payload for each in bob.messages], [b"good", b"good1"])

    def test_workQueue(self) -> None:
        """A run of which nothing fits makes no queue."""
        self.assertEqual(self.refusedIn(lambda: self.broker.produce(self.envelope(), text("a"), 1))[0], [0])
        self.assertEqual(askAt(self.broker, "/broker/queues", {})["queues"], [])
        self.broker.produce(self.envelope(), text("good"), 1)
        self.journal.commit()
        delivery = self.broker.consume(self.bob, "t")
        self.assertEqual(delivery and delivery.message.payload, b"good")

    def test_schedules(self) -> None:
        """A run that does not fit is not scheduled; what was scheduled is published though the schema has changed."""
        bob = self.subscribe(self.bob, "t")
        later = round(self.clock.seconds() * 1000) + 5000
        schedule = lambda *texts: self.broker.schedule(self.envelope(), text(*texts), len(texts), later)  # noqa: E731
        self.assertEqual(self.refusedIn(lambda: schedule("good", "a"))[0], [0, 1])
        schedule("good")
        self.broker.setSchemas(lambda topic: lambda message: "never")
        self.clock.advance(6)
        self.assertEqual([each.payload for each in bob.messages], [b"good"])

    def test_schedulesByPath(self) -> None:
        for path, more in (("/schedule/add", {"deliver_in": 5000}), ("/schedule/repeat", {"name": "n", "every": 5000})):
            error = self.assertRaises(NotKept, askAt, self.broker, path, {"topic": "t", "payload": "a", **more})
            self.assertIsInstance(error, Unfit)

    def test_changeOfSchemas(self) -> None:
        """A new schema counts for envelopes that were made before, and for topics that were forgotten."""
        envelope = self.envelope()
        self.broker.setSchemas(lambda topic: None)
        bob = self.subscribe(self.bob, "t")
        self.broker.publish(envelope, text("a"), 1)
        self.assertFalse(envelope.topic.needsOrder)
        self.broker.setSchemas(onlyGood)
        self.refusedIn(lambda: self.broker.publish(envelope, text("a"), 1))
        self.broker.unsubscribe(self.bob, "t")
        self.assertEqual(len(bob.messages), 1)

    def test_forgottenTopic(self) -> None:
        envelope: Envelope = self.envelope()
        self.broker.topics._forget(envelope.topic)
        self.refusedIn(lambda: self.broker.publish(envelope, text("a"), 1))

    def test_topicsWithoutSchemaTakeTheDirectPath(self) -> None:
        self.publish("a", name="other")
        topic = self.broker.topics.find("other")
        self.assertEqual(topic and (topic.check, topic.needsOrder), (None, False))
