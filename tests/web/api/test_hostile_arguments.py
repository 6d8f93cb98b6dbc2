"""Every page with arguments that are made to break it, and every page without rights."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from fleximq.rights import Action
from fleximq.security.principal import Admitted
from fleximq.services.operator import Operator
from fleximq.web.api.api import apiTable
from fleximq.web.request import Argument, Page
from tests.web.api.journal_case import JournalCase
from tests.web.asking import Granted

MARKUP = "<script>alert(1)</script>"
TEXTS = (
    "", "x", MARKUP, "\x00", "\x1b[2J", "a" * 5000, "\U0010ffff", "#", "*", "a.#.b", "$sys/values", "$dead/",
    "$queue/q", "../../etc/passwd", "-1", "0", "9" * 19, "9" * 5000, "1e400", "true", "null", "%s%s", "{client_id}",
    "2024-13-45T99:99",
)  # fmt: skip
VALUES: tuple[Any, ...] = (*TEXTS, None, True, 0, -1, 1 << 62, 1.5, [], {}, [None] * 1001, {"x": [1]}, ["\x00"])
FAULTS = frozenset(range(500, 600)) - {501, 503}


class HostileTests(JournalCase):
    """What no request may do."""

    def setUp(self) -> None:
        super().setUp()
        self.store("t", b"one")
        self.produce("q", b"two")
        self.journal.worker.step()
        self.bury("q", b"three")
        self.journal.worker.step()
        reload: Any = None
        bans: Any = None
        self.broker.operator = Operator(self.broker, bans, reload)

    def turn(self) -> None:
        self.clock.advance(0.1)
        self.journal.worker.step()

    def table(self) -> Iterator[tuple[str, Page]]:
        """Yield the pages, except those that act on bans, which this broker does not have."""
        return ((path, page) for path, page in apiTable().items() if not path.startswith("/api/bans"))

    def arguments(self, page: Page) -> dict[str, Any]:
        """Return arguments that exist, so that each one can be wrong alone."""
        known = {"topic": "q", "queue": "q", "to": "z", "message_id": "two", "client_id": self.ann.id, "principal": "p"}
        known |= {"action": "publish", "name": "n", "trace": 1, "limit": 5}
        return {each.name: known[each.name] for each in page.arguments if each.name in known}

    def query(self, arguments: dict[str, Any]) -> str:
        """Return them as a query."""
        return "&".join(
            f"{name}={quote(str(value), safe='', errors='surrogatepass')}" for name, value in arguments.items()
        )

    def test_noneIsAFault(self) -> None:
        """No argument of a page leads to an internal error, and each answer is JSON."""
        for path, page in self.table():
            for argument in page.arguments:
                self.hostile(path, page, argument)

    def hostile(self, path: str, page: Page, argument: Argument) -> None:
        """Ask with all values of an argument."""
        others = self.arguments(page)
        for value in VALUES if page.post else TEXTS:
            asked = {**others, argument.name: value}
            if page.post:
                answer = self.post(path, asked)
            else:
                answer = self.ask(f"GET {path}?{self.query(asked)}")
            self.assertNotIn(answer.code, FAULTS, f"{path} {argument.name} {str(value)[:50]!r} {answer.body[:200]!r}")
            json.loads(answer.body)
            self.assertEqual(answer.fields["content-type"], "application/json; charset=utf-8")

    def test_readingChangesNothing(self) -> None:
        """No page that reads changes what waits, is stored, or who is there."""
        before = self.state()
        for path, page in self.table():
            if not page.post:
                self.ask(f"GET {path}?{self.query(self.arguments(page))}")
                self.assertEqual(self.state(), before, path)

    def state(self) -> Any:
        """Return what could change."""
        queues = [(each.name, each.depth, each.inFlight, each.definition) for each in self.broker.queues]
        names = sorted(topic.name for topic in self.broker.topics)
        return queues, names, self.journal.end, len(self.broker.clients), len(self.broker.schedules)

    def test_nothingWithoutRights(self) -> None:
        """Without the right to a path there is 403, whatever it is asked with, and nothing happens."""
        before = self.state()
        self.admitted = Admitted(None, Granted("subscribe:t", "publish:q", "consume:q"))
        for path, page in apiTable().items():
            asked = self.arguments(page)
            if page.post:
                answer = self.post(path, asked)
            else:
                answer = self.ask(f"GET {path}?{self.query(asked)}")
            self.assertEqual((answer.code, answer.value), (403, {"error": "not permitted"}), path)
        self.assertEqual(self.state(), before)

    def test_nothingWithoutCredentials(self) -> None:
        """Without required credentials there is 401."""
        self.admitted = None
        for path, page in apiTable().items():
            answer = self.post(path, {}) if page.post else self.ask(f"GET {path}")
            self.assertEqual(answer.code, 401, path)

    def test_readersDoNotAct(self) -> None:
        """The right to read all paths acts on nothing, and sees nothing for admins."""
        self.admitted = Admitted(None, Granted(*(f"read:{path[1:]}" for path in apiTable())))
        for path, page in apiTable().items():
            if page.action is Action.ADMIN:
                answer = self.post(path, self.arguments(page)) if page.post else self.ask(f"GET {path}")
                self.assertEqual(answer.code, 403, path)

    def test_wrongMethods(self) -> None:
        """A page that reads is not posted to, and one that acts is not read."""
        for path, page in apiTable().items():
            answer = self.ask(f"GET {path}") if page.post else self.post(path, {})
            self.assertEqual(answer.code, 405, path)

    def test_hiddenNames(self) -> None:
        """Topics without a right are in no answer of any page that reads."""
        hidden = "hidden-topic"
        self.store(hidden, b"x")
        self.produce(hidden, b"y")
        self.journal.worker.step()
        reads = [path for path, page in self.table() if not page.post and page.action is Action.READ]
        self.admitted = Admitted(None, Granted(*(f"read:{path[1:]}" for path in reads), "subscribe:t"))
        for path in reads:
            for query in ("", "?topic=t", f"?client_id={self.ann.id}", "?contains=hidden", "?prefix=hidden"):
                self.assertNotIn(hidden.encode(), self.ask(f"GET {path}{query}").body, path + query)
