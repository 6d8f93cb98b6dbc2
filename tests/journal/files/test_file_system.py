"""Every operation on files does what it says, and writing copes with a system that takes little at once."""

import ctypes
import gc
import os
from errno import EINVAL, EIO, EMFILE, ENOSPC, ENOSYS
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.files import file_system, spare_descriptors
from fleximq.journal.files.file_system import Files, readFile, readUpTo, replaceFile, writeAll
from tests.journal.faulty_files import FaultyFiles


class SlowSystem(Files):
    """Takes, and gives, at most so many bytes at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.calls = 0

    def write(self, descriptor, buffers, position):  # type: ignore[no-untyped-def]
        """Take the first bytes only."""
        self.calls += 1
        return super().write(descriptor, [b"".join(buffers)[: self.most]], position)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        """Give the first bytes only."""
        return super().read(descriptor, min(size, self.most), position)


class FullTable:
    """The module os in a process that may have ``left`` more descriptors."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.mine: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, *arguments: Any) -> int:
        """Open a file, if there is a descriptor for it."""
        if len(self.mine) >= self.left:
            raise OSError(EMFILE, os.strerror(EMFILE))
        self.mine.append(os.open(*arguments))
        return self.mine[-1]

    def close(self, descriptor: int) -> None:
        """Close a file, perhaps one that another test has left to the garbage collector."""
        if descriptor in self.mine:
            self.mine.remove(descriptor)
        os.close(descriptor)


class SpareDescriptorTests(SynchronousTestCase):
    """Without a descriptor left, those in reserve are used."""

    def setUp(self) -> None:
        self.folder = self.mktemp()
        os.mkdir(self.folder)
        self.files = Files()
        self.addCleanup(lambda: self.files.reserve(0))

    def fill(self, left: int) -> FullTable:
        """Let the process have so many more descriptors."""
        table = FullTable(left)
        for module in (file_system, spare_descriptors):
            self.patch(module, "os", table)
        return table

    def test_used(self) -> None:
        """A file and a folder can be opened with one in reserve; it is replaced when another file is closed."""
        table = self.fill(1)
        self.files.reserve(1)
        one = self.files.create(f"{self.folder}/one")
        self.assertEqual(table.mine, [one])
        error = self.assertRaises(OSError, self.files.open, f"{self.folder}/one", write=True)
        self.assertEqual(error.errno, EMFILE)
        self.files.close(one)
        self.assertEqual(len(table.mine), 1)
        self.files.syncFolder(self.folder)
        self.assertRaises(OSError, self.files.open, f"{self.folder}/one")  # to read it
        self.files.close(self.files.open(f"{self.folder}/one", write=True))
        self.assertEqual(len(table.mine), 1)

    def test_takenMeanwhile(self) -> None:
        """If another thread takes the descriptor that was given up, the next one is given up."""
        table = self.fill(2)
        self.files.reserve(2)
        close = table.close

        def closeAndLose(descriptor: int) -> None:
            close(descriptor)
            table.left = 1

        self.patch(table, "close", closeAndLose)
        self.files.create(f"{self.folder}/one")

    def test_otherFaults(self) -> None:
        """Other failures do not use the reserve up."""
        table = self.fill(1)
        self.files.reserve(1)
        self.assertRaises(OSError, self.files.open, f"{self.folder}/missing", write=True)
        self.assertEqual(len(table.mine), 0)  # the table was full, so it had to be tried
        self.files.close(self.files.create(f"{self.folder}/one"))
        self.assertEqual(len(table.mine), 1)

    def test_closed(self) -> None:
        """None is left open at the end, nor with the object."""
        table = self.fill(4)
        self.files.reserve(4)
        self.files.reserve(0)
        self.assertEqual(table.mine, [])
        self.files.reserve(4)
        self.files = Files()
        gc.collect()
        self.assertEqual(table.mine, [])


class FilesTests(SynchronousTestCase):
    """On a real folder."""

    def setUp(self) -> None:
        self.folder = self.mktemp()
        os.mkdir(self.folder)
        self.path = f"{self.folder}/one"

    def write(self, files: Files, buffers: list[bytes]) -> int:
        """Write buffers to a new file from its first byte on."""
        descriptor = files.create(self.path)
        try:
            return writeAll(files, descriptor, buffers, 0)
        finally:
            files.close(descriptor)

    def test_createsOnce(self) -> None:
        """A file that is there is not created again."""
        Files().close(Files().create(self.path))
        self.assertRaises(FileExistsError, Files().create, self.path)

    def test_beginSync(self) -> None:
        """A fault is raised; a system that cannot begin a sync, or has no such call, leaves all to the sync."""
        descriptor = Files().create(self.path)
        Files().beginSync(descriptor, 0, 1)
        for code, raised in (EIO, True), (ENOSPC, True), (ENOSYS, False), (EINVAL, False):
            self.patch(file_system, "_syncRange", lambda *ignored, code=code: ctypes.set_errno(code) or -1)
            if raised:
                error = self.assertRaises(OSError, Files().beginSync, descriptor, 0, 1)
                self.assertEqual(error.errno, code)
            else:
                Files().beginSync(descriptor, 0, 1)
        self.patch(file_system, "_syncRange", None)
        Files().beginSync(descriptor, 0, 1)
        Files().close(descriptor)

    def test_piecewise(self) -> None:
        """However few bytes the system takes at once, all are written, in order."""
        buffers = [b"abc", b"", b"defghij", b"k"]
        for most in range(1, 13):
            files = SlowSystem(most)
            self.assertEqual(self.write(files, buffers), 11)
            self.assertEqual(readFile(files, self.path), b"abcdefghijk")
            self.assertEqual(files.calls, -(-11 // most))
            files.remove(self.path)

    def test_manyBuffers(self) -> None:
        """More buffers than one call may be given are written in several."""
        buffers = [b"%06d" % number for number in range(Files.mostBuffers * 2 + 1)]
        self.assertEqual(self.write(Files(), buffers), 6 * len(buffers))
        self.assertEqual(readFile(Files(), self.path), b"".join(buffers))

    def test_takesNothing(self) -> None:
        """A system that takes nothing more is an error, not an endless loop."""
        self.assertRaises(OSError, self.write, SlowSystem(0), [b"a"])

    def test_readsToTheEnd(self) -> None:
        """Reading over the end gives what there is."""
        self.write(Files(), [b"abcdef"])
        descriptor = Files().open(self.path)
        self.addCleanup(os.close, descriptor)
        self.assertEqual(readUpTo(SlowSystem(4), descriptor, 100, 1), b"bcdef")

    def test_readOnly(self) -> None:
        """A file that was opened to be read cannot be written."""
        self.write(Files(), [b"abc"])
        descriptor = Files().open(self.path)
        self.addCleanup(os.close, descriptor)
        self.assertRaises(OSError, Files().write, descriptor, [b"x"], 0)

    def test_lock(self) -> None:
        """A lock is given once, until it is given back."""
        files = Files()
        first, second = files.openLock(self.path), files.openLock(self.path)
        self.assertEqual([files.lock(first), files.lock(second)], [True, False])
        files.close(first)
        self.assertTrue(files.lock(second))
        files.close(second)

    def test_namesAreSorted(self) -> None:
        """The names in a folder come in order, and follow renames and removals."""
        files = Files()
        for name in "cab":
            files.close(files.create(f"{self.folder}/{name}"))
        files.rename(f"{self.folder}/a", f"{self.folder}/d")
        files.remove(f"{self.folder}/b")
        files.syncFolder(self.folder)
        self.assertEqual(files.names(self.folder), ["c", "d"])

    def test_replaceFile(self) -> None:
        """A small file is replaced as a whole, even if an earlier attempt was cut short."""
        files = Files()
        replaceFile(files, self.folder, "one", b"first")
        files.close(files.create(f"{self.path}.new"))
        replaceFile(files, self.folder, "one", b"second")
        self.assertEqual((readFile(files, self.path), files.names(self.folder)), (b"second", ["one"]))

    def test_replaceFileFails(self) -> None:
        """Whatever fails on the way, the old file is there."""
        replaceFile(Files(), self.folder, "one", b"first")
        for operation in ("create", "write", "sync", "rename"):
            files = FaultyFiles()
            files.fail(operation)
            self.assertRaises(OSError, replaceFile, files, self.folder, "one", b"second")
            self.assertEqual(readFile(files, self.path), b"first", operation)
