"""Files with secrets."""

import os
import stat
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import SettingError
from fleximq.security import secret_files
from tests.security.secrets_on_disk import secretFile


class ReadTests(SynchronousTestCase):
    """Reading."""

    def test_fileThatIsNobodyElsesBusinessIsReadWithoutWord(self) -> None:
        """A file that is nobody else's business is read without a word."""
        self.assertEqual(secret_files.read(secretFile(self, "a\n")), (b"a\n", ()))

    def test_oneThatOthersCanGetAtIsReadAndSaidToBeSo(self) -> None:
        """One that others can get at is read, and said to be so; not where nothing in it is secret."""
        for mode in (0o640, 0o604, 0o620, 0o601, 0o644):
            path = secretFile(self, "a", mode)
            self.assertEqual(
                secret_files.read(path).warnings, (f"{path} is open to others than its owner: chmod 600 {path}",)
            )
            self.assertEqual(secret_files.read(path, public=True).warnings, ())

    def test_ofThoseThatSystemdKeepsForServiceFolderIsShut(self) -> None:
        """Of those that systemd keeps for a service, the folder is shut."""
        path = secretFile(self, "a", 0o440)
        self.assertEqual(len(secret_files.read(path).warnings), 1)
        self.patch(os, "environ", {"CREDENTIALS_DIRECTORY": os.path.dirname(path)})
        self.assertEqual(secret_files.read(path).warnings, ())

    def test_whatIsNotThereNoFileOrNoNameIsSentence(self) -> None:
        """What is not there, no file, or no name, is a sentence."""
        for path, words in (
            ("/none/such", "/none/such cannot be read: no such file or directory"),
            ("/", "/ cannot be read: is a directory"),
            ("", "'' names no file"),
            ("a\0b", "'a\\x00b' names no file"),
        ):
            self.assertEqual(str(self.assertRaises(SettingError, secret_files.read, path)), words)

    def test_tooLarge(self) -> None:
        """At the limit it is read, above it is not."""
        self.patch(secret_files, "MAX_FILE_BYTES", 4)
        self.assertEqual(secret_files.read(secretFile(self, "aaaa")).content, b"aaaa")
        self.assertRaises(SettingError, secret_files.read, secretFile(self, "aaaaa"))

    def test_textIsUTF8(self) -> None:
        """Text is UTF-8; where it is not, the line is named."""
        self.assertEqual(secret_files.text("f", secret_files.SecretFile("é".encode(), ())), "é")
        error = self.assertRaises(SettingError, secret_files.text, "f", secret_files.SecretFile(b"a\nb\xff\n", ()))
        self.assertEqual(str(error), "f cannot be understood: line 2 is not UTF-8")


class WriteTests(SynchronousTestCase):
    """Writing."""

    def test_onlyOwner(self) -> None:
        """A new file, and one that was open to all, is its owner's; a group that might read it still may."""
        new = str(Path(self.mktemp()).absolute())
        for path, mode in (
            (new, 0o600),
            (secretFile(self, "all", 0o606), 0o600),
            (secretFile(self, "group", 0o660), 0o640),
        ):
            secret_files.write(path, "né\n")
            self.assertEqual(Path(path).read_text(), "né\n")
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), mode)

    def test_writtenFileReplacesOldOne(self) -> None:
        """It is another file: who has the old one open goes on reading that."""
        path = secretFile(self, "old")
        with open(path) as old:
            secret_files.write(path, "new")
            self.assertEqual((old.read(), Path(path).read_text()), ("old", "new"))

    def test_behindLinkFileIsReplacedAndLinkStays(self) -> None:
        """Behind a link, the file is replaced and the link stays."""
        path, link = secretFile(self, "old"), str(Path(self.mktemp()).absolute())
        os.symlink(path, link)
        secret_files.write(link, "new")
        self.assertTrue(os.path.islink(link))
        self.assertEqual(Path(path).read_text(), "new")

    def test_whatGoesWrongLeavesOldFileAndNothingBesideIt(self) -> None:
        """What goes wrong leaves the old file, and nothing beside it."""
        path = secretFile(self, "old")
        self.patch(os, "replace", self._full)
        folder = set(os.listdir(os.path.dirname(path)))
        error = self.assertRaises(SettingError, secret_files.write, path, "new")
        self.assertEqual(str(error), f"{path} cannot be written: no space left on device")
        self.assertEqual((Path(path).read_text(), set(os.listdir(os.path.dirname(path)))), ("old", folder))

    def _full(self, source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    def test_noFolder(self) -> None:
        """A folder that is not there is a sentence."""
        with self.assertRaises(SettingError) as caught, secret_files.alone("/none/such"):
            pass
        self.assertEqual(str(caught.exception), "/none/such cannot be written: no such file or directory")
        self.assertRaises(SettingError, secret_files.write, "/none/such", "")
