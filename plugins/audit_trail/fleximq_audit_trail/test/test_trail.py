"""The file of lines: what is written when, what is lost, and how it is rotated."""

import os
import stat
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from fleximq_audit_trail.trail import PORTION, PrivateLogFile, Trail


class Later:
    """Stands for a thread: what it is given is done when :meth:`go` is called."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def __call__(self, call: Any, *arguments: Any) -> "Deferred[Any]":
        done: Deferred[Any] = Deferred()
        self.waiting.append((done, call, arguments))
        return done

    def go(self) -> None:
        """Do the first that waits."""
        done, call, arguments = self.waiting.pop(0)
        maybeDeferred(call, *arguments).chainDeferred(done)


class TrailTests(SynchronousTestCase):
    """One trail in a folder of its own."""

    def setUp(self) -> None:
        """The folder."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()

    def trail(self, inThread: Any = maybeDeferred, rotate: int = 1 << 20, keep: int = 3, backlog: int = 1000) -> Trail:
        """Return a trail; without further words it writes at once."""
        self.file = PrivateLogFile("trail", str(self.folder), rotateLength=rotate, maxRotatedFiles=keep)
        self.addCleanup(lambda: self.file.closed or self.file.close())
        return Trail(self.file, inThread, backlog, "{} lost\n".format)

    def written(self) -> str:
        """Return what is in the file now."""
        return (self.folder / "trail").read_text()

    def test_flushed(self) -> None:
        """Lines are in the file when they were flushed, in their order, and not before."""
        trail = self.trail()
        trail.take("one\n")
        trail.take("tw\u00f6\n")
        self.assertEqual(self.written(), "")
        trail.flush()
        self.assertEqual(self.written(), "one\ntw\u00f6\n")

    def test_continued(self) -> None:
        """A file that is there is continued, and made private."""
        path = self.folder / "trail"
        path.write_text("zero\n")
        path.chmod(0o644)
        trail = self.trail()
        trail.take("one\n")
        self.successResultOf(trail.close())
        self.assertEqual(self.written(), "zero\none\n")
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)

    def test_oneAtATime(self) -> None:
        """While lines are written, others wait."""
        later = Later()
        trail = self.trail(later)
        trail.take("one\n")
        trail.flush()
        trail.take("two\n")
        trail.flush()
        self.assertEqual(len(later.waiting), 1)
        later.go()
        self.assertEqual(self.written(), "one\n")
        trail.flush()
        later.go()
        self.assertEqual(self.written(), "one\ntwo\n")

    def test_nothing(self) -> None:
        """Where there is nothing to write, nothing is asked of a thread."""
        later = Later()
        self.trail(later).flush()
        self.assertEqual(later.waiting, [])

    def test_backlog(self) -> None:
        """What is too much until the next flush is lost, and a line tells how much; then there is room again."""
        trail = self.trail(backlog=10)
        for line in ("12345\n", "678\n", "9\n", "10\n"):
            trail.take(line)
        trail.flush()
        self.assertEqual(self.written(), "12345\n678\n2 lost\n")
        trail.take("11\n")
        trail.flush()
        self.assertEqual(self.written(), "12345\n678\n2 lost\n11\n")

    def test_rotated(self) -> None:
        """At its size a new file is begun; only so many stay, all of them private, and no line is cut."""
        trail = self.trail(rotate=100, keep=2)
        for number in range(30):
            trail.take(f"{number:029}\n")
            trail.flush()
        self.assertEqual(sorted(os.listdir(self.folder)), ["trail", "trail.1", "trail.2"])
        for each in self.folder.iterdir():
            self.assertEqual(stat.S_IMODE(each.stat().st_mode), 0o600)
            self.assertTrue(all(len(line) == 29 for line in each.read_text().splitlines()))
        self.assertTrue((self.folder / "trail").read_text().endswith(f"{29:029}\n"))

    def test_rotatedWithin(self) -> None:
        """A flush of very many lines does not make a file much longer than it may be."""
        trail = self.trail(rotate=PORTION * 10, keep=100, backlog=1 << 20)
        for number in range(PORTION * 5):
            trail.take(f"{number:09}\n")
        trail.flush()
        self.assertEqual(len(os.listdir(self.folder)), 5)
        self.assertTrue(all(each.stat().st_size == PORTION * 10 for each in self.folder.iterdir()))

    def test_failed(self) -> None:
        """What cannot be written is logged and counted as lost; the next lines are tried again."""
        trail = self.trail()
        write, self.file.write = self.file.write, _full  # type: ignore[method-assign]
        trail.take("one\n")
        trail.flush()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.file.write = write  # type: ignore[method-assign]
        trail.take("two\n")
        trail.flush()
        self.assertEqual(self.written(), "two\n1 lost\n")

    def test_closed(self) -> None:
        """At the end all that waits is written; what comes later is not."""
        trail = self.trail()
        trail.take("one\n")
        self.successResultOf(trail.close())
        trail.take("two\n")
        trail.flush()
        self.assertEqual((self.written(), self.file.closed), ("one\n", True))

    def test_closedBehindLosses(self) -> None:
        """What was lost is told at the end, too."""
        trail = self.trail(backlog=2)
        trail.take("one\n")
        self.successResultOf(trail.close())
        self.assertEqual(self.written(), "1 lost\n")

    def test_closedWhileWriting(self) -> None:
        """The end waits for the lines that are being written, and for those behind them."""
        later = Later()
        trail = self.trail(later)
        trail.take("one\n")
        trail.flush()
        trail.take("two\n")
        closed = trail.close()
        later.go()
        self.assertNoResult(closed)
        later.go()
        self.successResultOf(closed)
        self.assertEqual((self.written(), self.file.closed), ("one\ntwo\n", True))


def _full(text: str) -> None:
    raise OSError(28, "No space left on device")
