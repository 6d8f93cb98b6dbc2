"""How long the broker looks for input before it sleeps."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from twisted.application.service import IService, MultiService
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.settings import Settings
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.services.compose import compose
from fleximq.services.process import busy_poll
from fleximq.services.process.busy_poll import MISSES, MOST_SKIPPED, BusyPollService, processors

#: Seconds to poll.
SHORT = 0.0001


class Turns:
    """A reactor's calls for its next turn."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def callLater(self, seconds: float, call: Callable[[], None]) -> "Turns":
        """Call in the next turn; there is one call at most."""
        self.calls.append(call)
        return self

    def cancel(self) -> None:
        """Cancel the call."""
        self.calls.pop()


class BusyPollTests(SynchronousTestCase):
    """Reads, and the reactor's turns that follow each other without sleep."""

    def setUp(self) -> None:
        self.reactor = Turns()
        self.turn = WriteTurn(Clock())
        self.journal: Any = SimpleNamespace(appended=0, decided=0)
        journal: Any = self.journal
        self.service = BusyPollService(self.reactor, self.turn, journal, SHORT)
        self.now = 0.0
        self.patch(busy_poll, "perf_counter", lambda: self.now)
        self.service.startService()

    def read(self) -> None:
        """A connection's input is processed."""
        self.turn.open = True
        self.turn.flush()

    def isPolling(self) -> bool:
        """Whether the reactor's next turn begins at once."""
        return bool(self.reactor.calls)

    def pass_(self, seconds: float) -> None:
        """Time passes, and the reactor takes a turn."""
        self.now += seconds
        calls, self.reactor.calls = self.reactor.calls, []
        for call in calls:
            call()

    def readUntilPoll(self) -> int:
        """Return how many reads began no poll before one did."""
        skipped = 0
        while not self.isPolling():
            self.read()
            skipped += 1
        return skipped - 1

    def test_deadline(self) -> None:
        """A poll ends after its time, counted from the last read."""
        self.assertFalse(self.isPolling())
        self.read()
        self.pass_(SHORT * 0.9)
        self.assertTrue(self.isPolling())
        self.read()
        for isPolling in (True, True, False):
            self.pass_(SHORT * 0.6)
            self.assertEqual(self.isPolling(), isPolling)

    def test_outputOutsideARead(self) -> None:
        """Output that no read caused begins no poll."""
        self.turn.flush()
        self.assertFalse(self.isPolling())

    def test_misses(self) -> None:
        """While polls find nothing, ever fewer reads begin one; a poll that finds something resets that."""
        skipped = []
        for _ in range(MISSES + 9):
            skipped.append(self.readUntilPoll())
            self.pass_(SHORT)
        self.assertEqual(skipped, [0] * MISSES + [2, 4, 8, 16, 32, 64, MOST_SKIPPED, MOST_SKIPPED, MOST_SKIPPED])
        self.readUntilPoll()
        self.read()
        self.pass_(0)
        self.pass_(SHORT)
        self.assertFalse(self.isPolling())
        self.assertEqual(self.readUntilPoll(), 0)

    def test_pendingCommits(self) -> None:
        """The journal's threads are left alone."""
        self.journal.appended = 1
        self.read()
        self.assertFalse(self.isPolling())
        self.journal.decided = 1
        self.read()
        self.journal.appended = 2
        self.pass_(0)
        self.assertFalse(self.isPolling())

    def test_stop(self) -> None:
        """After its stop nothing is pending, and reads begin no poll."""
        self.read()
        self.service.stopService()
        self.read()
        self.assertFalse(self.isPolling())

    def test_processors(self) -> None:
        """The quota of a control group counts, as in a container; what cannot be read does not."""
        own = processors("/missing")
        self.assertGreaterEqual(own, 1)
        for group in ("", "system.slice/fleximq.service"):
            root = Path(self.mktemp())
            (root / "proc/self").mkdir(parents=True)
            (root / "proc/self/cgroup").write_text(f"12:cpu:/other\n0::/{group}\n")
            folder = root / "sys/fs/cgroup" / group
            folder.mkdir(parents=True)
            for written, expected in (("50000 100000\n", 0.5), ("max 100000\n", own), ("", own)):
                (folder / "cpu.max").write_text(written)
                self.assertEqual(processors(str(root)), expected)

    def test_composed(self) -> None:
        """A broker polls as its option says, where it has a second processor."""
        for microseconds, number, expected in ((100, 2, True), (0, 2, False), (100, 1, False)):
            with patch("fleximq.services.compose.processors", lambda number=number: number):
                whole = compose(Clock(), Settings(busyPoll=microseconds))
            found = [each for part in whole for each in _tree(part) if isinstance(each, BusyPollService)]
            self.assertEqual(bool(found), expected)


def _tree(service: IService) -> Iterator[IService]:
    yield service
    for each in service if isinstance(service, MultiService) else ():
        yield from _tree(each)
