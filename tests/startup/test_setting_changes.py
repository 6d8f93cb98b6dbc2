"""What becomes of settings that are read again."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.option_table import OPTIONS, TABLES
from fleximq.config.settings import Settings
from fleximq.startup.setting_changes import LIVE, Difference, difference, lostProtections, merged

TOKENS = {"auth": ["tokens:/etc/tokens"]}
ROLES = {"roles": {"everyone": {"subscribe": ["news.#"]}}}
PRINCIPALS = {"principals": {"ann": {"publish": True}}}


class ReloadingTests(SynchronousTestCase):
    """Old settings and new ones."""

    def find(self, old: dict[str, Any], new: dict[str, Any]) -> Difference:
        """Return what differs."""
        return difference(Settings.of(old), Settings.of(new))

    def refused(self, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        """Return the first words of the sentences that refuse the new settings."""
        return [sentence.partition(" gone")[0] for sentence in lostProtections(Settings.of(old), Settings.of(new))]

    def test_names(self) -> None:
        """Every live setting is one that there is."""
        self.assertLessEqual(LIVE, {each.name for each in (*OPTIONS, *TABLES)})

    def test_same(self) -> None:
        """Nothing differs."""
        self.assertEqual(self.find(TOKENS | ROLES, TOKENS | ROLES), Difference())

    def test_live(self) -> None:
        """What a reload changes is named, a limit and a table as well."""
        new = {"keepalive": 5, "max-clients": 3} | PRINCIPALS
        self.assertEqual(self.find({"keepalive": 4}, new), Difference(("keepalive", "max-clients", "principals"), ()))

    def test_waiting(self) -> None:
        """What needs a restart is named, and keeps its value."""
        old, new = Settings.of({"max-topics": 5}), Settings.of({"listen": ["tcp:1"], "max-topics": 6, "keepalive": 5})
        self.assertEqual(difference(old, new), Difference(("keepalive",), ("listen", "max-topics")))
        taken = merged(old, new)
        self.assertEqual((taken.listen, taken.limits.topics, taken.keepalive), (old.listen, 5, 5.0))

    def test_waitsOn(self) -> None:
        """It is named again by the next reload."""
        old, new = Settings(), Settings.of({"listen": ["tcp:1"]})
        self.assertEqual(difference(merged(old, new), new).waiting, ("listen",))

    def test_authGone(self) -> None:
        """Authentication is not turned off; it is turned on, and changed."""
        self.assertEqual(self.refused(TOKENS, {}), ["auth is"])
        self.assertEqual(self.refused({}, TOKENS), [])
        self.assertEqual(self.refused(TOKENS, {"auth": ["apikeys:/etc/keys"]}), [])

    def test_permissionsGone(self) -> None:
        """Nor are permissions, as long as there is one table of either kind."""
        for old in (ROLES, PRINCIPALS, ROLES | PRINCIPALS):
            self.assertEqual(self.refused(old, {}), ["roles and principals are"])
        self.assertEqual(self.refused(ROLES | PRINCIPALS, ROLES), [])
        self.assertEqual(self.refused(ROLES, PRINCIPALS), [])
        self.assertEqual(self.refused({}, ROLES), [])

    def test_allGone(self) -> None:
        """All dangers are named."""
        self.assertEqual(len(self.refused(TOKENS | ROLES, {})), 2)

    @given(st.booleans(), st.integers(1, 1000), st.floats(0.1, 100))
    def test_merged(self, echo: bool, topics: int, seconds: float) -> None:
        """What is taken differs from what was in force by what has changed, from what was wanted by what waits."""
        old = Settings()
        new = replace(
            old, bcastEcho=echo, redelivery=seconds, limits=replace(old.limits, topics=topics, clients=topics)
        )
        taken = merged(old, new)
        self.assertEqual(difference(old, taken), Difference(difference(old, new).changed, ()))
        self.assertEqual(difference(taken, new), Difference((), difference(old, new).waiting))
