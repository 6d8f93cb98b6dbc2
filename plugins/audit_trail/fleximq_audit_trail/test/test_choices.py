"""What an operator can choose."""

import os

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import SettingError
from fleximq_audit_trail.choices import Choices, configure


class ConfigureTests(SynchronousTestCase):
    """Options, as they stand on the command line and in a file."""

    def refused(self, **options: object) -> str:
        """Return the sentence with which these are refused."""
        return str(self.assertRaises(SettingError, configure, options))

    def test_path(self) -> None:
        """Only the path has to be given."""
        self.assertEqual(configure({"path": "a.jsonl"}), Choices("a.jsonl"))

    def test_all(self) -> None:
        """Each option is read, as text or as a value."""
        chosen = Choices("a", rotate=65536, keep=2, pattern="x.#", payloads=True, every=0.1, backlog=4096)
        written = {"path": "a", "rotate": "64KiB", "keep": "2", "pattern": "x.#", "payloads": True, "every": "0.1"}
        self.assertEqual(configure({**written, "backlog": 4096}), chosen)

    def test_wrong(self) -> None:
        """What is missing, unknown or wrong is a sentence."""
        os.mkdir("folder")
        self.addCleanup(os.rmdir, "folder")
        self.assertEqual(self.refused(), "path is missing, but must name the file to write to")
        self.assertEqual(
            self.refused(path="a", size=3),
            "there is no option size, only path, rotate, keep, pattern, payloads, every, backlog",
        )
        self.assertEqual(self.refused(path="a", payloads="yes"), "payloads is 'yes', but must be true or false")
        for path in ("", "folder", "none/such"):
            self.assertEqual(
                self.refused(path=path), f"path is {path!r}, but must name a file in a folder that is there"
            )

    def test_ranges(self) -> None:
        """Numbers at, below and above their limits."""
        for name, least in (("rotate", 4096), ("keep", 1), ("backlog", 4096)):
            configure({"path": "a", name: least})
            self.assertEqual(
                self.refused(path="a", **{name: least - 1}), f"{name} is {least - 1}, but must be at least {least}"
            )
        for every in (0.01, 60):
            configure({"path": "a", "every": every})
        for every in (0.009, 60.1):
            self.assertIn("but must be between 0.01 and 60 seconds", self.refused(path="a", every=every))
        configure({"path": "a", "pattern": "x" * 1024})
        for pattern in ("", "x" * 1025):
            self.assertIn("but must be a topic or a pattern of them", self.refused(path="a", pattern=pattern))
