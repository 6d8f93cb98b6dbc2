"""Two brokers cannot have one journal."""

import os

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import JournalError
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_files import Lock


class LockTests(SynchronousTestCase):
    """On a real folder."""

    def setUp(self) -> None:
        self.folder = self.mktemp()

    def test_second(self) -> None:
        """The second one is told so, until the first gives it back."""
        os.mkdir(self.folder)
        first = Lock(Files(), self.folder)
        error = self.assertRaises(JournalError, Lock, Files(), self.folder)
        self.assertEqual(str(error), f"the journal in {self.folder} is in use by another broker")
        first.release()
        Lock(Files(), self.folder).release()

    def test_noFolder(self) -> None:
        """Where no file can be made, the sentence says why."""
        error = self.assertRaises(JournalError, Lock, Files(), self.folder)
        self.assertEqual(str(error), f"the journal in {self.folder} cannot be written: no such file or directory")

    def test_cannotBeLocked(self) -> None:
        """Nor does a file system without locks pass for an unlocked one."""

        class NoLocks(Files):
            def lock(self, descriptor: int) -> bool:
                raise OSError(38, "Function not implemented")

        os.mkdir(self.folder)
        error = self.assertRaises(JournalError, Lock, NoLocks(), self.folder)
        self.assertEqual(str(error), f"the journal in {self.folder} cannot be locked: function not implemented")
