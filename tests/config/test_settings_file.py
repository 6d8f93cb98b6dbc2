"""The settings file, read as it stands on disk."""

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.option_values import read
from fleximq.errors import SettingError


class ReadTests(SynchronousTestCase):
    """Files that are there, and those that are not."""

    def file(self, content: bytes) -> str:
        """Return the path of a file that holds this."""
        path = Path(self.mktemp()).absolute()
        path.write_bytes(content)
        return str(path)

    def refused(self, path: str) -> str:
        """Return the sentence with which a file is refused."""
        return str(self.assertRaises(SettingError, read, path))

    def test_namesAndValuesAreReturnedAsTOMLHasThem(self) -> None:
        """Names and values are returned as TOML has them."""
        content = b'keepalive = 5\nlisten = ["tcp:1"]\n[extension.x]\nsize = "1KiB"\n'
        expected = {"keepalive": 5, "listen": ["tcp:1"], "extension": {"x": {"size": "1KiB"}}}
        self.assertEqual(read(self.file(content)), expected)

    def test_emptyFileSetsNothing(self) -> None:
        """An empty file sets nothing."""
        self.assertEqual(read(self.file(b"")), {})

    def test_fileThatIsNotThereIsNamedSoIsFolderAndNameThatCannotBeOne(self) -> None:
        """A file that is not there is named, so is a folder and a name that cannot be one."""
        path = os.path.abspath(self.mktemp())
        self.assertEqual(self.refused(path), f"{path} cannot be read: no such file or directory")
        os.mkdir(path)
        self.assertEqual(self.refused(path), f"{path} cannot be read: is a directory")
        self.assertEqual(self.refused("a\0b"), "a\0b cannot be read: embedded null byte")

    def test_whateverElseKeepsFileFromBeingReadIsSaidInSystemsOwnWords(self) -> None:
        """Whatever else keeps a file from being read is said in the system's own words."""
        path = self.file(b"") + "/below"
        self.assertEqual(self.refused(path), f"{path} cannot be read: not a directory")

    def test_noToml(self) -> None:
        """Of what is not TOML the line is named."""
        path = self.file(b"keepalive = 5\nlisten = tcp:1\n")
        self.assertEqual(self.refused(path), f"{path} is not TOML: invalid value (at line 2, column 10)")
        path = self.file(b"a = 1\nb = 2\nc = '\xff'\n")
        self.assertEqual(self.refused(path), f"{path} is not TOML: line 3 is not UTF-8")

    def test_tooDeep(self) -> None:
        """A file that is all brackets is refused as well."""
        path = self.file(b"a = " + b"[" * 100_000)
        self.assertTrue(self.refused(path).startswith(f"{path} is not TOML"))
