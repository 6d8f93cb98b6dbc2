"""The tables of who may do what: what they say, and every way to get them wrong."""

import tomllib
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.check_config import asToml
from fleximq.config.permission_options import PermissionTable, tables, unknownRoles
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

[principals."door.1"]
roles = ["sensor", "everyone"]
subscribe = ["doors.#"]
"""


class ReadingTests(SynchronousTestCase):
    """What is written in a file."""

    def test_example(self) -> None:
        """Patterns by action; true stands for all of them."""
        settings = Settings.of(tomllib.loads(EXAMPLE))
        grants = (
            ("publish", ("sensors.{principal}.#", "/x/*")),
            ("read", ("#",)),
            ("broadcast", ("#",)),
            ("subscribe", ()),
        )
        self.assertEqual(settings.roles, (PermissionTable("sensor", grants),))
        door = PermissionTable("door.1", (("subscribe", ("doors.#",)),), ("sensor", "everyone"))
        self.assertEqual(settings.principals, (door,))

    def test_none(self) -> None:
        """No table is something else than an empty one."""
        self.assertIsNone(Settings().roles)
        self.assertEqual(Settings.of({"roles": {}}).roles, ())

    def test_shown(self) -> None:
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

    def test_keys(self) -> None:
        """A key that is none is named, and what may have been meant."""
        self.assertFault("roles", {"x": {"pubish": []}}, "roles.x has no key 'pubish', did you mean publish?")
        actions = "publish, subscribe, consume, request, notify, broadcast, read, progress"
        self.assertFault("roles", {"x": {"zz": []}}, f"roles.x has no key 'zz', only {actions} and admin")
        self.assertFault(
            "principals", {"x": {"zz": []}}, f"principals.x has no key 'zz', only {actions}, admin and roles"
        )
        self.assertFault("roles", {"x": {"roles": []}}, f"roles.x has no key 'roles', only {actions} and admin")

    def test_values(self) -> None:
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

    def test_patterns(self) -> None:
        """Those that a subscription could not have, and braces around anything else."""
        for pattern in ("", "/", "a" * (TOPIC_BYTES + 1)):
            sentence = f"roles.x.read has {pattern!r}, but a pattern has 1 to {TOPIC_BYTES} bytes, e.g. orders.#"
            self.assertFault("roles", {"x": {"read": [pattern]}}, sentence)
        sentence = "roles.x.read has 'a.#.b', but only the last level of a pattern can be #, e.g. orders.#"
        self.assertFault("roles", {"x": {"read": ["a.#.b"]}}, sentence)
        for pattern in ("a.{name}", "a.{Principal}", "{", "}", "{{principal}}"):
            sentence = f"roles.x.read has {pattern!r}, but braces can only stand in {{principal}}"
            self.assertFault("roles", {"x": {"read": [pattern]}}, sentence)
        Settings.of({"roles": {"x": {"read": ["a" * TOPIC_BYTES, "$sys/#", "a#", "#"]}}})

    def test_several(self) -> None:
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
