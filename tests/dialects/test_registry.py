"""Which plug-ins there are, and what is said when they collide."""

from typing import Any

from twisted.plugin import IPlugin
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.dialects.registry import OWN, Registry, installed
from fleximq.errors import SettingError
from fleximq.interfaces import IBrokerExtension, IDialect
from fleximq.plugin import Dialect, Extension


def extension(name: str) -> Extension:
    """Return an extension that cannot do anything."""
    return Extension(name, "Nothing.", "builtins.dict", "builtins.dict")


class InstalledTests(SynchronousTestCase):
    """What Twisted finds."""

    def test_ownDialects(self) -> None:
        """The broker's own dialects are found as those of others are, and come first."""
        found = installed().dialects
        self.assertEqual(tuple(found)[: len(OWN)], OWN)
        for each in found.values():
            verifyObject(IDialect, each)
            verifyObject(IPlugin, each)

    def test_ownOnesClaimNothing(self) -> None:
        """How their beginnings differ is a rule, not a claim."""
        found = installed()
        self.assertEqual(set(found.claims().values()) & set(OWN), set())

    def test_asked(self) -> None:
        """Both kinds of plug-in are asked for."""
        plugins: dict[Any, list[Any]] = {IDialect: [Dialect("x")], IBrokerExtension: [extension("y")]}
        registry = installed(lambda kind: plugins[kind])
        self.assertEqual((list(registry.dialects), list(registry.extensions)), (["x"], ["y"]))


class RegistryTests(SynchronousTestCase):
    """Names and claims."""

    def refused(self, *dialects: Dialect, extensions: tuple[Extension, ...] = ()) -> str:
        """Return the sentence with which these are refused."""
        return str(self.assertRaises(SettingError, Registry.of, dialects, extensions))

    def test_order(self) -> None:
        """First the broker's own, then by name."""
        registry = Registry.of(map(Dialect, ("zeta", "minimq", "alpha", "fleximq")), map(extension, ("b", "a")))
        self.assertEqual(list(registry.dialects), ["fleximq", "minimq", "alpha", "zeta"])
        self.assertEqual(list(registry.extensions), ["a", "b"])

    def test_sameName(self) -> None:
        """Two of one name are one too many; a dialect and an extension may share one."""
        self.assertEqual(
            self.refused(Dialect("x"), Dialect("x")), "two plug-ins bring a dialect named x: uninstall one of them"
        )
        self.assertEqual(
            self.refused(extensions=(extension("x"), extension("x"))),
            "two plug-ins bring an extension named x: uninstall one of them",
        )
        Registry.of([Dialect("x")], [extension("x")])

    def test_names(self) -> None:
        """A name can be written before a plus, and is none that the decision about first bytes needs itself."""
        for name in ("", "X", "a+b", "a:b", "1a", "_a", "a-b", "ä", "a\n", "none"):
            self.assertIn(f"a plug-in names its dialect {name!r}, but", self.refused(Dialect(name)))
        Registry.of([Dialect("a_1")], [extension("http")])

    def test_claims(self) -> None:
        """First bytes that nobody else can begin with may be claimed."""
        registry = Registry.of([Dialect("x", beginnings=[b"+", b"Hello"]), Dialect("y", beginnings=[b"\x02"])], [])
        self.assertEqual(registry.claims(), {b"+": "x", b"Hello": "x", b"\x02": "y"})

    def test_ownBeginnings(self) -> None:
        """What the broker's own dialects can begin with cannot be claimed, nor nothing, nor too much."""
        for beginning in (b"\x00", b"\x01x", b"GET ", b"HELLO", b"A:", b"", b"H", b"+" * 17):
            self.assertEqual(
                self.colliding(Dialect("x", beginnings=[beginning])),
                f"the dialect x claims connections that begin with {beginning!r}, but the broker's own dialects may "
                "begin so: turn one off by disable-dialect, e.g. --disable-dialect x",
            )

    def test_collidingClaims(self) -> None:
        """Two claims of which one begins with the other collide, whichever comes first."""
        for first, second in ((b"+", b"+a"), (b"+a", b"+"), (b"+a", b"+a")):
            longer = max(first, second, key=len)
            self.assertEqual(
                self.colliding(Dialect("x", beginnings=[first]), Dialect("y", beginnings=[second])),
                f"the dialects x and y both claim connections that begin with {longer!r}: turn one off by "
                "disable-dialect, e.g. --disable-dialect y, or give each a listener of its own, e.g. y+tcp:7891",
            )

    def test_apart(self) -> None:
        """Claims of dialects that no port shares do not matter, nor do those of a dialect that is turned off."""
        registry = Registry.of([Dialect("x", beginnings=[b"+"]), Dialect("y", beginnings=[b"+"])], [])
        registry.checkClaims("x")
        registry.checkClaims("y")
        registry.without(["y"]).checkClaims()
        error = self.assertRaises(SettingError, registry.without, ["z"])
        self.assertEqual(str(error), "disable-dialect is 'z', but must be one of x, y")

    def colliding(self, *dialects: Dialect) -> str:
        """Return the sentence with which a port of these is refused."""
        return str(self.assertRaises(SettingError, Registry.of(dialects, []).checkClaims))
