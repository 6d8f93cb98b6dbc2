"""The tables of who may do what: what they say, and every way to get them wrong."""

import tomllib
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.check_config import asToml
from fleximq.config.permission_options import PermissionTable, tables, unknownRoles
from fleximq.config.rate_options import Rate
from fleximq.config.settings import Settings
from fleximq.dialects.registry import installed
from fleximq.errors import SettingError
from fleximq.limits import TOPIC_BYTES
from fleximq.rights import Action
from fleximq.startup.configuration_check import faults

EXAMPLE = """
[roles.sensor]
publish = ["sensors.{principal}.#", "/x/*"]
read = true
broadcast = true
subscribe = false
deny.publish = ["/x/secret", "of.{role}.{client_id}.{claim:realm.team}"]
deny.broadcast = true
limits = { max-message-rate = "10,20", max-byte-rate = "1MiB", max-clients = 5, queue-bytes = "64KiB" }

[principals."door.1".limits]
principal-subscribe-rate = 0

[principals."door.1"]
roles = ["sensor", "everyone"]
subscribe = ["doors.#"]
"""


class ReadingTests(SynchronousTestCase):
    """What is written in a file."""

    def test_patternsByAction(self) -> None:
        """Patterns by action; true stands for all of them."""
        settings = Settings.of(tomllib.loads(EXAMPLE))
        grants = (
            ("publish", ("sensors.{principal}.#", "/x/*")),
            ("read", ("#",)),
            ("broadcast", ("#",)),
            ("subscribe", ()),
        )
        limits = (
            ("max-message-rate", Rate(10, 20)), ("max-byte-rate", Rate(1 << 20, 1 << 20)), ("max-clients", 5),
            ("queue-bytes", 64 << 10),
        )  # fmt: skip
        denials = (("publish", ("/x/secret", "of.{role}.{client_id}.{claim:realm.team}")), ("broadcast", ("#",)))
        self.assertEqual(settings.roles, (PermissionTable("sensor", grants, (), denials, limits),))
        door = PermissionTable(
            "door.1", (("subscribe", ("doors.#",)),), ("sensor", "everyone"), (), (("principal-subscribe-rate", None),)
        )
        self.assertEqual(settings.principals, (door,))

    def test_noTableIsSomethingElseThanEmptyOne(self) -> None:
        """No table is something else than an empty one."""
        self.assertIsNone(Settings().roles)
        self.assertEqual(Settings.of({"roles": {}}).roles, ())

    def test_whatIsShownOfThemReadsAsSame(self) -> None:
        """What is shown of them reads as the same."""
        for text in (EXAMPLE, "[roles]", "[roles.x]", "[principals.'']".replace("''", "'\"'")):
            settings = Settings.of(tomllib.loads(text))
            self.assertEqual(Settings.of(tomllib.loads("\n".join(asToml(settings)))), settings)

    def test_everyAction(self) -> None:
        """Whatever can be done can be granted."""
        table = {action.value: True for action in Action}
        self.assertEqual(tables("roles", {"all": table})[0].grants, tuple((action, ("#",)) for action in Action))


class FaultTests(SynchronousTestCase):
    """One sentence for each."""

    def assertFault(self, name: str, value: Any, *sentences: str) -> None:
        """These sentences are said, and the first of them ends the reading."""
        self.assertEqual(list(faults({name: value}, installed())), list(sentences))
        error = self.assertRaises(SettingError, Settings.of, {name: value})
        self.assertEqual(str(error), sentences[0])

    def test_noTables(self) -> None:
        """Both levels are tables."""
        for name in ("roles", "principals"):
            self.assertFault(name, ["x"], f"{name} is ['x'], but must be a table for each: [{name}.NAME]")
            self.assertFault(name, {"x": 5}, f"{name}.x is 5, but must be a table: [{name}.x]")
            self.assertFault(name, {"": {}}, f"{name} has a table without a name")

    def test_keyThatIsNoneIsNamedAndWhatMayHaveBeenMeant(self) -> None:
        """A key that is none is named, and what may have been meant."""
        self.assertFault("roles", {"x": {"pubish": []}}, "roles.x has no key 'pubish', did you mean publish?")
        actions = "publish, subscribe, consume, request, notify, broadcast, read, progress, serve"
        self.assertFault("roles", {"x": {"zz": []}}, f"roles.x has no key 'zz', only {actions}, admin, deny and limits")
        self.assertFault(
            "principals",
            {"x": {"zz": []}},
            f"principals.x has no key 'zz', only {actions}, admin, deny, limits and roles",
        )
        self.assertFault(
            "roles", {"x": {"roles": []}}, f"roles.x has no key 'roles', only {actions}, admin, deny and limits"
        )

    def test_listsOfTextsOrTrueAndFalse(self) -> None:
        """Lists of texts, or true and false."""
        value: Any
        for value in ("a.#", 5, [5], {"a": 1}, [["a"]]):
            words = "but must be a list of patterns, or true for all that do not begin with $"
            self.assertFault("roles", {"x": {"publish": value}}, f"roles.x.publish is {value!r}, {words}")
        for value in ([], ["#"], "yes"):
            sentence = f"roles.x.broadcast is {value!r}, but must be true or false"
            self.assertFault("roles", {"x": {"broadcast": value}}, sentence)
        for value in ("a", [5], True):
            sentence = f"principals.x.roles is {value!r}, but must be a list of the names of roles"
            self.assertFault("principals", {"x": {"roles": value}}, sentence)

    def test_denialsHaveSameActionsAndPatterns(self) -> None:
        """They have the same actions and patterns, and nothing else."""
        example = 'roles.x.deny is True, but must have an action, e.g. deny.publish = ["orders.#"]'
        self.assertFault("roles", {"x": {"deny": True}}, example)
        sentence = "roles.x.deny has no key 'pubish', did you mean publish?"
        self.assertFault("roles", {"x": {"deny": {"pubish": []}}}, sentence)
        self.assertEqual(len(list(faults({"principals": {"x": {"deny": {"deny": {}, "roles": []}}}}, installed()))), 2)
        sentence = "roles.x.deny.read has '', but a pattern has 1 to 1024 bytes, e.g. orders.#"
        self.assertFault("roles", {"x": {"deny": {"read": [""]}}}, sentence)

    def test_knownOptionsWithValuesThatTheyMayHave(self) -> None:
        """Known options with values that they may have."""
        self.assertFault("roles", {"x": {"limits": 5}}, "roles.x.limits is 5, but must be a table: [roles.x.limits]")
        sentence = "roles.x.limits.max-clients is 0, but must be between 1 and 281474976710656"
        self.assertFault("roles", {"x": {"limits": {"max-clients": 0}}}, sentence)
        given = {"keepalive": 5, "max-topics": "x", "queue-bytes": -1, "max-message-rate": "x", "max-byte-rate": "x"}
        sentences = list(faults({"principals": {"x": {"limits": given}}}, installed()))
        self.assertEqual(len(sentences), len(given))
        self.assertTrue(all(each.startswith("principals.x.limits") for each in sentences), sentences)

    def test_patternThatNoSubscriptionCouldHaveIsFault(self) -> None:
        """Those that a subscription could not have, and braces around anything else."""
        for pattern in ("", "/", "a" * (TOPIC_BYTES + 1)):
            sentence = f"roles.x.read has {pattern!r}, but a pattern has 1 to {TOPIC_BYTES} bytes, e.g. orders.#"
            self.assertFault("roles", {"x": {"read": [pattern]}}, sentence)
        sentence = "roles.x.read has 'a.#.b', but only the last level of a pattern can be #, e.g. orders.#"
        self.assertFault("roles", {"x": {"read": ["a.#.b"]}}, sentence)
        sentence = "roles.x.read has '/a/+', but the wildcards are * and #, not > and +: did you mean 'a/*'?"
        self.assertFault("roles", {"x": {"read": ["/a/+"]}}, sentence)
        words = "braces can only stand in {principal}, {role}, {client_id} and {claim:NAME}"
        for pattern in ("a.{claim:}", "{claim:a#}", "a.{name}", "a.{Principal}", "{", "}", "{{principal}}"):
            sentence = f"roles.x.read has {pattern!r}, but {words}"
            self.assertFault("roles", {"x": {"read": [pattern]}}, sentence)
        Settings.of({"roles": {"x": {"read": ["a" * TOPIC_BYTES, "$sys/#", "#a", "#"]}}})

    def test_neverMatching(self) -> None:
        """A pattern that would deny or grant nothing that its author means."""
        own = "* and # are wildcards as levels of their own only, e.g. orders.# or *.eu"
        blank = "a level cannot begin or end with a blank"
        empty = "it has an empty level: levels need a character before and after each separator"
        for pattern, words in (
            ("payroll-*", own),
            ("payroll#", own),
            ("{principal}*", own),
            (" payroll.#", blank),
            ("{role} .#", blank),
            ("pay..x", empty),
            ("pay.\tx", "it has a character that cannot be seen"),
        ):
            for key, table in (("publish", {"publish": [pattern]}), ("deny.publish", {"deny": {"publish": [pattern]}})):
                for kind in ("roles", "principals"):
                    self.assertFault(kind, {"x": table}, f"{kind}.x.{key} has {pattern!r}, but {words}")
        granted = ["inbox-{principal}.#", "{claim:realm.team}", "/{role}/{client_id}", "#general", "my topic"]
        Settings.of({"roles": {"x": {"publish": granted}}})

    def test_allFaultsAreToldAtOnce(self) -> None:
        """All of them are told when a file is checked."""
        table = {"x": {"zublish": [], "read": [""]}, "y": 5}
        self.assertEqual(len(list(faults({"roles": table, "history": "x"}, installed()))), 4)

    def test_unknownRoles(self) -> None:
        """A role that nobody has described grants nothing, which cannot be meant."""
        written = {"principals": {"bob": {"roles": ["sensor", "authenticated", "everyone"]}}}
        sentence = "principals.bob has the role 'sensor', but there is no [roles.sensor]"
        self.assertEqual(list(faults(written, installed())), [sentence])
        self.assertEqual(list(faults({**written, "roles": {"sensor": {}}}, installed())), [])
        self.assertEqual(list(unknownRoles(None, None)), [])
