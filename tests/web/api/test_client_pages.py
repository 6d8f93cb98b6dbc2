"""The pages of clients."""

from collections.abc import Sequence
from typing import Any

from zope.interface import implementer

from fleximq.interfaces import IConversation
from fleximq.security.principal import Admitted
from fleximq.values.connection_load import ConnectionLoad
from tests.broker.parts import Collector
from tests.web.api.api_case import ApiCase
from tests.web.asking import Granted


@implementer(IConversation)
class Loaded:
    """A conversation of which only the load is asked."""

    def __init__(self, *slow: str) -> None:
        self.slow = slow

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """Ignore it."""

    def refusal(self) -> str | None:
        """Return None."""
        return None

    def expel(self, error: Any) -> None:
        """Ignore it."""

    def load(self) -> ConnectionLoad:
        """Return some numbers."""
        return ConnectionLoad(1, 2, 3, 4, 50, 60, self.slow)


class ClientCase(ApiCase):
    """A broker with three further clients, one of them slow."""

    def setUp(self) -> None:
        super().setUp()
        self.bob = self.broker.join("fleximq", principal="bob", address="192.0.2.2:6", conversation=Loaded())
        self.eve = self.broker.join("fleximq", address="192.0.2.9:6", conversation=Loaded("it does not read"))
        self.broker.rename(self.eve, "worker")

    def ids(self, query: str) -> list[int]:
        """Return the ids of a list."""
        return [each["client_id"] - 1000 for each in self.ask(f"GET /api/clients{query}").value["clients"]]


class ListTests(ClientCase):
    """``/api/clients``."""

    def test_load(self) -> None:
        """A client is shown with what it has carried, what is unread, and what holds it up."""
        row = self.ask("GET /api/clients").value["clients"][2]
        names = "received_bytes", "sent_bytes", "received_messages", "delivered_messages", "unread_bytes"
        self.assertEqual([row[name] for name in names], [1, 2, 3, 4, 50])
        self.assertEqual((row["unread_limit"], row["slow"]), (60, ["it does not read"]))

    def test_filters(self) -> None:
        """Clients are selected by dialect, principal, slowness, and a part of their names."""
        for query, ids in (
            ("?dialect=fleximq", [1, 2]),
            ("?principal=bob", [1]),
            ("?slow=true", [2]),
            ("?slow=false", [0, 1, 2]),
            ("?contains=192.0.2.9", [2]),
            ("?contains=work", [2]),
            ("?contains=bob&dialect=minimq", []),
            ("?dialect=&contains=", [0, 1, 2]),
        ):
            self.assertEqual(self.ids(query), ids, query)
        self.assertEqual(self.ask("GET /api/clients?slow=maybe").code, 400)


class DetailTests(ClientCase):
    """``/api/clients/detail``."""

    def test_subscriptionsArePaged(self) -> None:
        """The subscriptions of a client are paged by name."""
        listener = Collector()
        for name in ("b", "a.*", "c"):
            self.broker.subscribe(self.bob, listener, name)
        found = self.ask(f"GET /api/clients/detail?client_id={self.bob.id}&limit=2").value
        self.assertEqual((found["principal"], found["subscribed"], found["next"]), ("bob", ["a.*", "b"], "b"))
        rest = self.ask(f"GET /api/clients/detail?client_id={self.bob.id}&limit=2&after=b").value
        self.assertEqual((rest["subscribed"], rest["next"]), (["c"], None))

    def test_hiddenTopics(self) -> None:
        """Topics and queues that the request may not see are left out."""
        listener = Collector()
        for name in ("a", "b"):
            self.broker.subscribe(self.bob, listener, name)
            self.broker.consumeFrom(self.bob, name, lambda deliveries: None, lambda error: None)
        self.admitted = Admitted(None, Granted("read:api/clients/detail", "publish:a"))
        found = self.ask(f"GET /api/clients/detail?client_id={self.bob.id}").value
        self.assertEqual((found["subscribed"], found["queues"]), (["a"], ["a"]))

    def test_unknown(self) -> None:
        """An unknown client is 404, no number 400."""
        self.assertEqual(self.ask("GET /api/clients/detail?client_id=1").code, 404)
        for query in ("client_id=x", "", "client_id=-1"):
            self.assertEqual(self.ask(f"GET /api/clients/detail?{query}").code, 400)
