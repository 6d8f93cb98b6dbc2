"""What others say of a principal."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.rights import Action
from fleximq.security.checkers.claims import (
    MAX_CLAIM_CHARACTERS,
    MAX_CLAIMS,
    MAX_ITEMS,
    WrongClaim,
    find,
    grantsOf,
    rolesOf,
    textsIn,
)

NOTHING: dict[str, tuple[str, ...]] = {action.value: () for action in Action}


class ClaimsTests(SynchronousTestCase):
    """Names, roles, permissions."""

    def test_find(self) -> None:
        """A claim is found under its very name, which may have dots, or else inside of others."""
        claims = {"sub": "a", "https://x.example/roles": ["r"], "realm": {"roles": ["s"], "x.y": 1}}
        self.assertEqual(find(claims, "sub"), "a")
        self.assertEqual(find(claims, "https://x.example/roles"), ["r"])
        self.assertEqual(find(claims, "realm.roles"), ["s"])
        for path in ("none", "realm.none", "sub.x", "realm.roles.0", ""):
            self.assertIsNone(find(claims, path))

    def test_texts(self) -> None:
        """Texts and whole numbers can be in patterns, not too long and not too many, also one level down."""
        claims = {
            "sub": "a",
            "n": 5,
            "yes": True,
            "f": 1.5,
            "list": ["x"],
            "realm": {"team": "red", "deep": {"x": "y"}},
        }
        self.assertEqual(textsIn(claims), {"sub": "a", "n": "5", "realm.team": "red"})
        self.assertEqual(
            textsIn({"a": "x" * MAX_CLAIM_CHARACTERS, "b": "x" * (MAX_CLAIM_CHARACTERS + 1)}).keys(), {"a"}
        )
        self.assertEqual(len(textsIn({str(number): number for number in range(MAX_CLAIMS + 1)})), MAX_CLAIMS)

    def test_rolesAreListOrWords(self) -> None:
        """Roles are a list, or words; what is no role's name is passed over."""
        self.assertEqual(rolesOf(None), frozenset())
        self.assertEqual(rolesOf(["a", "b c", 7, "d"]), {"a", "d"})
        self.assertEqual(rolesOf("a b"), {"a", "b"})

    def test_noRoles(self) -> None:
        """Anything else is wrong."""
        for said in (7, {"a": 1}, True, ["a"] * (MAX_ITEMS + 1)):
            self.assertRaises(WrongClaim, rolesOf, said)

    def test_actionsHavePatterns(self) -> None:
        """Actions have patterns; true is all but ``$``, and what is not said is nothing."""
        said = {"publish": ["a.*", "b"], "subscribe": True, "read": False, "admin": "x"}
        expected = {**NOTHING, "publish": ("a.*", "b"), "subscribe": ("#",), "admin": ("x",)}
        self.assertEqual(grantsOf(said), expected)

    def test_nothingSaid(self) -> None:
        """No permissions are none, which is not the same as no restriction."""
        self.assertEqual((grantsOf(None), grantsOf({})), (NOTHING, NOTHING))

    def test_noGrants(self) -> None:
        """Anything else is wrong."""
        said: Any
        for said in (7, [], "x", {"fly": ["a"]}, {"publish": 7}, {"publish": [7]}, {"publish": [""]},
                     {"publish": ["x" * 1025]}, {"publish": ["a"] * (MAX_ITEMS + 1)}, {7: ["a"]}):  # fmt: skip
            self.assertRaises(WrongClaim, grantsOf, said)
