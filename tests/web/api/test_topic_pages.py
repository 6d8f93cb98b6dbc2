"""The pages of topics."""

import json
from bisect import bisect_left
from typing import Any

from twisted.internet.defer import Deferred

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.security.principal import Admitted
from fleximq.values.message import Content, Message
from fleximq.values.records import Run
from fleximq.web.api.topic_pages import TopicRates
from fleximq.web.request import PageRequest
from tests.broker.parts import Collector
from tests.web.api.api_case import ApiCase
from tests.web.api.journal_case import JournalCase
from tests.web.asking import Granted


class TopicCase(ApiCase):
    """A broker with topics."""

    def publish(self, name: str, number: int = 1) -> None:
        """Publish some messages."""
        body = [Message(b"x", Content.TEXT)] * number
        self.broker.publish(Envelope(self.broker.topics.get(name), self.ann, MessageSource()), body, number)

    def names(self, query: str) -> list[str]:
        """Return the names of a list."""
        return [each["topic"] for each in self.ask(f"GET /api/topics{query}").value["topics"]]


class ListTests(TopicCase):
    """``/api/topics`` with filters."""

    def test_prefixAndPart(self) -> None:
        """Topics are selected by the beginning of their names, and by a part of them."""
        for name in ("a.b", "a.c", "ab", "b.a.b", "\U0010ffff"):
            self.publish(name)
        self.assertEqual(self.names("?prefix=a."), ["a.b", "a.c"])
        self.assertEqual(self.names("?contains=a.b"), ["a.b", "b.a.b"])
        self.assertEqual(self.names("?prefix=a&contains=b"), ["a.b", "ab"])
        self.assertEqual(self.names("?prefix=&contains="), ["a.b", "a.c", "ab", "b.a.b", "\U0010ffff"])

    def test_pagesOfFilteredOnes(self) -> None:
        """Filtered topics are paged, however many others there are."""
        for number in range(3000):
            self.broker.topics.get(f"t{number:04}")
        seen, after = [], ""
        while after is not None:
            found = self.ask(f"GET /api/topics?contains=77&limit=7&after={after}").value
            seen += [each["topic"] for each in found["topics"]]
            after = found["next"]
        self.assertEqual(seen, [f"t{number:04}" for number in range(3000) if "77" in str(number)])

    def test_wrong(self) -> None:
        """A filter that is too long is refused."""
        self.assertEqual(self.ask(f"GET /api/topics?contains={'x' * 2000}").code, 400)


class StoredListTests(JournalCase):
    """``/api/topics`` of a broker whose journal has topics that were not used since its start."""

    def read(self, query: str) -> list[list[str]]:
        """Return the names of all pages."""
        found, after = [], ""
        while after is not None:
            answer = self.ask(f"GET /api/topics?{query}&after={after}").value
            found.append([each["topic"] for each in answer["topics"]])
            after = answer["next"]
        return found

    def test_listedWithThoseInUse(self) -> None:
        """Each is listed once, in the order of the names, with what the broker knows of it."""
        self.journal.append("$sys/own", 1, "", "fleximq", Run([b""], [b"1"], [0]), lambda offset, reason: None)
        self.journal.worker.step()
        for name in ("b", "d", "c"):  # each name after the first one makes the one before give way
            self.broker.topics.make(name, "ann", 1)
            self.store(name, b"1")
        self.broker.subscribe(self.broker.join("fleximq"), Collector(), "*")
        self.broker.topics.get("a")
        self.assertIsNone(self.broker.topics.find("b"))
        self.assertEqual(self.read("limit=2"), [["a", "b"], ["c", "d"]])
        self.assertEqual(self.read("prefix=b"), [["b"]])
        row = {"topic": "b", "subscribers": 1, "published": 0, "durable": True, "queued": None}
        self.assertEqual(self.ask("GET /api/topics?contains=b").value["topics"], [row])

    def test_aPageOfTenThousandLooksAtItsOwnNames(self) -> None:
        """The names before and after a page cost it nothing."""
        stored = [f"t{number:05}" for number in range(10_000)]
        named = dict.fromkeys(stored)
        looked: list[int] = []

        def topics(limit: int, start: str = "", before: str = "") -> list[str]:
            found = stored[bisect_left(stored, start) :][:limit]
            looked.append(len(found))
            return found

        self.patch(self.journal, "topics", topics)
        self.patch(self.journal, "bounds", lambda: named)
        self.assertEqual(sum(self.read("limit=1000"), []), stored)
        looked.clear()
        self.ask("GET /api/topics?limit=10&after=t05000")
        self.assertLess(sum(looked), 1100)


class BusiestTests(TopicCase):
    """``/api/topics/busiest``."""

    def measured(self, *requests: PageRequest) -> list[Any]:
        """Ask all at once, and publish while it is measured."""
        for name in "abc":
            self.broker.topics.get(name)
        rates = TopicRates(self.broker)
        found: list[Any] = []
        for request in requests:
            Deferred.fromCoroutine(rates.answer(request)).addCallback(found.append)
        self.clock.advance(0.1)
        self.publish("a", 5)
        self.publish("b", 50)
        self.publish("c", 2)
        self.clock.advance(1.0)
        self.clock.advance(0)
        self.assertEqual(len(found), len(requests))
        return [[(row["topic"], row["per_second"]) for row in json.loads(reply.body)["topics"]] for reply in found]

    def test_order(self) -> None:
        """Those with the most publications within the second are first, whatever was published before."""
        self.publish("c", 1000)
        rights = Granted("publish:a", "publish:b", "publish:c")
        [rows] = self.measured(PageRequest("GET", "/", {}, rights))
        self.assertEqual(rows, [("b", 50), ("a", 5), ("c", 2)])

    def test_sharedAndFiltered(self) -> None:
        """Requests meanwhile share one measurement, and each sees its own topics."""
        few, all_ = Granted("publish:a"), Granted("publish:a", "publish:b", "publish:c")
        asked = [PageRequest("GET", "/", {}, few), PageRequest("GET", "/", {"limit": 1}, all_)]
        asked.append(PageRequest("GET", "/", {"contains": "c"}, all_))
        self.assertEqual(self.measured(*asked), [[("a", 5)], [("b", 50)], [("c", 2)]])


class DetailTests(JournalCase):
    """``/api/topics/detail``."""

    def test_subscribers(self) -> None:
        """Subscribers are shown with the subscription by which they receive the topic."""
        self.store("last.a", b"1", b"2")
        for pattern in ("last.a", "last.*", "other"):
            listener = Collector()
            self.broker.subscribe(self.broker.join("fleximq"), listener, pattern)
        found = self.ask("GET /api/topics/detail?topic=last.a").value
        rows = [(each["client_id"], each["subscription"]) for each in found["listening"]]
        self.assertEqual(rows, [(1001, "last.a"), (1002, "last.*")])
        self.assertEqual((found["subscribers"], found["durable"], found["retained"]), (2, True, 2))
        self.assertEqual(
            found["stored"],
            {
                "first": 1, "last": 2, "first_time": 1_700_000_000_000, "last_time": 1_700_000_001_000, "messages": 2,
                "bytes": 2,
            },
        )  # fmt: skip

    def test_queues(self) -> None:
        """The queues that the topic fills are named, and subscriptions of BlipMQ counted."""
        self.broker.consume(self.ann, "q")
        self.broker.openSubscription(self.ann, "ann", "q", 1)
        found = self.ask("GET /api/topics/detail?topic=q").value
        self.assertEqual((found["queues"], found["polled"], found["stored"]), (["q"], 1, None))

    def test_onlyStored(self) -> None:
        """A topic that only the journal knows, as after a restart, is durable if the settings say so."""
        self.broker.topics.make("a", "ann", 1)
        self.store("a", b"1")
        self.broker.topics.make("b", "ann", 1)
        self.assertIsNone(self.broker.topics.find("a"))
        found = self.ask("GET /api/topics/detail?topic=a").value
        self.assertEqual((found["durable"], found["stored"]["messages"]), (True, 1))

    def test_unknown(self) -> None:
        """Topics that do not exist, or must not be seen, are 404."""
        self.store("a", b"1")
        self.assertEqual(self.ask("GET /api/topics/detail?topic=x").code, 404)
        self.admitted = Admitted(None, Granted("read:api/topics/detail"))
        self.assertEqual(self.ask("GET /api/topics/detail?topic=a").code, 404)
        self.assertEqual(self.ask("GET /api/topics/detail").code, 400)
