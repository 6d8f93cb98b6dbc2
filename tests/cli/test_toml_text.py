"""Values as TOML spells them."""

import datetime
import tomllib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.check_config import asToml, tomlValue
from fleximq.config.extension_options import EnabledExtension
from fleximq.config.settings import Settings

VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class SpelledTests(SynchronousTestCase):
    """There and back."""

    @given(VALUES)
    def test_thereAndBack(self, value: object) -> None:
        """Whatever TOML can hold is read back as the same."""
        self.assertEqual(tomllib.loads(f"x = {tomlValue(value)}")["x"], value)

    def test_dates(self) -> None:
        """Dates and times are tomlValue as well."""
        day = datetime.date(2026, 11, 21)
        self.assertEqual(tomllib.loads(f"x = {tomlValue(day)}")["x"], day)


class AsTomlTests(SynchronousTestCase):
    """Settings as lines."""

    def test_auth(self) -> None:
        """Of a scheme that is not the broker's own, only the name is shown: what is behind it may be a secret."""
        self.assertEqual(
            asToml(Settings(auth=("tokens:/etc/x", "memory:admin:hush"))), ['auth = ["tokens:/etc/x", "memory:..."]']
        )

    def test_extensions(self) -> None:
        """Extensions are tables; what may be a secret is not shown."""
        chosen = (
            EnabledExtension("a"),
            EnabledExtension("b", {"path": "/x", "n": 3, "api-token": "hush", "a b": True}),
        )
        lines = asToml(Settings(extension=chosen))
        self.assertEqual(
            lines,
            [
                "", "[extension.a]",
                "", "[extension.b]", 'path = "/x"', "n = 3", 'api-token = "..."  # not shown', '"a b" = true',
            ],
        )  # fmt: skip
        self.assertEqual(set(tomllib.loads("\n".join(lines))["extension"]), {"a", "b"})
