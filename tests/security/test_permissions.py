"""Who has which rights."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.permission_options import PermissionTable, tables
from fleximq.interfaces import IRights
from fleximq.rights import EVERYTHING
from fleximq.security.permissions import MAX_PRINCIPALS, Permissions, escapedName
from fleximq.security.principal import Principal
from fleximq.values.patterns import overlap


def permissions(roles: dict[str, Any] | None = None, principals: dict[str, Any] | None = None) -> Permissions:
    """Return the permissions of these tables."""
    return Permissions(
        None if roles is None else tables("roles", roles),
        None if principals is None else tables("principals", principals),
    )


def published(rights: IRights, *names: str) -> list[str]:
    """Return to which of these may be published."""
    return [name for name in names if rights.may("publish", name)]


class NobodyConfiguredTests(SynchronousTestCase):
    """No table at all."""

    def test_everything(self) -> None:
        """Everybody may do everything."""
        self.assertIs(Permissions().rightsOf(None), EVERYTHING)
        self.assertIs(Permissions().rightsOf(Principal("bob", frozenset({"x"}))), EVERYTHING)

    def test_credentialsThatSaySo(self) -> None:
        """Credentials that say what they are for are for no more."""
        rights = Permissions().rightsOf(Principal("bob", grants={"publish": ("a.#",)}))
        self.assertEqual(published(rights, "a.b", "b"), ["a.b"])


class PermissionsTests(SynchronousTestCase):
    """Roles and principals."""

    def test_denyByDefault(self) -> None:
        """As soon as there is a table, even an empty one, nothing else is permitted."""
        for these in (permissions({}), permissions(None, {}), permissions({"x": {"publish": True}})):
            for principal in (None, Principal("bob")):
                self.assertFalse(these.rightsOf(principal).may("publish", "a"))

    def test_implied(self) -> None:
        """Everybody has one role, who has shown who they are another, and who has not is a principal of its own."""
        these = permissions(
            {"everyone": {"publish": ["all"]}, "authenticated": {"publish": ["known"]}},
            {"anonymous": {"publish": ["unknown"]}},
        )
        names = "all", "known", "unknown"
        self.assertEqual(published(these.rightsOf(None), *names), ["all", "unknown"])
        self.assertEqual(published(these.rightsOf(Principal("bob")), *names), ["all", "known"])

    def test_sumOfAll(self) -> None:
        """A principal may do what its own table says, its roles there, and its credentials' roles and grants."""
        these = permissions(
            {name: {"publish": [name]} for name in ("named", "claimed", "other")},
            {"bob": {"publish": ["own"], "roles": ["named"]}},
        )
        bob = Principal("bob", frozenset({"claimed", "unheard"}), {"publish": ("granted",)})
        names = "own", "named", "claimed", "granted", "other"
        self.assertEqual(published(these.rightsOf(bob), *names), list(names[:4]))
        self.assertEqual(published(these.rightsOf(Principal("eve")), *names), [])

    def test_same(self) -> None:
        """Connections of one principal share their rights, those of others do not."""
        these = permissions({})
        self.assertIs(these.rightsOf(Principal("bob", expires=1.0)), these.rightsOf(Principal("bob", expires=2.0)))
        self.assertIsNot(these.rightsOf(Principal("bob")), these.rightsOf(Principal("bob", frozenset({"x"}))))
        self.assertIsNot(these.rightsOf(Principal("anonymous")), these.rightsOf(None))

    def test_bounded(self) -> None:
        """Of so many principals the rights are remembered."""
        these = permissions({})
        first = these.rightsOf(Principal("0"))
        for number in range(1, MAX_PRINCIPALS):
            these.rightsOf(Principal(str(number)))
        self.assertIs(these.rightsOf(Principal("0")), first)
        these.rightsOf(Principal("more"))
        self.assertIsNot(these.rightsOf(Principal("0")), first)


class SubstitutionTests(SynchronousTestCase):
    """``{principal}`` in a pattern."""

    def of(self, name: str, pattern: str = "user.{principal}.#") -> IRights:
        """Return the rights of somebody by this name."""
        return permissions({"everyone": {"publish": [pattern]}}).rightsOf(Principal(name))

    def test_own(self) -> None:
        """Everybody has a place of their own."""
        self.assertEqual(
            published(self.of("bob"), "user.bob", "user.bob.x", "user.eve.x", "user"), ["user.bob", "user.bob.x"]
        )

    def test_partOfLevel(self) -> None:
        """It may be a part of a level."""
        self.assertEqual(published(self.of("bob", "to-{principal}/x"), "to-bob/x", "to-/x"), ["to-bob/x"])

    def test_wildcards(self) -> None:
        """A name that is a wildcard is none."""
        for name in ("*", "#", "*.*", "/#"):
            self.assertEqual(published(self.of(name), "user.bob", "user.*", "user.#", "user.*.*"), [], name)
        self.assertEqual(published(self.of("*"), "user.%2A.x"), ["user.%2A.x"])

    def test_separators(self) -> None:
        """A name with a separator does not reach into the place of another, however a topic separates its levels."""
        rights = self.of("bob.x")
        self.assertEqual(published(rights, "user.bob.x", "user.bob/x", "user/bob.x.y"), [])
        self.assertEqual(published(rights, "user.bob%2Ex.y"), ["user.bob%2Ex.y"])

    def test_dollar(self) -> None:
        """A name does not become one of the broker's own topics."""
        self.assertEqual(published(self.of("$sys", "{principal}/#"), "$sys/x", "$sys"), [])

    def test_empty(self) -> None:
        """Nobody by no name gets nothing by it, where else a wildcard could be left."""
        for pattern in ("a.*{principal}", "a.{principal}#", "{principal}#", "a.{principal}"):
            self.assertEqual(published(self.of("", pattern), "a.b", "a", "a.", "b"), [])

    def test_claims(self) -> None:
        """What credentials grant may have it too."""
        rights = Permissions().rightsOf(Principal("bob", grants={"publish": ("{principal}.#",)}))
        self.assertEqual(published(rights, "bob.x", "eve.x"), ["bob.x"])

    @given(st.text(), st.text())
    def test_apart(self, one: str, other: str) -> None:
        """Two names never share a place, and what stands for a name is one level and no wildcard."""
        self.assertEqual(escapedName(one) == escapedName(other), one == other)
        self.assertEqual(overlap(f"u.{escapedName(one)}.#", f"u.{escapedName(other)}.#"), one == other)

    @given(st.text("a.*#/$%{}", min_size=1, max_size=6), st.text("ab.*#/$%2AEF", max_size=8))
    def test_narrow(self, name: str, rest: str) -> None:
        """Only what has the very level of the name is covered, whatever the name is."""
        topic = f"u.{rest}"
        self.assertEqual(self.of(name, "u.{principal}").may("publish", topic), rest == escapedName(name))


class GrantedTests(SynchronousTestCase):
    """Tables that were made elsewhere."""

    def test_made(self) -> None:
        """They are as good as those that were read."""
        rights = Permissions([PermissionTable("everyone", (("publish", ("a",)),))]).rightsOf(None)
        self.assertEqual(published(rights, "a", "b"), ["a"])
