"""Each key and path of queues and schedules has a test that is named after it, in a conversation.

The pages are docs/reference/dialects.rst, "Queues", and docs/reference/messages.rst, "Paths of the broker". Details
have their tests in test_queues.py and with the paths.
"""

import re
from typing import Any

from fleximq.broker.paths.path_table import PATHS
from tests.dialects.fleximq.test_queues import QueueCase
from tests.pages import ROOT, tableRows

_SECTION = (
    (ROOT / "docs/reference/dialects.rst").read_text().partition("\n.. _queues:\n")[2].partition("\nNames\n~~~~~\n")[0]
)


class QueueKeysTests(QueueCase):
    """A test for each key is called after its message type and the key, one for each path after the path."""

    def setUp(self) -> None:
        """Begin at a late second, with a client that asks."""
        super().setUp()
        self.clock.advance(1000)
        self.producer, self.client = self.server.join(), self.server.join()

    def answer(self, path: str, status: int = 200, **arguments: Any) -> Any:
        """Return the value of an answer with this status."""
        heard = self.ask(self.client, path, **arguments)
        self.assertEqual(heard.status, status, heard.value)
        return heard.value

    def test_allHaveATest(self) -> None:
        """Those of the page's table, and the broker's paths."""
        keys = [
            f"{message.split()[0]}_{key}"
            for message, words, _ in tableRows(_SECTION)
            for key in re.findall(r"``(\w+)", words)
        ]
        self.assertIn("PUB_priority", keys)
        paths = [each for each in PATHS if re.match("/queue/|/schedule/|/broker/dead-letters", each)]
        for name in (*keys, *(re.sub(r"\W", "_", each[1:]) for each in paths)):
            self.assertTrue(hasattr(self, f"test_{name}"), name)

    def test_PUB_queue(self) -> None:
        """The topic gets a queue, so the message waits."""
        self.enqueue("a")
        self.assertEqual(self.deliveries(self.consumer()), [("a", 1)])

    def test_PUB_priority(self) -> None:
        """Higher ones are first, equal ones in their order; 4 without the key."""
        self.enqueue("a", priority=0)
        self.enqueue("b")
        self.enqueue("c", priority=9)
        self.enqueue("d", priority=4)
        self.assertEqual([value for value, _ in self.deliveries(self.consumer(10))], ["c", "b", "d", "a"])

    def test_PUB_expires_in(self) -> None:
        """The message is gone then."""
        self.enqueue("a", expires_in=1000)
        self.enqueue("b", expires_in=3000)
        self.clock.advance(2)
        self.assertEqual(self.deliveries(self.consumer(10)), [("b", 1)])

    def test_PUB_deliver_in(self) -> None:
        """After so many milliseconds."""
        self.enqueue("a", deliver_in=1000)
        consumer = self.consumer()
        self.assertEqual(self.deliveries(consumer), [])
        self.clock.advance(1)
        self.assertEqual(self.deliveries(consumer), [("a", 1)])

    def test_PUB_deliver_at(self) -> None:
        """At this time in milliseconds since 1970."""
        self.enqueue("a", deliver_at=1_002_000)
        consumer = self.consumer()
        self.clock.advance(1)
        self.assertEqual(self.deliveries(consumer), [])
        self.clock.advance(1)
        self.assertEqual(self.deliveries(consumer), [("a", 1)])

    def test_PUB_key(self) -> None:
        """In a queue that is ordered by keys, one message of each key is out at a time."""
        self.answer("/queue/define", queue="jobs", ordered_by="key")
        for value, key in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            self.enqueue(value, key=key)
        worker = self.consumer(10)
        first, second = self.heard(worker)
        self.assertEqual((first.value, second.value), ("a1", "b1"))
        self.settle(worker, ack=[first.header["delivery"]["tag"]])
        self.assertEqual(self.deliveries(worker), [("a2", 1)])

    def test_SUB_queue(self) -> None:
        """By its name, or ``true`` for that of the topic."""
        self.answer("/queue/define", queue="mails", sources=["jobs"])
        named, same = self.consumer(queue="mails"), self.consumer()
        self.producer.publish("jobs", "a")
        self.assertEqual((self.deliveries(named), self.deliveries(same)), ([("a", 1)], [("a", 1)]))

    def test_SUB_prefetch(self) -> None:
        """So many are unsettled at most; 1 without the key, with 0 no further ones."""
        self.enqueue("a", "b", "c")
        self.client.tell("SUB", {"topic": "jobs", "queue": True})
        self.assertEqual(self.deliveries(self.client), [("a", 1)])
        [second] = self.tags(self.consume(self.client, 2))
        self.settle(self.consume(self.client, 0), ack=[second])
        self.assertEqual(self.deliveries(self.client), [])
        self.assertEqual(self.client.barrier(), [])
        self.assertEqual(self.deliveries(self.consumer(10)), [("c", 1)])

    def test_UNSUB_queue(self) -> None:
        """Unsettled messages return."""
        self.enqueue("a")
        worker = self.consumer()
        self.assertEqual(self.deliveries(worker), [("a", 1)])
        worker.tell("UNSUB", {"topic": "jobs", "queue": True})
        self.assertEqual(self.deliveries(self.consumer()), [("a", 2)])

    def test_PUB_delivery(self) -> None:
        """The last key after the publisher's own."""
        self.enqueue("a", colour="red")
        [heard] = self.heard(self.consumer())
        self.assertEqual(list(heard.header), ["topic", "queue", "colour", "delivery"])
        self.assertEqual(heard.header["delivery"].keys(), {"queue", "tag", "attempt"})

    def test_queue_define(self) -> None:
        """Equal ones are nothing, others get 409, with ``replace`` they are accepted."""
        for _ in range(2):
            self.assertEqual(self.answer("/queue/define", queue="jobs", lease=5)["lease"], 5)
        self.answer("/queue/define", 409, queue="jobs", lease=6)
        self.answer("/queue/define", 400, queue="jobs", lease="long")
        self.assertEqual(self.answer("/queue/define", queue="jobs", lease=6, replace=True)["lease"], 6)

    def test_queue_list(self) -> None:
        """With definition and numbers."""
        self.enqueue("a")
        self.answer("/queue/define", queue="mails", max_attempts=2)
        jobs, mails = self.answer("/queue/list")["queues"]
        self.assertEqual((jobs["queue"], jobs["definition"], jobs["messages"]), ("jobs", None, 1))
        self.assertEqual((mails["queue"], mails["definition"]["max_attempts"]), ("mails", 2))

    def test_queue_settle(self) -> None:
        """As a request, answered with the tags of others; a lease is extended."""
        self.answer("/queue/define", queue="jobs", lease=5)
        self.enqueue("a", "b")
        self.consume(self.client, 2)
        first, second = self.tags(self.client)
        self.assertEqual(
            self.answer("/queue/settle", queue="jobs", ack=[first, 999], extend=[[second, 20_000]]), {"unknown": [999]}
        )
        self.clock.advance(15)
        self.assertEqual(self.deliveries(self.client), [])
        self.clock.advance(10)
        self.assertEqual(self.deliveries(self.client), [("b", 2)])

    def test_queue_bind(self) -> None:
        """A queue gets further sources; its other settings stay."""
        self.answer("/queue/define", queue="jobs", max_attempts=7)
        for _ in range(2):
            defined = self.answer("/queue/bind", queue="jobs", sources=["a.*"])
        self.assertEqual(defined, {"queue": "jobs", "sources": ["a.*"], "max_attempts": 7})
        self.producer.publish("a.b", "x")
        self.assertEqual(self.deliveries(self.consumer()), [("x", 1)])
        self.answer("/queue/bind", 404, queue="unknown", sources=["a"])
        self.answer("/queue/bind", 400, queue="jobs", sources=[7])

    def test_queue_unbind(self) -> None:
        """A queue loses sources, but not the topic of its name."""
        self.answer("/queue/define", queue="jobs", sources=["a", "b"])
        self.assertEqual(self.answer("/queue/unbind", queue="jobs", sources=["a", "c", "jobs"])["sources"], ["b"])
        for topic in ("a", "b", "jobs"):
            self.producer.publish(topic, topic)
        self.assertEqual([value for value, _ in self.deliveries(self.consumer(9))], ["b", "jobs"])

    def test_queue_delete(self) -> None:
        """With its messages and its definition; its consumers are told."""
        self.answer("/queue/define", queue="jobs", max_attempts=7)
        self.enqueue("a", "b")
        worker = self.consumer(1)
        self.tags(worker)
        self.assertEqual(self.answer("/queue/delete", queue="jobs"), {"deleted": 2})
        [heard] = worker.messages()
        self.assertEqual((heard.status, heard.value["queue"]), (603, "jobs"))
        self.assertEqual(self.answer("/queue/list")["queues"], [])
        self.answer("/queue/delete", 404, queue="jobs")
        self.enqueue("c")
        self.assertEqual(self.deliveries(self.consumer()), [("c", 1)])

    def test_queue_cancel(self) -> None:
        """Of a message that waits, once."""
        self.enqueue("a", message_id="m")
        found = [self.answer("/queue/cancel", queue="jobs", message_id="m")["cancelled"] for _ in range(2)]
        self.assertEqual(found, [True, False])
        self.answer("/queue/cancel", 404, queue="unknown", message_id="m")
        self.assertEqual(self.deliveries(self.consumer()), [])

    def test_queue_pause(self) -> None:
        """Until it is resumed."""
        self.enqueue("a")
        self.answer("/queue/pause", queue="jobs")
        worker = self.consumer()
        self.assertEqual(self.deliveries(worker), [])
        self.answer("/queue/pause", queue="jobs", paused=False)
        self.assertEqual(self.deliveries(worker), [("a", 1)])
        self.answer("/queue/pause", 404, queue="unknown")

    def reject(self, *values: str) -> None:
        """Make dead letters, with the values as ids too."""
        for value in values:
            self.enqueue(value, message_id=value)
        worker = self.consumer(10)
        self.settle(worker, reject=[[tag, "no"] for tag in self.tags(worker)])
        worker.tell("UNSUB", {"topic": "jobs", "queue": True})
        self.clock.advance(0)

    def test_broker_dead_letters(self) -> None:
        """With their stories."""
        self.reject("a", "b")
        found = self.answer("/broker/dead-letters", queue="jobs", ids=["b"])
        [letter] = found["letters"]
        self.assertEqual(
            [letter[key] for key in ("message_id", "queue", "reason", "attempts", "words")],
            ["b", "jobs", "rejected", 1, "no"],
        )
        self.answer("/broker/dead-letters", 400, queue="jobs", reason="boredom")

    def test_broker_dead_letters_return(self) -> None:
        """Into their queue, with attempts that begin at 1."""
        self.reject("a", "b")
        self.assertEqual(self.answer("/broker/dead-letters/return", queue="jobs", ids=["b"])["returned"], 1)
        self.assertEqual(self.deliveries(self.consumer(10)), [("b", 1)])

    def test_broker_dead_letters_delete(self) -> None:
        """For ever."""
        self.reject("a", "b")
        self.assertEqual(self.answer("/broker/dead-letters/delete", queue="jobs", ids=["b"])["deleted"], 1)
        letters = self.answer("/broker/dead-letters", queue="jobs")["letters"]
        self.assertEqual([each["message_id"] for each in letters], ["a"])

    def test_schedule_add(self) -> None:
        """The answer is the id."""
        self.client.subscribe("news")
        number = self.answer("/schedule/add", topic="news", payload="a", deliver_in=1000)["id"]
        self.clock.advance(1)
        [heard] = self.client.messages()
        self.assertEqual((heard.value, heard.header["schedule"]["id"]), ("a", number))
        self.answer("/schedule/add", 400, topic="news")

    def test_schedule_repeat(self) -> None:
        """Again and again."""
        self.client.subscribe("news")
        self.answer("/schedule/repeat", name="r", topic="news", payload="a", every=1000)
        self.answer("/schedule/repeat", 400, name="r", topic="news", every=999)
        for _ in range(3):
            self.clock.advance(1)
        self.assertEqual(self.client.values(), ["a"] * 3)

    def test_schedule_pause(self) -> None:
        """Of a recurring one."""
        self.client.subscribe("news")
        self.answer("/schedule/repeat", name="r", topic="news", every=1000)
        self.assertEqual(self.answer("/schedule/pause", name="r"), {"found": True})
        self.clock.advance(5)
        self.assertEqual(self.client.messages(), [])
        self.assertEqual(self.answer("/schedule/pause", name="unknown"), {"found": False})

    def test_schedule_cancel(self) -> None:
        """By id or name."""
        number = self.answer("/schedule/add", topic="news", deliver_in=1000)["id"]
        self.answer("/schedule/repeat", name="r", topic="news", every=1000)
        for asked, found in (({"id": number}, True), ({"id": number}, False), ({"name": "r"}, True)):
            self.assertEqual(self.answer("/schedule/cancel", **asked), {"cancelled": found}, asked)
        self.answer("/schedule/cancel", 400)

    def test_schedule_list(self) -> None:
        """Recurring and single ones."""
        number = self.answer("/schedule/add", topic="news", deliver_in=1000)["id"]
        self.answer("/schedule/repeat", name="r", topic="news", every=1000)
        found = self.answer("/schedule/list")
        self.assertEqual([each["id"] for each in found["schedules"]], [number])
        self.assertEqual([each["name"] for each in found["repeats"]], ["r"])
        self.assertEqual(found["schedules"][0]["due"], 1_001_000)
