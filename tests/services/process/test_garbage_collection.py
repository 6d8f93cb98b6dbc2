"""What the broker asks of Python's collector of cycles, and when."""

import gc

from twisted.application.service import MultiService
from twisted.trial.unittest import SynchronousTestCase

from fleximq import tap
from fleximq.services.process.garbage_collection import THRESHOLDS, GarbageService
from fleximq.startup.options import Options


class NotedCollector:
    """Writes down what it is asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def collect(self) -> int:
        """Write it down."""
        self.asked.append("collect")
        return 0

    def freeze(self) -> None:
        """Write it down."""
        self.asked.append("freeze")

    def unfreeze(self) -> None:
        """Write it down."""
        self.asked.append("unfreeze")

    def get_threshold(self) -> tuple[int, int, int]:
        """Return thresholds that nobody else has."""
        return (1, 2, 3)

    def set_threshold(self, young: int, middle: int, old: int, /) -> None:
        """Write them down."""
        self.asked.append((young, middle, old))


class GarbageServiceTests(SynchronousTestCase):
    """One start and one end."""

    def setUp(self) -> None:
        """A service that has not started."""
        self.collector = NotedCollector()
        self.service = GarbageService(self.collector, lambda: self.collector.asked.append("trim"))

    def test_notYet(self) -> None:
        """Nothing is asked before the start."""
        self.assertEqual(self.collector.asked, [])

    def test_start(self) -> None:
        """What a start leaves is collected before it is put aside; then the system gets the free memory back."""
        self.service.startService()
        self.assertEqual(self.collector.asked, ["collect", "freeze", THRESHOLDS, "trim"])

    def test_stop(self) -> None:
        """The end puts everything back as it was."""
        self.service.startService()
        self.collector.asked.clear()
        self.service.stopService()
        self.assertEqual(self.collector.asked, [(1, 2, 3), "unfreeze"])

    def test_stoppedBeforeStart(self) -> None:
        """A service that never started has nothing to put back."""
        self.service.stopService()
        self.assertEqual(self.collector.asked, [])

    def test_collector(self) -> None:
        """By default it is this process's own collector that is asked."""
        before = gc.get_threshold()
        service = GarbageService()
        service.startService()
        during = gc.get_threshold()
        service.stopService()
        self.assertEqual((during, gc.get_threshold()), (THRESHOLDS, before))

    def test_program(self) -> None:
        """In the program it starts behind everything else, and making the program changes nothing."""
        before = gc.get_threshold()
        self.patch(tap, "followMonotonicClock", lambda reactor: None)  # the reactor is that of the tests
        options = Options()
        options.parseOptions([])
        whole = tap.makeService(options)
        assert isinstance(whole, MultiService)
        (inside,) = whole  # the log's service contains all others
        self.assertIsInstance(list(inside)[-1], GarbageService)
        self.assertEqual(gc.get_threshold(), before)
