"""Who has which rights."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.permission_options import PermissionTable, tables
from fleximq.config.rate_options import Rate
from fleximq.interfaces import IRights
from fleximq.limits import OwnLimits
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

    def test_everybodyMayDoEverything(self) -> None:
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

    def test_connectionsOfOnePrincipalShareTheirRightsThoseOfOthersDoNot(self) -> None:
        """Connections of one principal share their rights, those of others do not."""
        these = permissions({})
        self.assertIs(these.rightsOf(Principal("bob", expires=1.0)), these.rightsOf(Principal("bob", expires=2.0)))
        self.assertIsNot(these.rightsOf(Principal("bob")), these.rightsOf(Principal("bob", frozenset({"x"}))))
        self.assertIsNot(these.rightsOf(Principal("anonymous")), these.rightsOf(None))

    def test_ofSoManyPrincipalsRightsAreRemembered(self) -> None:
        """Of so many principals the rights are remembered."""
        these = permissions({})
        first = these.rightsOf(Principal("0"))
        for number in range(1, MAX_PRINCIPALS):
            these.rightsOf(Principal(str(number)))
        self.assertIs(these.rightsOf(Principal("0")), first)
        these.rightsOf(Principal("more"))
        self.assertIsNot(these.rightsOf(Principal("0")), first)


class DenialTests(SynchronousTestCase):
    """Rules that take rights back."""

    def test_whicheverTableGrantsAndWhicheverDenies(self) -> None:
        """Whichever table grants, and whichever denies: denied is denied; others keep their rights."""
        these = permissions(
            {"everyone": {"publish": True, "deny": {"publish": ["secret.#"]}}, "press": {"publish": ["secret.press"]}},
            {"bob": {"publish": ["secret.bob"], "roles": ["press"], "deny": {"publish": ["{principal}.x"]}}},
        )
        names = "a", "secret", "secret.bob", "secret/press", "bob.x", "eve.x"
        bob = Principal("bob", grants={"publish": ("secret.#",)})
        self.assertEqual(published(these.rightsOf(bob), *names), ["a", "eve.x"])
        self.assertEqual(published(these.rightsOf(Principal("eve")), *names), ["a", "bob.x", "eve.x"])

    def test_wildcardSubscriptionNeedsSomethingThatIsLeft(self) -> None:
        """A wildcard subscription needs something that is left; reading everything needs everything."""
        rights = permissions({"everyone": {"subscribe": ["a.#", "b.*"], "deny": {"subscribe": ["b.#", "a.x.#"]}}})
        of = rights.rightsOf(None)
        self.assertEqual(
            [each for each in ("#", "a.#", "a.*", "*.y", "b.*", "a.x.*", "*.*.c") if of.mayMatch("subscribe", each)],
            ["#", "a.#", "a.*", "*.y", "*.*.c"],
        )
        for denied, all in (["$sys/#"], True), (["a"], False), (["*.b"], False), ([], True):
            table = {"everyone": {"subscribe": True, "deny": {"subscribe": denied}}}
            self.assertEqual(permissions(table).rightsOf(None).mayAll("subscribe"), all, denied)

    def test_firstSlashOfPathCountsInNeither(self) -> None:
        """The first slash of a path counts in neither."""
        rights = permissions({"everyone": {"read": True, "deny": {"read": ["/broker/clients"]}}}).rightsOf(None)
        self.assertEqual(
            [each for each in ("/broker/clients", "broker/clients", "/broker/about") if rights.may("read", each)],
            ["/broker/about"],
        )


class TemplateTests(SynchronousTestCase):
    """Roles, claims and the id of the client in a pattern."""

    def rights(self, *patterns: str, **principal: Any) -> IRights:
        """Return what somebody may publish to by these patterns."""
        return permissions({"everyone": {"publish": [*patterns]}}).rightsOf(Principal("bob", **principal))

    def test_eachRoleHasPlaceWhereverItIsFrom(self) -> None:
        """Each role has a place, wherever it is from; those that all have do not."""
        these = permissions(
            {"everyone": {"publish": ["of.{role}.{role}"]}, "a": {}}, {"bob": {"roles": ["a", "everyone"]}}
        )
        rights = these.rightsOf(Principal("bob", frozenset({"b.c", "authenticated"})))
        names = "of.a.a", "of.b%2Ec.b%2Ec", "of.a.b%2Ec", "of.everyone.everyone", "of.authenticated.authenticated"
        self.assertEqual(published(rights, *names), list(names[:2]))
        self.assertEqual(published(these.rightsOf(None), *names), [])

    def test_nameOfPlaceholder(self) -> None:
        """A name, a role or a claim that is spelt like a placeholder is not filled in."""
        these = permissions({"everyone": {"publish": ["of.{principal}", "at.{claim:x}", "in.{role}"]}})
        for name in ("{client_id}", "{principal}", "{role}"):
            principal = Principal(name, frozenset({name}), claims={"x": name})
            rights = these.rightsOf(principal).forClient(1003)
            names = [f"{place}.{spelt}" for place in ("of", "at", "in") for spelt in ("1003", f"%7B{name[1:-1]}%7D")]
            self.assertEqual(published(rights, *names), names[1::2], name)

    def test_claimIsOneLevelWhateverItHolds(self) -> None:
        """A claim is one level, whatever it holds; a missing or empty one matches nothing, nor denies anything."""
        pattern = "{claim:realm.team}.{principal}"
        for value, names in {
            "red": ["red.bob"],
            "#": ["%23.bob"],
            "a.b": ["a%2Eb.bob"],
            "": [],
            "$x": ["%24x.bob"],
        }.items():
            rights = self.rights(pattern, claims={"realm.team": value})
            self.assertEqual(published(rights, "red.bob", "%23.bob", "a%2Eb.bob", "a.b.bob", ".bob", "%24x.bob"), names)
        self.assertEqual(published(self.rights(pattern), ".bob", "bob", "red.bob"), [])
        denying = {"everyone": {"publish": True, "deny": {"publish": ["of.{claim:x}"]}}}
        rights = permissions(denying).rightsOf(Principal("bob", claims={"x": "y"}))
        self.assertEqual(published(rights, "of.y", "of.z"), ["of.z"])
        self.assertTrue(permissions(denying).rightsOf(Principal("bob")).may("publish", "of.y"))

    def test_claimsThatCount(self) -> None:
        """Principals with equal claims in the patterns share their rights, others do not."""
        these = permissions({"everyone": {"publish": ["{claim:a}"]}})
        one, same, other = (
            these.rightsOf(Principal("bob", claims={"a": a, "b": b})) for a, b in (("1", "x"), ("1", "y"), ("2", "x"))
        )
        self.assertIs(one, same)
        self.assertIsNot(one, other)

    def test_idOfClientIsKnownWhenItHasJoined(self) -> None:
        """The id of the client is known when it has joined; until then the pattern matches nothing."""
        rights = self.rights("in.{client_id}.#", "in.{principal}")
        self.assertEqual(published(rights, "in.1000", "in.{client_id}", "in.bob"), ["in.bob"])
        one = rights.forClient(1000)
        self.assertEqual(published(one, "in.1000.x", "in.1001", "in.bob"), ["in.1000.x", "in.bob"])
        self.assertIs(one.forClient(1001), one)
        plain = self.rights("in.{principal}")
        self.assertIs(plain.forClient(1000), plain)
        table = {"everyone": {"publish": True, "deny": {"publish": ["in.{client_id}"]}}}
        denied = permissions(table).rightsOf(None).forClient(7)
        self.assertEqual(published(denied, "in.7", "in.8"), ["in.8"])


class OwnLimitsTests(SynchronousTestCase):
    """Limits of roles and principals."""

    def test_mostSpecific(self) -> None:
        """A principal's own limit counts, or else the tightest of its roles; no limit is the widest."""
        these = permissions(
            {
                "everyone": {"limits": {"max-clients": 9, "max-message-rate": 0, "queue-bytes": "1KiB"}},
                "a": {"limits": {"max-clients": 5, "max-message-rate": "10,20"}},
                "b": {"limits": {"max-clients": 7, "max-topics": 3, "max-message-rate": "10,30"}},
            },
            {"bob": {"roles": ["a", "b"], "limits": {"queue-bytes": "2KiB", "max-byte-rate": 0}}, "eve": {}},
        )
        bob = OwnLimits(5, 3, 2048, (("max-message-rate", Rate(10, 20)), ("max-byte-rate", None)))
        self.assertEqual(these.rightsOf(Principal("bob")).limits, bob)
        self.assertEqual(these.rightsOf(Principal("bob")).forClient(1).limits, bob)
        for principal in (None, Principal("eve")):
            self.assertEqual(these.rightsOf(principal).limits, OwnLimits(9, None, 1024, (("max-message-rate", None),)))
        self.assertEqual((EVERYTHING.limits, permissions({}).rightsOf(None).limits), (OwnLimits(), OwnLimits()))


class SubstitutionTests(SynchronousTestCase):
    """``{principal}`` in a pattern."""

    def of(self, name: str, pattern: str = "user.{principal}.#") -> IRights:
        """Return the rights of somebody by this name."""
        return permissions({"everyone": {"publish": [pattern]}}).rightsOf(Principal(name))

    def test_everybodyHasPlaceOfTheirOwn(self) -> None:
        """Everybody has a place of their own."""
        self.assertEqual(
            published(self.of("bob"), "user.bob", "user.bob.x", "user.eve.x", "user"), ["user.bob", "user.bob.x"]
        )

    def test_partOfLevel(self) -> None:
        """It may be a part of a level."""
        self.assertEqual(published(self.of("bob", "to-{principal}/x"), "to-bob/x", "to-/x"), ["to-bob/x"])

    def test_nameThatIsWildcardIsNone(self) -> None:
        """A name that is a wildcard is none."""
        for name in ("*", "#", "*.*", "/#"):
            self.assertEqual(published(self.of(name), "user.bob", "user.*", "user.#", "user.*.*"), [], name)
        self.assertEqual(published(self.of("*"), "user.%2A.x"), ["user.%2A.x"])

    def test_nameWithSeparatorDoesNotReachIntoPlaceOfAnotherHoweverTopic(self) -> None:
        """A name with a separator does not reach into the place of another, however a topic separates its levels."""
        rights = self.of("bob.x")
        self.assertEqual(published(rights, "user.bob.x", "user.bob/x", "user/bob.x.y"), [])
        self.assertEqual(published(rights, "user.bob%2Ex.y"), ["user.bob%2Ex.y"])

    def test_nameDoesNotBecomeOneOfBrokersOwnTopics(self) -> None:
        """A name does not become one of the broker's own topics."""
        self.assertEqual(published(self.of("$sys", "{principal}/#"), "$sys/x", "$sys"), [])

    def test_nobodyByNoNameGetsNothingByItWhereElseWildcardCouldBeLeft(self) -> None:
        """Nobody by no name gets nothing by it, where else a wildcard could be left."""
        for pattern in ("a.*{principal}", "a.{principal}#", "{principal}#", "a.{principal}"):
            rights = Permissions().rightsOf(Principal("", grants={"publish": (pattern,)}))
            self.assertEqual(published(rights, "a.b", "a", "a.", "b"), [])

    def test_whatCredentialsGrantMayHaveItToo(self) -> None:
        """What credentials grant may have it too."""
        rights = Permissions().rightsOf(Principal("bob", grants={"publish": ("{principal}.#",)}))
        self.assertEqual(published(rights, "bob.x", "eve.x"), ["bob.x"])

    @given(st.text(), st.text())
    def test_twoNamesNeverSharePlaceAndWhatStandsForNameIsOneLevelAndNo(self, one: str, other: str) -> None:
        """Two names never share a place, and what stands for a name is one level and no wildcard."""
        self.assertEqual(escapedName(one) == escapedName(other), one == other)
        self.assertEqual(overlap(f"u.{escapedName(one)}.#", f"u.{escapedName(other)}.#"), one == other)

    @given(st.text("a.*#/$%{}", min_size=1, max_size=6), st.text("ab.*#/$%2AEF", max_size=8))
    def test_onlyWhatHasVeryLevelOfNameIsCoveredWhateverNameIs(self, name: str, rest: str) -> None:
        """Only what has the very level of the name is covered, whatever the name is."""
        topic = f"u.{rest}"
        self.assertEqual(self.of(name, "u.{principal}").may("publish", topic), rest == escapedName(name))


class GrantedTests(SynchronousTestCase):
    """Tables that were made elsewhere."""

    def test_grantedRightsAreAsGoodAsReadOnes(self) -> None:
        """They are as good as those that were read."""
        rights = Permissions([PermissionTable("everyone", (("publish", ("a",)),))]).rightsOf(None)
        self.assertEqual(published(rights, "a", "b"), ["a"])
