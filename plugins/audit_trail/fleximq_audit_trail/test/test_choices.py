"""The options of the audit trail."""

import os

from twisted.trial.unittest import SynchronousTestCase

from fleximq.api import SettingError
from fleximq_audit_trail.choices import Choices, configure


class ConfigureTests(SynchronousTestCase):
    """Options as on the command line and in a file."""

    def assertRefused(self, sentence: str, **options: object) -> None:
        """Assert that these options are refused with this sentence."""
        self.assertEqual(str(self.assertRaises(SettingError, configure, options)), sentence)

    def test_onlyThePathIsRequired(self) -> None:
        self.assertEqual(configure({"path": "a.jsonl"}), Choices("a.jsonl"))
        self.assertRefused("path is missing, but must name the file to write to")

    def test_eachOptionIsReadAsTextOrValue(self) -> None:
        chosen = Choices("a", rotate=65536, keep=2, pattern="x.#", payloads=True, every=0.1, backlog=4096)
        written = {"path": "a", "rotate": "64KiB", "keep": "2", "pattern": "x.#", "payloads": True, "every": "0.1"}
        self.assertEqual(configure({**written, "backlog": 4096}), chosen)

    def test_unknownOptionsAndWrongValuesAreRefused(self) -> None:
        os.mkdir("folder")
        self.addCleanup(os.rmdir, "folder")
        known = "path, rotate, keep, pattern, payloads, every, backlog"
        self.assertRefused(f"there is no option size, only {known}", path="a", size=3)
        self.assertRefused("payloads is 'yes', but must be true or false", path="a", payloads="yes")
        for path in ("", "folder", "none/such"):
            self.assertRefused(f"path is {path!r}, but must name a file in a folder that is there", path=path)

    def test_valuesAtBelowAndAboveTheirLimits(self) -> None:
        for name, least in (("rotate", 4096), ("keep", 1), ("backlog", 4096)):
            configure({"path": "a", name: least})
            self.assertRefused(f"{name} is {least - 1}, but must be at least {least}", path="a", **{name: least - 1})
        for every in (0.01, 60):
            configure({"path": "a", "every": every})
        for every in (0.009, 60.1):
            self.assertRefused(f"every is {every:g}, but must be between 0.01 and 60 seconds", path="a", every=every)
        configure({"path": "a", "pattern": "x" * 1024})
        for pattern in ("", "x" * 1025):
            words = f"pattern is {pattern!r}, but must be a topic or a pattern of them"
            self.assertRefused(words, path="a", pattern=pattern)
