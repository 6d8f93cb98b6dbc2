"""The pages of queues, dead letters and schedules."""

from collections.abc import Sequence
from typing import Any

from fleximq.broker.envelope import ConnectedClient, Envelope, QueueDelivery
from fleximq.broker.presence import OwnMessages
from fleximq.broker.schedules.repeat import Repeat
from fleximq.rights import EVERYTHING
from fleximq.security.principal import Admitted
from fleximq.values.message import Content, Message
from fleximq.values.queue_definition import QueueDefinition
from fleximq.values.records import DIALECTS, contentOf
from tests.web.api.api_case import ApiCase
from tests.web.asking import Granted


class ConsumerCase(ApiCase):
    """A queue with a consumer, which has two of its three messages."""

    def setUp(self) -> None:
        super().setUp()
        self.given: list[QueueDelivery] = []
        self.bob = self.broker.join("fleximq", principal="bob", address="192.0.2.2:6")
        self.begin(self.bob, 2)
        self.clock.advance(3)
        self.produce("a", b"1", b"2", b"3")

    def begin(self, client: ConnectedClient, prefetch: int) -> None:
        """Let a client consume."""

        def deliver(deliveries: Sequence[QueueDelivery]) -> None:
            self.given.extend(deliveries)

        self.broker.consumeFrom(client, "a", deliver, lambda error: None, prefetch)


class ListingTests(ApiCase):
    """``/api/queues``."""

    def names(self, query: str) -> tuple[list[str], str | None]:
        """Return the topics of a page, and where the next one begins."""
        found = self.ask(f"GET /api/queues?{query}").value
        return [each["topic"] for each in found["queues"]], found["next"]

    def test_aPageIsCutAfterItsFilters(self) -> None:
        """A part of the names and the kind of queue choose the rows before these are paged."""
        for name in ("mails", "Emails.eu", "orders"):
            self.produce(name, b"1")
        self.bury("mails", b"x")
        self.bury("orders", b"x")
        self.assertEqual(self.names("contains=MAIL&dead_letters=none&limit=1"), (["Emails.eu"], "Emails.eu"))
        self.assertEqual(self.names("contains=MAIL&dead_letters=none&limit=1&after=Emails.eu"), (["mails"], None))
        self.assertEqual(self.names("dead_letters=only&limit=2"), (["$dead/mails", "$dead/orders"], None))

    def test_queuesWithoutDeadLettersAreLeftOut(self) -> None:
        """Of the queues of dead letters, only those are listed that have some."""
        self.bury("mails", b"x")
        self.post("/api/dead-letters/delete", {"queue": "mails"})
        self.assertEqual(self.names("dead_letters=only"), ([], None))

    def test_anUnknownKindIsRefused(self) -> None:
        """The kind is one of two words."""
        self.assertEqual(self.ask("GET /api/queues?dead_letters=some").code, 400)


class DetailTests(ConsumerCase):
    """``/api/queues/detail`` and ``/api/queues/flying``."""

    def test_consumersAreShownWithWhatTheyHave(self) -> None:
        """Consumers are shown with their prefetch, their unsettled deliveries, and since when they consume."""
        found = self.ask("GET /api/queues/detail?topic=a").value
        self.assertEqual(
            found["consuming"],
            [
                {
                    "client_id": self.bob.id, "dialect": "fleximq", "name": self.bob.name, "principal": "bob",
                    "address": "192.0.2.2:6", "since": 3, "prefetch": 2, "unsettled": 2, "unsettled_bytes": 2,
                    "paused": False,
                }
            ],
        )  # fmt: skip
        shown = {name: found[name] for name in ("messages", "in_flight", "sources", "asking", "dead_letter_topic")}
        self.assertEqual(
            shown, {"messages": 1, "in_flight": 2, "sources": ["a"], "asking": 0, "dead_letter_topic": "$dead/a"}
        )

    def test_consumersArePaged(self) -> None:
        """The consumers of a queue are paged by the ids of their clients."""
        self.begin(self.broker.join("fleximq"), 1)
        first = self.ask("GET /api/queues/detail?topic=a&limit=1").value
        rest = self.ask(f"GET /api/queues/detail?topic=a&limit=1&after={first['next']}").value
        ids = [each["client_id"] for part in (first, rest) for each in part["consuming"]]
        self.assertEqual((ids, rest["next"]), ([self.bob.id, self.bob.id + 1], None))

    def test_deadLettersOfTheQueueAreCounted(self) -> None:
        """The detail of a queue counts its dead letters."""
        self.bury("a", b"x", b"y")
        self.assertEqual(self.ask("GET /api/queues/detail?topic=a").value["dead_letters_waiting"], 2)

    def test_flyingMessagesNameTheirConsumer(self) -> None:
        """Messages in flight are shown with their consumer, those of others without one, and stay in flight."""
        self.broker.consume(self.ann, "a")
        for _ in range(2):
            found = self.ask("GET /api/queues/flying?topic=a").value
            rows = [(each["client_id"], each["payload"], each["priority"]) for each in found["messages"]]
            self.assertEqual(found["in_flight"], 3)
            self.assertEqual(rows, [(self.bob.id, "MQ==", 4), (self.bob.id, "Mg==", 4), (None, "Mw==", 4)])

    def test_flyingMessagesOfOneConsumer(self) -> None:
        """Those of one consumer are shown alone."""
        self.broker.consume(self.ann, "a")
        found = self.ask(f"GET /api/queues/flying?topic=a&client_id={self.bob.id}&limit=1").value
        self.assertEqual([each["payload"] for each in found["messages"]], ["MQ=="])
        self.assertEqual(self.ask("GET /api/queues/flying?topic=a&client_id=1").value["messages"], [])

    def test_retriesAreDelayed(self) -> None:
        """A message that waits for its retry is in flight, and shown as delayed."""
        self.broker.settle(self.bob, "a", retries=[(self.given[0].tag, 30.0)])
        found = self.ask("GET /api/queues/flying?topic=a").value["messages"]
        self.assertEqual([each["payload"] for each in found if each["delayed"]], ["MQ=="])
        self.assertEqual(self.ask("GET /api/queues/detail?topic=a").value["delayed"], 1)

    def test_rights(self) -> None:
        """Payloads need the right to consume, the queue a right to its topic; unknown queues are 404."""
        self.admitted = Admitted(None, Granted("read:api/queues/detail", "read:api/queues/flying"))
        self.assertEqual(self.ask("GET /api/queues/detail?topic=a").code, 404)
        self.assertEqual(self.ask("GET /api/queues/flying?topic=a").code, 403)
        self.admitted = Admitted(None, EVERYTHING)
        for path in ("detail", "flying"):
            self.assertEqual(self.ask(f"GET /api/queues/{path}?topic=b").code, 404)
            self.assertEqual(self.ask(f"GET /api/queues/{path}?topic=").code, 400)
            self.assertEqual(self.ask(f"GET /api/queues/{path}").code, 400)
        self.assertEqual(self.ask("GET /api/queues/flying?topic=a&client_id=x").code, 400)


class QueueActTests(ConsumerCase):
    """The acts on queues."""

    def test_pauseAndResume(self) -> None:
        """A paused queue delivers nothing until it is resumed."""
        self.assertEqual(self.post("/api/queues/pause", {"topic": "a"}).value, {"queue": "a", "paused": True})
        self.broker.settle(self.bob, "a", [each.tag for each in self.given])
        self.assertEqual(len(self.given), 2)
        self.post("/api/queues/pause", {"topic": "a", "paused": False})
        self.assertEqual([each.message.payload for each in self.given], [b"1", b"2", b"3"])

    def test_move(self) -> None:
        """Waiting messages are moved in order, also as many as asked; those in flight stay."""
        self.produce("a", b"4", b"5")
        self.assertEqual(self.post("/api/queues/move", {"topic": "a", "to": "b", "limit": 2}).value,
                         {"moved": 2, "reason": None})  # fmt: skip
        self.assertEqual(self.consumed("b"), [b"3", b"4"])
        self.assertEqual(self.post("/api/queues/move", {"topic": "a", "to": "b"}).value["moved"], 1)
        queue: Any = self.broker.queues.get("a")
        self.assertEqual((self.consumed("b"), queue.depth, queue.inFlight), ([b"5"], 0, 2))

    def test_moveManyMore(self) -> None:
        """A move takes all that wait, however many."""
        self.produce("c", *(b"%d" % number for number in range(1234)))
        self.assertEqual(self.post("/api/queues/move", {"topic": "c", "to": "d"}).value["moved"], 1234)
        self.assertEqual(self.consumed("d"), [b"%d" % number for number in range(1234)])

    def test_moveToFullQueue(self) -> None:
        """What the other queue has no room for stays, and the answer says why."""
        self.produce("b", b"0")
        self.consumed("b")
        full: Any = self.broker.queues.get("b")
        full.queue.bounds.maxMessages = 1
        self.produce("a", b"4")
        answer = self.post("/api/queues/move", {"topic": "a", "to": "b"}).value
        self.assertEqual(answer, {"moved": 1, "reason": "durable publish failed: queue is full"})
        self.assertEqual((self.consumed("b"), self.consumed("a")), ([b"3"], [b"4"]))

    def test_moveRefused(self) -> None:
        """A move needs a queue and another one, which is none of dead letters."""
        for value, code in (
            ({"topic": "a", "to": "a"}, 400),
            ({"topic": "a", "to": "$dead/a"}, 400),
            ({"topic": "a", "to": "$sys/a"}, 400),
            ({"topic": "a"}, 400),
            ({"topic": "z", "to": "b"}, 404),
            ({"topic": "a", "to": "b", "limit": -1}, 400),
        ):
            self.assertEqual(self.post("/api/queues/move", value).code, code, value)

    def test_cancelMessage(self) -> None:
        """One waiting message is removed by its id."""
        self.assertEqual(self.post("/api/queues/cancel", {"topic": "a", "message_id": "3"}).value, {"cancelled": True})
        self.assertEqual(self.post("/api/queues/cancel", {"topic": "a", "message_id": "1"}).value, {"cancelled": False})
        queue: Any = self.broker.queues.get("a")
        self.assertEqual((queue.depth, queue.inFlight), (0, 2))

    def test_hidden(self) -> None:
        """Queues that the operator may not see are 404 for all acts, and nothing happens."""
        acts = ("pause", "move", "cancel")
        self.admitted = Admitted(None, Granted(*(f"admin:api/queues/{act}" for act in acts)))
        for act in acts:
            asked = {"topic": "a", "to": "b", "message_id": "3"}
            self.assertEqual(self.post(f"/api/queues/{act}", asked).code, 404, act)
        queue: Any = self.broker.queues.get("a")
        self.assertEqual((queue.depth, queue.definition), (1, None))


class DeadLetterTests(ApiCase):
    """``/api/dead-letters/delete``."""

    def test_byIdAndByFilterAndAll(self) -> None:
        """Dead letters are deleted by their ids, by conditions, or all; the others stay."""
        self.bury("a", *(b"%d" % number for number in range(250)))
        delete = "/api/dead-letters/delete"
        self.assertEqual(self.post(delete, {"queue": "a", "ids": ["3", "x"]}).value, {"deleted": 1, "reason": None})
        self.assertEqual(self.post(delete, {"queue": "a", "reason": "rejected"}).value["deleted"], 0)
        self.assertEqual(self.post(delete, {"queue": "a", "limit": 2}).value["deleted"], 2)
        queue: Any = self.broker.queues.get("$dead/a")
        self.assertEqual((queue.depth, queue.inFlight), (247, 0))
        self.assertEqual(self.post(delete, {"queue": "a"}).value["deleted"], 247)
        self.assertEqual((queue.depth, queue.inFlight), (0, 0))

    def test_listedByIds(self) -> None:
        """The list takes several ids in its query."""
        self.bury("a", b"1", b"2", b"3")
        rows = self.ask("GET /api/dead-letters?queue=a&ids=1&ids=3").value["letters"]
        self.assertEqual([each["message_id"] for each in rows], ["1", "3"])

    def test_refused(self) -> None:
        """There must be dead letters, of a queue that the operator may see, and conditions must be right."""
        delete = "/api/dead-letters/delete"
        self.assertEqual(self.post(delete, {"queue": "a"}).code, 404)
        self.bury("a", b"1")
        for wrong in ({}, {"queue": "a", "ids": "1"}, {"queue": "a", "reason": "x"}, {"queue": "a", "before": "x"}):
            self.assertEqual(self.post(delete, wrong).code, 400, wrong)
        self.admitted = Admitted(None, Granted(f"admin:{delete[1:]}"))
        self.assertEqual(self.post(delete, {"queue": "a"}).code, 404)
        queue: Any = self.broker.queues.get("$dead/a")
        self.assertEqual(queue.depth, 1)


class ScheduleTests(ApiCase):
    """The acts on schedules."""

    def setUp(self) -> None:
        super().setUp()
        self.broker.defineQueue(self.ann, QueueDefinition("q"))
        topic, message = self.broker.topics.get("a"), Message(b"1", Content.BYTES, 1, "one")
        ids: list[int] = []
        self.broker.addSchedules(
            Envelope(topic, self.ann, OwnMessages()), message, 1, self.broker.schedules.now() + 60_000,
            lambda numbers, reason: ids.extend(numbers),
        )  # fmt: skip
        [self.number] = ids

    def test_aPageOfSchedulesIsCutAfterItsFilter(self) -> None:
        """A part of topic, message id or name, in any case of letters, chooses the rows before these are paged."""
        self.repeat("nightly")
        self.repeat("other")
        for number in range(1500):
            message = Message(b"1", Content.BYTES, 1, f"Mail-{number}" if number % 700 == 699 else None)
            self.broker.addSchedules(
                Envelope(self.broker.topics.get("b"), self.ann, OwnMessages()), message, 1,
                self.broker.schedules.now() + 1000 + number, lambda numbers, reason: None,
            )  # fmt: skip
        pages: list[list[str]] = []
        after: str | None = ""
        while after is not None:
            answer = self.ask(f"GET /api/schedules?contains=mAIL&limit=1&after={after}").value
            pages.append([each["message_id"] for each in answer["schedules"]])
            after = answer["next"]
        self.assertEqual(pages, [["Mail-699"], ["Mail-1399"]])
        self.assertEqual(
            [each["name"] for each in self.ask("GET /api/schedules?contains=NIGHT").value["repeats"]], ["nightly"]
        )
        self.assertEqual(len(self.ask("GET /api/schedules?contains=a&limit=1000").value["schedules"]), 3)

    def repeat(self, name: str, isSetting: bool = False) -> None:
        """Define a recurring schedule of the topic ``a``."""
        now = self.broker.schedules.now()
        self.broker.schedules.repeats.define(
            Repeat(
                name=name, topic="a", payload=b"1", header=b"", content=contentOf(Message(b"", Content.BYTES)),
                publisher=(1, "", DIALECTS["fleximq"]), start=now, since=now, every=1000, isSetting=isSetting,
            )
        )  # fmt: skip

    def test_cancel(self) -> None:
        """A message is cancelled by its id, once; the operator needs no right to publish."""
        self.admitted = Admitted(None, Granted("admin:api/schedules/cancel", "subscribe:a"))
        for cancelled in (True, False):
            answer = self.post("/api/schedules/cancel", {"id": self.number}).value
            self.assertEqual(answer, {"cancelled": cancelled})
        self.assertEqual(len(self.broker.schedules), 0)

    def test_pauseAndRemoveRecurring(self) -> None:
        """A recurring schedule is paused, resumed and removed by its name."""
        self.repeat("r")
        for asked, paused in (({"name": "r"}, True), ({"name": "r", "paused": False}, False)):
            self.assertEqual(self.post("/api/schedules/pause", asked).value, {"found": True})
            [row] = self.ask("GET /api/schedules").value["repeats"]
            self.assertEqual(row["paused"], paused)
        self.assertEqual(self.post("/api/schedules/cancel", {"name": "r"}).value, {"cancelled": True})
        self.assertEqual(self.ask("GET /api/schedules").value["repeats"], [])

    def test_hiddenOrUnknown(self) -> None:
        """Schedules of topics that the operator may not see are as unknown ones, and stay."""
        self.repeat("r")
        self.assertEqual(self.post("/api/schedules/pause", {"name": "x"}).code, 404)
        self.admitted = Admitted(None, Granted("admin:api/schedules/cancel", "admin:api/schedules/pause"))
        self.assertEqual(self.post("/api/schedules/cancel", {"id": self.number}).value, {"cancelled": False})
        for path in ("cancel", "pause"):
            self.assertEqual(self.post(f"/api/schedules/{path}", {"name": "r"}).code, 404)
        self.assertEqual((len(self.broker.schedules), len(self.broker.schedules.repeats)), (1, 1))

    def test_wrong(self) -> None:
        """Wrong arguments are 400, a schedule of the settings 409."""
        self.repeat("s", isSetting=True)
        for wrong in ({}, {"id": "x"}, {"id": -1}, {"id": self.number, "name": "s"}, {"name": ""}):
            self.assertEqual(self.post("/api/schedules/cancel", wrong).code, 400, wrong)
        self.assertEqual(self.post("/api/schedules/cancel", {"name": "s"}).code, 409)
        self.assertEqual(self.post("/api/schedules/pause", {"name": "s", "paused": "no"}).code, 400)

    def test_late(self) -> None:
        """The list says how late the first one is."""
        self.assertEqual(self.ask("GET /api/schedules").value["late"], 0)
