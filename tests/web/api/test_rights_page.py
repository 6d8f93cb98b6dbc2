"""Whether a principal may do something, and which rule decides it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.permission_options import tables
from fleximq.security.access_policy import AccessPolicy
from fleximq.security.permissions import Permissions
from fleximq.security.principal import Admitted, Principal
from fleximq.values.patterns import anyOf
from tests.web.api.api_case import ApiCase
from tests.web.asking import Granted

ROLES = {
    "everyone": {"publish": ["public.#"]},
    "staff": {"publish": ["orders.#"], "subscribe": ["orders.#"], "deny": {"publish": ["orders.secret"]}},
}
PRINCIPALS = {
    "alice": {"roles": ["staff"], "publish": ["inbox.{principal}", "of.{client_id}"], "read": ["api/#"]},
    "anonymous": {"publish": ["guests"]},
}


class RightsPageTests(ApiCase):
    """``/api/rights``."""

    def setUp(self) -> None:
        super().setUp()
        self.policy.permissions = Permissions(tables("roles", ROLES), tables("principals", PRINCIPALS))

    def decided(self, who: str, action: str, name: str) -> tuple[Any, ...]:
        """Return the decision, and table, kind and pattern of the rule."""
        answer = self.ask(f"GET /api/rights?{who}&action={action}&name={name}")
        self.assertEqual(answer.code, 200, answer.value)
        rule = answer.value["rule"]
        return answer.value["permitted"], None if rule is None else (rule["table"], rule["deny"], rule["pattern"])

    def test_rules(self) -> None:
        """The rule that grants or denies is named with its table."""
        for action, name, permitted, rule in (
            ("publish", "orders.eu", True, ("[roles.staff]", False, "orders.#")),
            ("publish", "orders.secret", False, ("[roles.staff]", True, "orders.secret")),
            ("publish", "inbox.alice", True, ("[principals.alice]", False, "inbox.{principal}")),
            ("publish", "inbox.bob", False, None),
            ("publish", "public.a", True, ("[roles.everyone]", False, "public.#")),
            ("read", "/api/queues", True, ("[principals.alice]", False, "api/#")),
            ("admin", "/api/queues", False, None),
            ("subscribe", "*.eu", True, ("[roles.staff]", False, "orders.#")),
            ("publish", "$dead/orders", False, None),
        ):
            self.assertEqual(self.decided("principal=alice", action, name.replace("#", "%23")), (permitted, rule), name)

    def test_words(self) -> None:
        """The decision is a sentence too, which says if roles may be missing."""
        answer = self.ask("GET /api/rights?principal=alice&action=publish&name=orders.eu").value
        self.assertEqual(answer["words"], "alice may publish 'orders.eu': it is granted by 'orders.#' in [roles.staff]")
        answer = self.ask("GET /api/rights?principal=carol&action=publish&name=orders.eu").value
        self.assertEqual(
            answer["words"],
            "carol may not publish 'orders.eu': no rule grants it; roles that its credentials carry are not known, "
            "as it is not connected",
        )

    def test_anonymous(self) -> None:
        """Clients without credentials have a name."""
        self.assertEqual(self.decided("principal=anonymous", "publish", "guests")[0], True)
        self.assertEqual(self.decided("principal=anonymous", "publish", "orders.eu"), (False, None))

    def test_connected(self) -> None:
        """The roles that a connected client's credentials carry count, and so does its id."""
        carol = Principal("carol", frozenset({"staff"}), scheme="jwt:")
        client = self.broker.join("fleximq", principal="carol", identity=carol)
        for who in ("principal=carol", f"client_id={client.id}"):
            self.assertEqual(self.decided(who, "publish", "orders.eu")[0], True)
        alice = self.broker.join("fleximq", principal="alice", identity=Principal("alice", scheme="jwt:"))
        self.assertEqual(self.decided(f"client_id={alice.id}", "publish", f"of.{alice.id}")[0], True)
        self.assertEqual(self.decided("principal=alice", "publish", f"of.{alice.id}"), (False, None))

    def test_open(self) -> None:
        """Without permissions all is permitted, except ``admin`` if others than this machine are served."""
        self.policy.replace(AccessPolicy(allowAnonymous=True))
        self.assertEqual(self.decided("principal=anonymous", "publish", "x"), (True, None))
        self.assertEqual(self.decided("principal=anonymous", "admin", "x"), (False, None))

    def test_wrong(self) -> None:
        """Wrong arguments are 400, an unknown client 404, and only admins may ask."""
        for query, code in (
            ("action=publish&name=x", 400),
            ("principal=a&client_id=1&action=publish&name=x", 400),
            ("principal=a&action=fly&name=x", 400),
            ("principal=a&action=publish", 400),
            ("principal=&action=publish&name=x", 400),
            ("client_id=1&action=publish&name=x", 404),
        ):
            self.assertEqual(self.ask(f"GET /api/rights?{query}").code, code, query)
        self.admitted = Admitted(None, Granted("read:api/rights"))
        self.assertEqual(self.ask("GET /api/rights?principal=a&action=publish&name=x").code, 403)


NAMES = st.sampled_from(["a", "b", "a.b", "a.b.c", "inbox.ann", "$x"])
PATTERNS = st.lists(st.sampled_from(["a", "#", "a.*", "*.b", "a.#", "inbox.{principal}", "r.{role}"]), max_size=3)
TABLES = st.fixed_dictionaries({"publish": PATTERNS, "deny": st.fixed_dictionaries({"publish": PATTERNS})})


class AgreementTests(SynchronousTestCase):
    """The rules and the rights."""

    @given(st.dictionaries(st.sampled_from(["everyone", "x", "authenticated"]), TABLES), TABLES, NAMES, st.booleans())
    def test_agree(self, roles: Any, own: Any, name: str, isIn: bool) -> None:
        """The first rule that matches decides as the rights do."""
        permissions = Permissions(tables("roles", roles), tables("principals", {"ann": own}))
        principal = Principal("ann", frozenset({"x"} if isIn else ()))
        rules = permissions.rulesFor(principal, "publish")
        matching = (rule for rule in rules if any(anyOf((each,))(name) for each in rule.patterns))
        rule = next(matching, None)
        permitted = rule is not None and not rule.isDenial
        self.assertEqual(permitted, permissions.rightsOf(principal).may("publish", name))
