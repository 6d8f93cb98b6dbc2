"""A folder is a journal, can become one, or is refused with one sentence."""

import os

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files, readFile
from fleximq.journal.files.folder_files import checkFolder, identify, readIdentity
from tests.journal.faulty_files import FaultyFiles

ID = "0123456789abcdef" * 2


class IdentityTests(SynchronousTestCase):
    """On a real folder."""

    def setUp(self) -> None:
        self.folder = self.mktemp()
        self.files = Files()

    def identify(self) -> str:
        """Check the folder and return its id."""
        checkFolder(self.files, self.folder)
        return identify(self.files, self.folder, lambda: ID)

    def put(self, name: str, content: bytes) -> None:
        """Put a file into the folder."""
        os.makedirs(self.folder, exist_ok=True)
        with open(f"{self.folder}/{name}", "wb") as file:
            file.write(content)

    def refused(self) -> str:
        """Return the sentence with which the folder is refused."""
        return str(self.assertRaises(JournalError, self.identify))

    def test_new(self) -> None:
        """A folder that is not there is made, with the id it is given, in the documented form."""
        self.assertEqual(self.identify(), ID)
        line = readFile(self.files, f"{self.folder}/identity")
        self.assertEqual(line, b"fleximq-journal 1 0123456789abcdef0123456789abcdef 110a1d8d\n")

    def test_known(self) -> None:
        """Whoever opens it again meets the same id."""
        self.identify()
        self.assertEqual(identify(self.files, self.folder, lambda: "f" * 32), ID)

    def test_cutShort(self) -> None:
        """If making it was cut short at any operation, the next attempt succeeds."""
        for operation in ("create", "write", "sync", "rename"):
            self.folder = self.mktemp()
            files = FaultyFiles()
            files.fail(operation)
            checkFolder(files, self.folder)
            self.assertRaises(JournalError, identify, files, self.folder, lambda: ID)
            self.assertEqual(self.identify(), ID, operation)

    def test_everyFlip(self) -> None:
        """One changed bit anywhere is noticed."""
        self.identify()
        line = readFile(self.files, f"{self.folder}/identity")
        for bit in range(8 * len(line)):
            self.put("identity", (int.from_bytes(line, "little") ^ 1 << bit).to_bytes(len(line), "little"))
            self.refused()

    def test_everyCut(self) -> None:
        """So is every missing end."""
        self.identify()
        line = readFile(self.files, f"{self.folder}/identity")
        for size in range(len(line)):
            self.put("identity", line[:size])
            self.refused()

    def test_newer(self) -> None:
        """A journal of a newer version says so."""
        from zlib import crc32

        line = f"fleximq-journal 2 {ID} "
        self.put("identity", f"{line}{crc32(line.encode()):08x}\n".encode())
        self.assertEqual(self.refused(), f"the journal in {self.folder} has version 2, but this broker reads 1 at most")

    def test_foreign(self) -> None:
        """A folder with somebody else's files is left alone."""
        self.put("letters.txt", b"")
        self.assertEqual(self.refused(), f"{self.folder} holds other files, such as letters.txt, and no journal")
        self.assertEqual(self.files.names(self.folder), ["letters.txt"])

    def test_withoutIdentity(self) -> None:
        """Segments without an identity are not taken for a new journal."""
        self.put("00000000000000000000.fxj", b"")
        self.assertIn("has lost its file identity", self.refused())

    def test_foreignIdentity(self) -> None:
        """A file of this name that is no journal's is told from a damaged one."""
        self.put("identity", b"me\n")
        self.assertEqual(self.refused(), f"{self.folder} holds a file identity that is no journal's")

    def test_noFolder(self) -> None:
        """A file cannot be a journal."""
        with open(self.folder, "wb"):
            pass
        self.assertEqual(self.refused(), f"{self.folder} is not a folder, so it cannot hold a journal")

    def test_noParent(self) -> None:
        """A folder in one that is not there is not made."""
        self.folder += "/deep"
        why = "cannot be made for the journal: the folder above it is missing"
        self.assertEqual(self.refused(), f"{self.folder} {why}")

    def test_onlyRead(self) -> None:
        """Reading the identity of what is no journal changes nothing."""
        os.mkdir(self.folder)
        self.assertRaises(OSError, readIdentity, self.files, self.folder)
        self.assertEqual(self.files.names(self.folder), [])
