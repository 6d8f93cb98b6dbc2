"""How far a job is: a line that is written over on a terminal, and a line now and then elsewhere."""

import io

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.command.job_run import ProgressLine


class Terminal(io.StringIO):
    """A stream that says that somebody sits before it."""

    def isatty(self) -> bool:
        """Say so."""
        return True


class ProgressTests(SynchronousTestCase):
    """One stream, and a clock."""

    def setUp(self) -> None:
        """Begin at an arbitrary time."""
        self.clock = Clock()
        self.clock.advance(1000)

    def progress(self, stream: io.StringIO) -> ProgressLine:
        """Return one on the test's clock."""
        return ProgressLine(stream, self.clock.seconds)

    def test_withoutATerminalThereIsALineEveryTenSeconds(self) -> None:
        """Elsewhere there is a line every ten seconds, and none of what is over at once."""
        stream = io.StringIO()
        progress = self.progress(stream)
        for second in range(21):
            progress.show("read", second * 1000, 20_000, "rows")
            self.clock.advance(1)
        self.assertEqual(stream.getvalue(), "read: 10,000 of 20,000 rows (50%)\nread: 20,000 of 20,000 rows (100%)\n")

    def test_withoutATotalOnlyTheDoneIsShown(self) -> None:
        stream = Terminal()
        self.progress(stream).show("read", 1.5, None, "MB")
        self.assertEqual(stream.getvalue(), "\rread: 1.5 MB")

    def test_terminalLineIsOverwrittenAFewTimesASecond(self) -> None:
        """On a terminal the line is written over, a few times a second, and stays at the end."""
        stream = Terminal()
        progress = self.progress(stream)
        progress.show("read", 1000, 2000, "rows")
        progress.show("read", 1001, 2000, "rows")
        self.clock.advance(1)
        progress.show("read", 2000, 2000, "rows")
        self.assertEqual(stream.getvalue(), "\rread: 1,000 of 2,000 rows (50%)\rread: 2,000 of 2,000 rows (100%)\n")

    def test_saidLineIsNotMixedWithTheProgress(self) -> None:
        stream = Terminal()
        progress = self.progress(stream)
        progress.show("a", 1, None, "b")
        progress.writeLine("word")
        self.assertEqual(stream.getvalue(), "\ra: 1 b\r      \rword\n")

    def test_endLeavesTheLineOnce(self) -> None:
        stream = Terminal()
        progress = self.progress(stream)
        progress.end()
        progress.show("a", 1, None, "b")
        progress.end()
        progress.end()
        self.assertEqual(stream.getvalue(), "\ra: 1 b\n")

    def test_closedStreamEndsNothing(self) -> None:
        stream = io.StringIO()
        progress = self.progress(stream)
        stream.close()
        self.assertRaises(ValueError, stream.write, "x")
        progress.writeLine("word")
