"""What ``/api/`` lists, and what it does."""

from typing import Any

from fleximq.broker.envelope import Envelope
from fleximq.broker.presence import OwnMessages
from fleximq.errors import Forbidden
from fleximq.security.principal import Admitted
from fleximq.values.message import Content, Message
from tests.web.api.api_case import ApiCase
from tests.web.asking import JSON, Granted


class ListingTests(ApiCase):
    """Reading."""

    def test_clientIsToldWithWhatIsKnownOfIt(self) -> None:
        """A client is told with what is known of it."""
        self.clock.advance(2)
        self.assertEqual(
            self.ask("GET /api/clients").value,
            {
                "clients": [
                    {
                        "client_id": 1000, "dialect": "minimq", "name": "minimq-1000", "client_name": None,
                "principal": "ann",
                        "address": "192.0.2.1:5", "connected": 2, "subscriptions": 0, "queues": [],
                        "received_messages": 0, "delivered_messages": 0, "received_bytes": 0, "sent_bytes": 0,
                        "unread_bytes": 0, "unread_limit": 0, "slow": [],
                    }
                ],
                "next": None,
            },
        )  # fmt: skip

    def test_listingsGoOnAfterKeyThatTheyEndWith(self) -> None:
        """Listings go on after the key that they end with."""
        for _ in range(4):
            self.broker.join("blipmq")
        first = self.ask("GET /api/clients?limit=3").value
        rest = self.ask(f"GET /api/clients?limit=3&after={first['next']}").value
        ids = [[each["client_id"] for each in part["clients"]] for part in (first, rest)]
        self.assertEqual((ids, rest["next"]), ([[1000, 1001, 1002], [1003, 1004]], None))

    def test_wrongPages(self) -> None:
        """A wrong key or limit is told."""
        for query in ("limit=0", "limit=1001", "limit=x", "after=x", f"limit={'9' * 5000}", f"after={'9' * 5000}"):
            self.assertEqual(self.ask(f"GET /api/clients?{query}").code, 400, query)

    def test_topicsAreToldWithTheirQueuesByName(self) -> None:
        """Topics are told with their queues, by name."""
        self.produce("b", b"1", b"2")
        self.broker.topics.get("a")
        rows = self.ask("GET /api/topics").value["topics"]
        found = [(each["topic"], each["published"], each["queued"]) for each in rows]
        self.assertEqual(found, [("a", 0, None), ("b", 2, 2)])

    def test_topicsSeen(self) -> None:
        """Only those topics are named that the visitor may do something with."""
        for name in ("a", "b", "c"):
            self.produce(name, b"1")
        self.broker.openSubscription(self.ann, "owner", "c", 1)
        for path, title in (("topics", "topics"), ("queues", "queues"), ("subscriptions", "subscriptions")):
            self.admitted = Admitted(None, Granted(f"read:api/{path}", "publish:a", "subscribe:b"))
            rows = self.ask(f"GET /api/{path}").value[title]
            self.assertEqual([each["topic"] for each in rows], [] if path == "subscriptions" else ["a", "b"])

    def test_queuesAreToldWithWhatIsInThem(self) -> None:
        """Queues are told with what is in them."""
        self.produce("a", b"1", b"2")
        self.broker.consume(self.ann, "a")
        (row,) = self.ask("GET /api/queues").value["queues"]
        row.pop("bytes")
        self.assertEqual(
            row,
            {
                "topic": "a", "dead_letters": False, "consumers": 1, "consumers_waiting": 0, "paused": False,
                "definition": None, "in_per_second": 0, "out_per_second": 0, "oldest_seconds": 0,
                "priorities": [{"priority": 4, "messages": 1, "in_flight": 1, "oldest_seconds": 0}],
                "messages": 1, "in_flight": 1, "returned": 0, "kept": False, "delayed": 0,
            },
        )  # fmt: skip

    def test_oneQueue(self) -> None:
        """A queue is listed alone by its topic."""
        for name in ("a", "b"):
            self.produce(name, b"1")
        rows = self.ask("GET /api/queues?topic=b").value["queues"]
        self.assertEqual([each["topic"] for each in rows], ["b"])

    def test_lookShowsOldestMessagesThoseDeliveredBeforeFirstAndChanges(self) -> None:
        """A look shows the oldest messages, those delivered before first, and changes nothing."""
        self.produce("a", b"1", b"2", b"x" * 70_000)
        delivery = self.broker.consume(self.ann, "a")
        self.clock.advance(31)
        for _ in range(2):
            found = self.ask("GET /api/queues/peek?topic=a").value
            rows = [[each[name] for name in ("deliveries", "bytes", "payload")] for each in found["messages"]]
            self.assertEqual((found["waiting"], rows), (3, [[1, 1, "MQ=="], [0, 1, "Mg=="], [0, 70_000, None]]))
        self.assertEqual(len(self.ask("GET /api/queues/peek?topic=a&limit=2").value["messages"]), 2)
        again = self.broker.consume(self.ann, "a")
        self.assertEqual((delivery and delivery.tag, again and again.tag), (1, 1))

    def test_peekLarge(self) -> None:
        """An answer has about 1 MiB at most, ids (here as long as payloads) included."""
        self.produce("a", *[b"x" * 60_000] * 30)
        found = self.ask("GET /api/queues/peek?topic=a&limit=30").value
        self.assertEqual((found["waiting"], len(found["messages"])), (30, 9))

    def test_peekRefused(self) -> None:
        """A look needs the right to consume, a queue, and a limit within bounds."""
        self.produce("a", b"1")
        for query, code in (("topic=b", 404), ("", 400), ("topic=a&limit=101", 400)):
            self.assertEqual(self.ask(f"GET /api/queues/peek?{query}").code, code)
        self.admitted = Admitted(None, Granted("read:api/queues/peek", "subscribe:a", "publish:a"))
        self.assertEqual(self.ask("GET /api/queues/peek?topic=a").code, 403)

    def test_subscriptionsAreToldWithoutWhoOwnsThem(self) -> None:
        """Subscriptions are told without who owns them."""
        self.broker.openSubscription(self.ann, "secret owner", "a", 1)
        answer = self.ask("GET /api/subscriptions")
        (row,) = answer.value["subscriptions"]
        self.assertEqual((row["subscription"], row["topic"], row["qos"], row["connected"]), (1, "a", 1, True))
        self.assertNotIn(b"secret owner", answer.body)

    def test_withoutJournalThereAreNoConsumerGroups(self) -> None:
        """Without a journal there are no consumer groups."""
        self.assertEqual(self.ask("GET /api/groups").value, {"groups": [], "next": None, "end": None})

    def test_settingsAreForAdmins(self) -> None:
        """The right to read does not show the settings."""
        self.admitted = Admitted(None, Granted("read:api/settings"))
        self.assertEqual(self.ask("GET /api/settings").code, 403)

    def test_settingsAreToldWithoutWhatMayBeSecret(self) -> None:
        """Settings are told without what may be a secret."""
        answer = self.ask("GET /api/settings")
        settings = answer.value["settings"]
        self.assertEqual((settings["spawn"], settings["listen"]), (["program"], ["tcp:7890"]))
        self.assertNotIn(b"hidden", answer.body)

    def test_indexTellsWhatThisVisitorMayAskFor(self) -> None:
        """The index tells what this visitor may ask for."""
        self.admitted = Admitted(None, Granted("read:api/", "read:api/about", "admin:api/queues/purge"))
        paths = [(each["method"], each["path"]) for each in self.ask("GET /api/").value["paths"]]
        self.assertEqual(paths, [("GET", "/api/"), ("GET", "/api/about"), ("POST", "/api/queues/purge")])

    def test_pagesSayWhatTheyDo(self) -> None:
        """Each page has a sentence about it, and so has each of its arguments, of a type of JSON."""
        for path, page in self.pages.items():
            if path.startswith("/api/"):
                for words in (page.words, *(each.words for each in page.arguments)):
                    self.assertRegex(words, r"\A[A-Z][^\n]*\.\Z", path)
                for each in page.arguments:
                    self.assertIn(each.kind, ("string", "integer", "boolean", "array"), path)


class Conversation:
    """Remembers with which error it was ended."""

    def __init__(self) -> None:
        self.errors: list[Any] = []

    def expel(self, error: Any) -> None:
        """Take note."""
        self.errors.append(error)


class ActingTests(ApiCase):
    """Acting."""

    def test_clientIsToldThatOperatorEndsIt(self) -> None:
        """A client is told that the operator ends it."""
        conversation: Any = Conversation()
        self.ann.conversation = conversation
        answer = self.post("/api/clients/disconnect", {"client_id": 1000})
        self.assertEqual((answer.code, answer.value), (200, {"disconnected": 1000}))
        self.assertEqual([(type(each), str(each)) for each in conversation.errors],
                         [(Forbidden, "disconnected by the operator")])  # fmt: skip

    def test_disconnectNobody(self) -> None:
        """One that is not there is 404, no number 400."""
        self.assertEqual(self.post("/api/clients/disconnect", {"client_id": 1}).code, 404)
        self.assertEqual(self.post("/api/clients/disconnect", {"client_id": "1000"}).code, 400)
        self.assertEqual(self.post("/api/clients/disconnect", {}).code, 400)

    def test_unpackable(self) -> None:
        """Values that could not be sent to other nodes are 400, also in keys that nobody reads, and nothing is done."""
        conversation: Any = Conversation()
        self.ann.conversation = conversation
        deep = "[" * 300 + "]" * 300
        for extra in (str(1 << 80), str(-(1 << 63) - 1), '"\\ud800"', '["\\udfff"]', '{"\\ud800": 1}', deep):
            for path in ("/api/clients/kick", "/api/clients/disconnect", "/api/bans/add"):
                said = f'{{"client_id": 1000, "x": {extra}}}'.encode()
                self.assertEqual(self.ask(f"POST {path}", JSON, body=said).code, 400, extra)
        self.assertEqual(conversation.errors, [])
        self.assertEqual(self.post("/api/clients/disconnect", {"client_id": 1000, "x": (1 << 64) - 1}).code, 200)

    def test_purge(self) -> None:
        """What waits in a queue is thrown away, what is in flight stays, and the queue goes on."""
        self.produce("a", *(b"%d" % number for number in range(2500)))
        self.broker.consume(self.ann, "a")
        self.assertEqual(self.post("/api/queues/purge", {"topic": "a"}).value, {"purged": 2499, "reason": None})
        self.produce("a", b"new")
        queue = self.broker.queues.get("a")
        self.assertEqual((queue and queue.inFlight, self.consumed("a")), (1, [b"new"]))

    def test_purgeSubscription(self) -> None:
        """So is what waits for a subscription, tracked or not."""
        subscription = self.broker.openSubscription(self.ann, "ann", "a", 1)
        for qos in (0, 1, 0):
            envelope = Envelope(self.broker.topics.get("a"), self.ann, OwnMessages(), qos)
            self.broker.publish(envelope, Message(b"x", Content.BYTES, qos), 1)
        self.assertEqual(subscription.depth, 3)
        self.assertEqual(self.post("/api/queues/purge", {"subscription": 1}).value["purged"], 3)
        self.assertEqual((subscription.depth, subscription.inFlight), (0, 0))

    def test_purgeNothing(self) -> None:
        """No queue is 404, no name 400; and of a topic that the visitor may not name nothing is said."""
        self.produce("a", b"1")
        for value, code in (
            ({"topic": "b"}, 404),
            ({"subscription": 5}, 404),
            ({}, 400),
            ({"topic": 5}, 400),
            ({"topic": "\ud800"}, 400),
        ):
            self.assertEqual(self.post("/api/queues/purge", value).code, code, value)
        self.admitted = Admitted(None, Granted("admin:api/queues/purge"))
        self.assertEqual(self.post("/api/queues/purge", {"topic": "a"}).code, 404)
        self.assertEqual(self.consumed("a"), [b"1"])

    def test_giveBack(self) -> None:
        """Dead letters come back to the queue of their topic, in order, and are dead no more."""
        self.produce("a", b"0")
        self.bury("a", *(b"%d" % number for number in range(1, 251)))
        answer = self.post("/api/dead-letters/return", {"topic": "a"})
        self.assertEqual(answer.value, {"returned": 250, "reason": None})
        self.assertEqual(self.consumed("a"), [b"%d" % number for number in range(251)])
        self.assertEqual(self.consumed("$dead/a"), [])

    def test_giveSomeBack(self) -> None:
        """A limit is kept; the topic may be named with what stands before dead ones."""
        self.bury("a", b"1", b"2", b"3")
        self.assertEqual(self.post("/api/dead-letters/return", {"topic": "$dead/a", "limit": 2}).value["returned"], 2)
        self.assertEqual((self.consumed("a"), self.consumed("$dead/a")), ([b"1", b"2"], [b"3"]))

    def test_giveBackToFull(self) -> None:
        """What the queue has no room for stays a dead letter, and the answer says why."""
        self.produce("a", b"0")
        self.consumed("a")
        queue = self.broker.queues.get("a")
        assert queue is not None
        queue.queue.bounds.maxMessages = 1
        self.bury("a", b"1", b"2", b"3")
        answer = self.post("/api/dead-letters/return", {"topic": "a"}).value
        self.assertEqual(answer, {"returned": 1, "reason": "durable publish failed: queue is full"})
        self.assertEqual((self.consumed("a"), self.consumed("$dead/a")), ([b"1"], [b"2", b"3"]))

    def test_giveNothingBack(self) -> None:
        """There must be dead letters of the topic."""
        self.assertEqual(self.post("/api/dead-letters/return", {"topic": "a"}).code, 404)
