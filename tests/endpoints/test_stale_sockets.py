"""Leftovers of UNIX sockets; a real socket is the subject."""

import errno
import os
import socket
import tempfile

from twisted.trial.unittest import SynchronousTestCase

from fleximq.endpoints.stale_sockets import LOCK, makeFolder, removeStaleSocket


class SweepTests(SynchronousTestCase):
    """What is removed, and what is not."""

    def setUp(self) -> None:
        """A folder whose name is short enough for sockets."""
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "s")

    def listening(self) -> socket.socket:
        """Return a socket that listens on the path."""
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(self.path)
        listener.listen(1)
        return listener

    def lock(self, pid: int) -> None:
        """Lock as Twisted does."""
        os.symlink(str(pid), self.path + LOCK)

    def test_whereNothingIsNothingHappens(self) -> None:
        """Where nothing is, nothing happens."""
        removeStaleSocket(self.path)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_socketOnWhichNobodyListensGoesAndSoDoesLockThatNamesLiving(self) -> None:
        """A socket on which nobody listens goes, and so does a lock that names a living process."""
        self.listening().close()
        self.lock(os.getpid())
        removeStaleSocket(self.path)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_lockAlone(self) -> None:
        """A lock without a socket goes."""
        self.lock(os.getpid())
        removeStaleSocket(self.path)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_danglingLink(self) -> None:
        """A symbolic link that leads nowhere stays, and the sentence says where it leads."""
        os.symlink("/no/such", self.path)
        error = self.assertRaises(OSError, removeStaleSocket, self.path)
        self.assertEqual(error.strerror, "it is a symbolic link to /no/such, which does not exist")
        self.assertTrue(os.path.islink(self.path))

    def test_socketThatAnswersStaysAndSoDoesOneWithLockOfDeadProcess(self) -> None:
        """A socket that answers stays, and so does one with a lock of a dead process."""
        self.listening()
        self.lock(2**22 + 1)
        error = self.assertRaises(OSError, removeStaleSocket, self.path)
        self.assertEqual((error.errno, error.strerror), (errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)))
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["s", "s.lock"])

    def test_socketWhoseBacklogIsFullStaysTooAndNobodyWaitsForIt(self) -> None:
        """A socket whose backlog is full stays too, and nobody waits for it."""
        self.listening()
        waiting = []
        for _ in range(8):
            each = socket.socket(socket.AF_UNIX)
            self.addCleanup(each.close)
            each.setblocking(False)
            waiting.append(each.connect_ex(self.path))
        self.assertIn(errno.EAGAIN, waiting)
        self.assertEqual(self.assertRaises(OSError, removeStaleSocket, self.path).errno, errno.EADDRINUSE)

    def test_somethingElseInWayIsNotOursToRemove(self) -> None:
        """Something else in the way is not ours to remove."""
        with open(self.path, "w") as file:
            file.write("precious")
        error = self.assertRaises(OSError, removeStaleSocket, self.path)
        self.assertEqual(error.strerror, "there is a file that is no socket")
        self.assertEqual(os.listdir(self.folder.name), ["s"])

    def test_noFolder(self) -> None:
        """A missing folder is for whoever listens to complain of."""
        removeStaleSocket(os.path.join(self.folder.name, "no", "s"))


class MakeFolderTests(SynchronousTestCase):
    """Which folders are made."""

    def setUp(self) -> None:
        """A folder in which all happens."""
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, *names: str) -> str:
        """Return a path in the folder."""
        return os.path.join(self.folder.name, *names)

    def test_folderThatIsThereIsLeftAsItIs(self) -> None:
        """A folder that is there is left as it is."""
        makeFolder(self.path("s"))
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_lastOneIsMade(self) -> None:
        """The last one is made."""
        makeFolder(self.path("app", "s"))
        self.assertEqual(os.listdir(self.folder.name), ["app"])
        self.assertEqual(os.listdir(self.path("app")), [])

    def test_onlyTheLast(self) -> None:
        """Two missing folders are one too many."""
        self.assertRaises(FileNotFoundError, makeFolder, self.path("run", "app", "s"))
        self.assertEqual(os.listdir(self.folder.name), [])
