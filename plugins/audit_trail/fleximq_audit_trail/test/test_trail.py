"""The file of lines: when it is written, what is lost, and how it is rotated."""

import os
import stat
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from fleximq_audit_trail.trail import PORTION, PrivateLogFile, Trail


class Later:
    """A thread that does one call at each :meth:`go`."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def __call__(self, call: Any, *arguments: Any) -> "Deferred[Any]":
        done: Deferred[Any] = Deferred()
        self.waiting.append((done, call, arguments))
        return done

    def go(self) -> None:
        done, call, arguments = self.waiting.pop(0)
        maybeDeferred(call, *arguments).chainDeferred(done)


class TrailTests(SynchronousTestCase):
    """One trail in a folder of its own."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()

    def trail(self, inThread: Any = maybeDeferred, rotate: int = 1 << 20, keep: int = 3, backlog: int = 1000) -> Trail:
        """Return a trail; by default a flush writes immediately."""
        self.file = PrivateLogFile("trail", str(self.folder), rotateLength=rotate, maxRotatedFiles=keep)
        self.addCleanup(lambda: self.file.closed or self.file.close())
        return Trail(self.file, inThread, backlog, "{} lost\n".format)

    def flush(self, trail: Trail, *lines: str) -> str:
        """Add lines, flush them, and return the text of the file."""
        for line in lines:
            trail.take(line)
        trail.flush()
        return self.written()

    def written(self) -> str:
        return (self.folder / "trail").read_text()

    def test_linesAreWrittenByTheFlush(self) -> None:
        trail = self.trail()
        trail.take("one\n")
        self.assertEqual(self.written(), "")
        self.assertEqual(self.flush(trail, "tw\u00f6\n"), "one\ntw\u00f6\n")

    def test_anOldFileIsContinuedAndMadePrivate(self) -> None:
        path = self.folder / "trail"
        path.write_text("zero\n")
        path.chmod(0o644)
        trail = self.trail()
        trail.take("one\n")
        self.successResultOf(trail.close())
        self.assertEqual(self.written(), "zero\none\n")
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)

    def test_linesWaitWhileOthersAreWritten(self) -> None:
        later = Later()
        trail = self.trail(later)
        self.flush(trail, "one\n")
        self.flush(trail, "two\n")
        self.assertEqual(len(later.waiting), 1)
        later.go()
        self.assertEqual(self.written(), "one\n")
        trail.flush()
        later.go()
        self.assertEqual(self.written(), "one\ntwo\n")

    def test_withoutLinesTheThreadIsNotUsed(self) -> None:
        later = Later()
        self.trail(later).flush()
        self.assertEqual(later.waiting, [])

    def test_linesOverTheBacklogAreLostAndCounted(self) -> None:
        trail = self.trail(backlog=10)
        self.assertEqual(self.flush(trail, "12345\n", "678\n", "9\n", "10\n"), "12345\n678\n2 lost\n")
        self.assertEqual(self.flush(trail, "11\n"), "12345\n678\n2 lost\n11\n")

    def test_atItsSizeANewPrivateFileBeginsAndNoLineIsCut(self) -> None:
        trail = self.trail(rotate=100, keep=2)
        for number in range(30):
            self.flush(trail, f"{number:029}\n")
        self.assertEqual(sorted(os.listdir(self.folder)), ["trail", "trail.1", "trail.2"])
        for each in self.folder.iterdir():
            self.assertEqual(stat.S_IMODE(each.stat().st_mode), 0o600)
            self.assertTrue(all(len(line) == 29 for line in each.read_text().splitlines()))
        self.assertTrue(self.written().endswith(f"{29:029}\n"))

    def test_aFlushOfManyLinesIsRotatedToo(self) -> None:
        trail = self.trail(rotate=PORTION * 10, keep=100, backlog=1 << 20)
        self.flush(trail, *(f"{number:09}\n" for number in range(PORTION * 5)))
        self.assertEqual(len(os.listdir(self.folder)), 5)
        self.assertTrue(all(each.stat().st_size == PORTION * 10 for each in self.folder.iterdir()))

    def test_aFailedWriteIsLoggedAndItsLinesAreCountedAsLost(self) -> None:
        trail = self.trail()
        write, self.file.write = self.file.write, _full  # type: ignore[method-assign]
        self.flush(trail, "one\n")
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.file.write = write  # type: ignore[method-assign]
        self.assertEqual(self.flush(trail, "two\n"), "two\n1 lost\n")

    def test_theEndWritesPendingLinesAndIgnoresLaterOnes(self) -> None:
        trail = self.trail()
        trail.take("one\n")
        self.successResultOf(trail.close())
        self.assertEqual((self.flush(trail, "two\n"), self.file.closed), ("one\n", True))

    def test_theEndTellsLosses(self) -> None:
        trail = self.trail(backlog=2)
        trail.take("one\n")
        self.successResultOf(trail.close())
        self.assertEqual(self.written(), "1 lost\n")

    def test_theEndWaitsForTheLinesBeingWritten(self) -> None:
        later = Later()
        trail = self.trail(later)
        self.flush(trail, "one\n")
        trail.take("two\n")
        closed = trail.close()
        later.go()
        self.assertNoResult(closed)
        later.go()
        self.successResultOf(closed)
        self.assertEqual((self.written(), self.file.closed), ("one\ntwo\n", True))


def _full(text: str) -> None:
    raise OSError(28, "No space left on device")
