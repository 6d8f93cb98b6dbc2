"""The lines of a file of passwords, keys or tokens."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import SettingError
from fleximq.security import secret_files
from fleximq.security.secret_files import CredentialEntry
from tests.security.secrets_on_disk import secretFile


def isX(hash: str) -> str | None:
    """Take ``x`` for the only hash there is."""
    return None if hash == "x" else "has no hash"


class EntriesTests(SynchronousTestCase):
    """Reading and writing."""

    def test_eachLineIsEntryWithRolesOrWithout(self) -> None:
        """Each line is an entry, with roles or without; comments and empty lines are kept."""
        content = "# people\n\nalice:x\nbob:x:ops,a.b\n"
        path = secretFile(self, content)
        found = secret_files.readEntries(path, isX)
        self.assertEqual(found.all(), [CredentialEntry("alice", "x"), CredentialEntry("bob", "x", ("ops", "a.b"))])
        self.assertEqual(found.lines[:2], ("# people", ""))
        secret_files.writeEntries(path, found.lines)
        self.assertEqual(Path(path).read_text(), content)

    def test_whatIsWrongIsNamedByItsLineNeverWhatStandsThereAsSecret(self) -> None:
        """What is wrong is named by its line, never what stands there as a secret."""
        form = "line 2 is not NAME:HASH or NAME:HASH:ROLE,ROLE"
        for line, words in (
            ("alice", form),
            (":x", form),
            ("alice:x:a:b:c", form),
            ("alice:x:a:b", "line 2, for alice, ends at no time like 20261231T235959Z"),
            ("anonymous:x", form),
            ("alice:secret", "line 2, for alice, has no hash"),
            ("alice:x:a,,b", "line 2, for alice, has a role that is not letters, digits, _, . or -"),
            ("alice:x:", "line 2, for alice, has a role that is not letters, digits, _, . or -"),
        ):
            path = secretFile(self, f"# first\n{line}\n")
            error = self.assertRaises(SettingError, secret_files.readEntries, path, isX)
            self.assertEqual(str(error), f"{path} cannot be understood: {words}")

    def test_entryMayEndAtTimeWithRolesOrWithout(self) -> None:
        """An entry may end at a time, with roles or without."""
        content = "alice:x:ops:20010909T014640Z\nbob:x::20010909T014640Z\n"
        path = secretFile(self, content)
        found = secret_files.readEntries(path, isX)
        alice, bob = CredentialEntry("alice", "x", ("ops",), 1e9), CredentialEntry("bob", "x", (), 1e9)
        self.assertEqual(found.all(), [alice, bob])
        self.assertEqual([alice.hasExpired(1e9 - 1), alice.hasExpired(1e9)], [False, True])
        secret_files.writeEntries(path, found.lines)
        self.assertEqual(Path(path).read_text(), content)

    def test_entryDoesNotShowItsHash(self) -> None:
        """An entry does not show its hash."""
        self.assertNotIn("hash", repr(CredentialEntry("alice", "the hash")))

    def test_whatIsToSayAboutFileItselfIsHandedOn(self) -> None:
        """What is to say about the file itself is handed on."""
        self.assertEqual(len(secret_files.readEntries(secretFile(self, "", 0o644), isX).warnings), 1)
