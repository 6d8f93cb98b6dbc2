"""What the broker tells about itself."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from fleximq.broker.paths import arguments as listings
from fleximq.broker.paths import dead_letter_paths, path_table, queue_paths
from fleximq.broker.paths.group_paths import GROUP_PATHS
from fleximq.broker.paths.journal_paths import JOURNAL_PATHS
from fleximq.broker.paths.path_table import PATHS
from fleximq.broker.paths.schedule_paths import SCHEDULE_PATHS
from fleximq.broker.paths.value_paths import VALUE_PATHS
from fleximq.broker.paths.work_queue_paths import WORK_QUEUE_PATHS
from fleximq.errors import BadRequest, NotFound, NotImplementedByBroker, NotPermitted
from fleximq.interfaces import IOperator
from fleximq.rights import ALL_BUT_ADMIN, EVERYTHING
from fleximq.security.permissions import Rights
from tests.broker.parts import Collector, ask, askAt, makeBroker
from tests.slow_journal import SlowJournal


@implementer(IOperator)
class Changing:
    """Does nothing, and answers."""

    def reload(self) -> dict[str, Any]:
        """Name a setting."""
        return {"changed": ["auth"], "restart": []}

    def perform(self, act: str, arguments: Any, by: str) -> tuple[Any, Any]:
        """Return nothing."""
        return {}, {}


class PathTests(SynchronousTestCase):
    """Every path, asked through the broker."""

    def setUp(self) -> None:
        """A broker with three clients."""
        self.clock = Clock()
        self.broker = makeBroker(self.clock)
        self.clients = [
            self.broker.join(dialect, address=f"at {dialect}") for dialect in ("fleximq", "blipmq", "minimq")
        ]

    def ask(self, path: str, **arguments: Any) -> Any:
        """Return an answer, after it went through MessagePack."""
        return askAt(self.broker, path, arguments)

    def test_paths(self) -> None:
        """Three tell about the broker, the others change something; each answers without arguments too."""
        acts = ["ban", "bans", "kick", "unban"]
        paths = sorted(f"/broker/{each}" for each in ("about", "clients", "reload", "topics", *acts))
        self.broker.operator = Changing()
        others = {*JOURNAL_PATHS, *GROUP_PATHS, *WORK_QUEUE_PATHS, *SCHEDULE_PATHS, *VALUE_PATHS}
        others |= {*queue_paths.READING, *queue_paths.ACTING, *dead_letter_paths.READING, *dead_letter_paths.ACTING}
        self.assertEqual(sorted(set(PATHS) - others), paths)
        for path in paths:
            self.assertEqual(type(askAt(self.broker, path, None)), dict)

    def test_longPath(self) -> None:
        """The error for an unknown path names 200 characters of it."""
        error = self.assertRaises(NotFound, self.ask, "x" * 60_000)
        self.assertEqual(str(error), f"the broker has no path '{'x' * 197}...'")

    def test_hint(self) -> None:
        """The error for an unknown path names the nearest one, if the client may request it."""
        hint = ", did you mean /broker/reload?"
        for path, rights, end in (
            ("/broker/relaod", EVERYTHING, hint), ("/broker/relaod", ALL_BUT_ADMIN, ""),
            ("/broker/none-of-these", EVERYTHING, ""),
        ):  # fmt: skip
            client = self.broker.join("any", rights=rights)
            error = self.assertRaises(NotFound, path_table.answer, self.broker, client, path, None, lambda answer: None)
            self.assertEqual(str(error), f"the broker has no path {path!r}{end}")

    def test_reload(self) -> None:
        """What reads the settings again says what is answered, or refuses; where there is nothing to read, 501."""
        self.assertRaises(NotImplementedByBroker, self.ask, "/broker/reload")
        self.broker.operator = Changing()
        self.assertEqual(self.ask("/broker/reload"), {"changed": ["auth"], "restart": []})

    def test_admin(self) -> None:
        """Without permissions, what changes something for others still needs the right to admin."""
        self.broker.operator = Changing()
        asked: list[Any] = []
        for rights in (EVERYTHING, ALL_BUT_ADMIN):
            client = self.broker.join("any", rights=rights)
            path_table.answer(self.broker, client, "/broker/about", None, asked.append)
        self.assertEqual(len(asked), 2)
        for path in ("/broker/reload", *queue_paths.ACTING, *dead_letter_paths.ACTING):
            self.assertRaises(NotPermitted, path_table.answer, self.broker, client, path, None, asked.append)

    def test_about(self) -> None:
        """Counts of everything."""
        self.clock.advance(1.5)
        self.broker.subscribe(self.clients[0], Collector(), "t")
        self.broker.openSubscription(self.clients[1], None, "u", 1)
        self.broker.consume(self.clients[2], "q")
        about = self.ask("/broker/about")
        self.assertEqual(
            [about[name] for name in ("clients", "topics", "queues", "subscriptions", "uptime")], [3, 3, 1, 1, 1.5]
        )
        self.assertEqual(about["dialects"], ["fleximq", "blipmq", "minimq", "identity"])
        self.assertEqual(about["counts"]["joined: blipmq"], 1)

    def test_manyClients(self) -> None:
        """A long list is looked through in slices, so it is answered in a later turn."""
        for _ in range(2500):
            self.broker.join("any")
        answers: list[Any] = []
        path_table.answer(
            self.broker, self.clients[0], "/broker/clients", {"after": 1002, "limit": 1000}, answers.append
        )
        self.assertEqual(answers, [])
        self.clock.pump([0] * 3)
        [answer] = answers
        self.assertEqual([row["client_id"] for row in answer["clients"]], list(range(1003, 2003)))
        self.assertEqual(answer["next"], 2002)

    def test_hiddenTopics(self) -> None:
        """Who may see few of many topics gets a shorter page, and the name after which to continue."""
        self.patch(listings, "_LOOKED_AT_IN_ALL", 2 * 1001)
        for number in range(5000):
            self.broker.topics.get(f"{number:04}")
        client = self.broker.join("any", rights=Rights({"read": ("#",), "publish": ("0007", "4321")}))
        after: str | None = ""
        pages: list[list[str]] = []
        while after is not None:
            answers: list[Any] = []
            path_table.answer(self.broker, client, "/broker/topics", {"after": after}, answers.append)
            self.clock.pump([0] * 5)
            [answer] = answers
            pages.append([row["topic"] for row in answer["topics"]])
            after = answer["next"]
        self.assertEqual(pages, [["0007"], [], ["4321"]])

    def test_failedLater(self) -> None:
        """The audit log has an act when it is done, or its error, which may come later."""
        written: list[Any] = []
        journal = SlowJournal()
        self.broker = makeBroker(self.clock, journal)
        self.patch(self.broker, "audit", lambda event, *rest, **fields: written.append(fields.get("error")))
        for reason in ("not a directory", None):
            self.patch(journal, "reopen", lambda found, why=reason: self.clock.callLater(1, found, why))
            path_table.answer(self.broker, self.broker.brokerClient, "/journal/reopen", {}, lambda answer: None)
            self.assertEqual(len(written), 0 if reason else 1)
            self.clock.advance(1)
        self.assertEqual(written, ["not a directory", None])

    def test_journal(self) -> None:
        """How the journal is; nothing without one."""
        self.assertIsNone(self.ask("/broker/about")["journal"])
        journal = SlowJournal()
        journal.readOnly = "no space left on device"
        self.broker = makeBroker(self.clock, journal)
        self.assertEqual(
            [self.ask("/broker/about")["journal"][name] for name in ("state", "reason")],
            ["read-only", "no space left on device"],
        )

    def test_clients(self) -> None:
        """Everybody, with address, age and number of subscriptions."""
        self.clock.advance(2)
        self.broker.subscribe(self.clients[0], Collector(), "t")
        self.broker.subscribe(self.clients[0], Collector(), "t.*")
        first = self.ask("/broker/clients")["clients"][0]
        self.assertEqual(
            first,
            {
                "client_id": 1000,
                "dialect": "fleximq",
                "name": "fleximq-1000",
                "client_name": None,
                "principal": None,
                "address": "at fleximq",
                "connected": 2.0,
                "subscriptions": 2,
                "queues": [],
                "received_messages": 0,
                "delivered_messages": 0,
                "received_bytes": 0,
                "sent_bytes": 0,
                "unread_bytes": 0,
                "unread_limit": 0,
                "slow": [],
            },
        )

    def test_clientsHideQueues(self) -> None:
        """Those that the client which asks has no right to."""
        for name in ("open", "secret"):
            self.broker.consumeFrom(self.clients[2], name, lambda deliveries: None, lambda error: None)
        asking = self.broker.join("fleximq")
        asking.rights = Rights({"read": ["#"], "consume": ["open"]})
        answers: list[Any] = []
        ask(self.broker, asking, "/broker/clients", {}, answers.append)
        [answer] = answers
        self.assertEqual([row["queues"] for row in answer["clients"]], [[], [], ["open"], []])

    def test_polledSubscriptions(self) -> None:
        """Subscriptions that a client polls count too."""
        self.broker.subscribe(self.clients[1], Collector(), "t")
        self.broker.openSubscription(self.clients[1], None, "u", 1)
        self.assertEqual([row["subscriptions"] for row in self.ask("/broker/clients")["clients"]], [0, 2, 0])

    def test_topics(self) -> None:
        """Every topic, with what is queued where there is a queue."""
        self.broker.subscribe(self.clients[0], Collector(), "b")
        self.broker.consume(self.clients[2], "a")
        self.assertEqual(
            self.ask("/broker/topics")["topics"],
            [
                {"topic": "a", "subscribers": 0, "published": 0, "durable": False, "queued": 0},
                {"topic": "b", "subscribers": 1, "published": 0, "durable": False, "queued": None},
            ],
        )

    def test_limits(self) -> None:
        """1 to 1,000 rows a page, 100 where nothing is said."""
        for number in range(1200):
            self.broker.topicFor(self.clients[0], f"t{number:04}")
        for limit in (1, 2, 999, 1000):
            self.assertEqual(len(self.ask("/broker/topics", limit=limit)["topics"]), limit)
        self.assertEqual(len(self.ask("/broker/topics")["topics"]), 100)
        for wrong in (0, -1, 1001, "5", 1.0, True, None):
            self.assertRaises(
                BadRequest,
                path_table.answer,
                self.broker,
                self.clients[0],
                "/broker/topics",
                {"limit": wrong},
                self.fail,
            )

    def test_after(self) -> None:
        """``after`` is an id for clients, a name for topics; it need not exist."""
        self.assertEqual(
            [each["client_id"] for each in self.ask("/broker/clients", after=1000)["clients"]], [1001, 1002]
        )
        self.assertEqual(self.ask("/broker/clients", after=5000), {"clients": [], "next": None})
        for path, after in (
            ("/broker/clients", "x"),
            ("/broker/clients", True),
            ("/broker/topics", 5),
            ("/broker/topics", b"x"),
        ):
            self.assertRaises(
                BadRequest, path_table.answer, self.broker, self.clients[0], path, {"after": after}, self.fail
            )

    def test_lastPage(self) -> None:
        """A page that is just full, and the last one, says that nothing follows."""
        for limit, following in ((2, 1001), (3, None), (4, None)):
            self.assertEqual(self.ask("/broker/clients", limit=limit)["next"], following)

    @settings(deadline=None)
    @given(st.sets(st.text("abc.", min_size=1, max_size=4), max_size=30), st.integers(1, 12))
    def test_paged(self, names: set[str], limit: int) -> None:
        """Pages put together are everything, in order, none too long, and the last says so."""
        broker = makeBroker(Clock())
        client = broker.join("any")
        for name in names:
            broker.topicFor(client, name)
        found: list[str] = []
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            page = askAt(broker, "/broker/topics", {"after": page["next"], "limit": limit})
            self.assertLessEqual(len(page["topics"]), limit)
            found += [each["topic"] for each in page["topics"]]
        self.assertEqual(found, sorted(names))

    def test_unknown(self) -> None:
        """Any other path: not found."""
        for path in ("", "/", "/broker", "/broker/", "/broker/about/", "/BROKER/ABOUT", "/journal"):
            self.assertRaises(NotFound, path_table.answer, self.broker, self.clients[0], path, None, self.fail)
            self.assertRaises(NotFound, path_table.readArguments, self.broker, self.clients[0], path, b"")

    def test_noMap(self) -> None:
        """Arguments are a map or nothing."""
        for arguments in ([], [1], "x", 5, True, b""):
            self.assertRaises(
                BadRequest, path_table.answer, self.broker, self.clients[0], "/broker/about", arguments, self.fail
            )

    def test_unknownArguments(self) -> None:
        """Arguments that nobody knows are ignored."""
        self.assertEqual(len(self.ask("/broker/clients", colour="red")["clients"]), 3)
