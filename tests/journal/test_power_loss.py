"""Power losses during loads of all kinds: some hundred of them, and proof that each sync is needed.

``python -m tests.journal.power_loss`` tries many thousands.
"""

import ast
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

import fleximq.journal
from fleximq.config.journal_options import Fsync
from tests.journal.load import EXPIRING, Load
from tests.journal.power_loss import MODES, Report, explore
from tests.journal.recorder import Crash, Recorder
from tests.nightly import nightly, repetitions

ALWAYS, INTERVAL, NEVER = Fsync("always"), Fsync("interval", 50), Fsync("never")
_PLAIN: dict[str, Any] = {"steps": 30, "again": 1000}

#: Every sync that the journal asks for, by who asks, and a load in which a power loss breaks a promise without it.
NEEDED: dict[str, dict[str, Any]] = {
    "sync in ActiveSegment.sync for CommitWriter._syncIfDue": _PLAIN,
    "sync in ActiveSegment.sync for CommitWriter._roll": {
        **_PLAIN,
        "fsync": NEVER,
        "weights": (30, 30, 0, 0, 0, 0, 20, 0, 0),
    },
    "sync in ActiveSegment.sync for CommitWriter.syncDue": {
        **_PLAIN,
        "fsync": INTERVAL,
        "weights": (30, 30, 0, 0, 0, 0, 20, 0, 0),
    },
    "syncFolder in CommitWriter._syncIfDue for CommitWriter._carryOut": _PLAIN,
    "sync in replaceFile for identify": {**_PLAIN, "again": 1},
    "syncFolder in replaceFile for identify": {**_PLAIN, "again": 1},
    "syncFolder in checkFolder for JournalFolder.open": _PLAIN,
    "sync in verifyTail for DiskWriting._verify": {
        **_PLAIN,
        "fsync": NEVER,
        "weights": (30, 30, 0, 0, 0, 0, 0, 20, 0),
    },
    "sync in _Recovery._copy for _Recovery._cut": {"again": 4},
    "syncFolder in _Recovery._cut for _Recovery._last": {"again": 4},
    "syncFolder in _Recovery._setAside for _Recovery._last": {
        "steps": 30,
        "weights": (60, 60, 0, 0, 0, 0, 0, 0, 0),
        "ways": {"torn": 4},
        "seed": 2,
        "again": 1,
        "every": 3,
    },
    "sync in SegmentRewrite.write for SegmentRemoval._cleanOne": {
        "again": 1000,
        "weights": (60, 40, 5, 3, 0, 0, 4, 0, 30),
    },
    "syncFolder in SegmentRemoval._removeIndex for SegmentRemoval._replace": {
        "again": 1000,
        "weights": (60, 40, 5, 3, 0, 0, 4, 0, 30),
        "steps": 40,
    },
    "syncFolder in SegmentRemoval._replace for SegmentRemoval._cleanOne.<locals>.<lambda>": {
        "again": 1000,
        "weights": (60, 40, 5, 3, 0, 0, 4, 0, 30),
    },
    "syncFolder in SegmentRemoval._remove for SegmentRemoval._cleanOne.<locals>.<lambda>": {
        "again": 1000,
        "weights": (60, 60, 0, 0, 0, 0, 0, 0, 6),
        "topics": EXPIRING,
        "ways": {"dropped": 1, "torn": 6},
        "seed": 3,
    },
}
#: Functions whose syncs these loads never come to, since they leave no two neighbours empty; test_everySyncMatters of
#: tests/journal/test_retention.py shows what goes wrong without them.
SHOWN_ELSEWHERE = {"_write"}
#: How many loads are tried until one shows it.
_TRIES = 20
#: How many points of a load let the power go again; each missing sync of the recovery shows within 45.
_OPENED = 60


class PowerLossTests(SynchronousTestCase):
    """What is left by a power loss is opened, and compared with what was promised."""

    def explored(self, fsync: Fsync, **options: Any) -> Report:
        """Return the report of some crash points of each of a few loads."""
        report = Report()
        for seed in range(6):
            explore(seed, fsync, report, **{"every": repetitions(15, 5), "steps": 40, **options})
        self.assertGreater(report.points.total(), repetitions(50, 100))
        self.assertGreater(report.messages, 100)
        return report

    def test_always(self) -> None:
        """Nothing that was said to be safe is lost."""
        report = self.explored(ALWAYS)
        self.assertEqual(report.broken, [])
        self.assertGreater(report.torn, 0)
        self.assertGreater(report.again, 100)

    def test_interval(self) -> None:
        """Nothing is lost that was said to be safe before the last sync in between."""
        self.assertEqual(self.explored(INTERVAL).broken, [])

    def test_never(self) -> None:
        """Nothing is lost of sealed segments, nor after a clean stop."""
        self.assertEqual(self.explored(NEVER).broken, [])

    def test_faults(self) -> None:
        """Nothing is lost where writing and syncing failed in between."""
        for fsync in MODES:
            report = self.explored(fsync, weights=(30, 30, 10, 6, 5, 6, 12, 12, 2), every=repetitions(33, 11))
            self.assertEqual(report.broken, [])

    def test_retention(self) -> None:
        """Nothing is lost but what has expired, whenever the power goes while that is taken out."""
        self.assertEqual(
            self.explored(ALWAYS, weights=(60, 40, 5, 3, 2, 2, 4, 0, 30), every=repetitions(21, 7)).broken, []
        )

    def test_whileOpening(self) -> None:
        """Nothing is lost when the power goes again while an unfinished end is cut off, or a whole file set aside.

        The loads are those of the table in which a missing sync of the recovery does harm.
        """
        for site in (each for each in NEEDED if "_Recovery." in each):
            report, options = Report(), {"seed": 0, **NEEDED[site]}

            def found(report: Report = report) -> bool:
                return report.points.total() >= _OPENED

            explore(options.pop("seed"), ALWAYS, report, enough=found, **options)
            self.assertEqual(report.broken, [], site)
            self.assertIn(site, report.sites)
            self.assertGreater(report.again, 100)


class SyncTests(SynchronousTestCase):
    """Taking any single sync out of the code is found out."""

    @nightly
    def test_eachIsNeeded(self) -> None:
        """Without it some load loses what was promised."""
        for site, options in NEEDED.items():
            options = {"fsync": ALWAYS, "seed": 0, **options}
            fsync, first = options.pop("fsync"), options.pop("seed")
            for seed in range(first, first + _TRIES):
                report, whole = Report(), Report()

                def found(report: Report = report) -> bool:
                    return bool(report.broken)

                def asFar(report: Report = report, whole: Report = whole) -> bool:
                    return whole.points.total() >= report.points.total()

                explore(seed, fsync, report, broken=frozenset((site,)), enough=found, **options)
                if report.broken:
                    explore(seed, fsync, whole, enough=asFar, **options)
                    self.assertEqual(whole.broken, [], "not for want of a sync")
                    break
            else:
                self.fail(f"nobody misses this one: {site}")

    def test_allAreKnown(self) -> None:
        """Whatever function of the room asks for a sync is in the table."""
        asking = set()
        for path in Path(fleximq.journal.__path__[0]).rglob("*.py"):
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef):
                    for call in ast.walk(function):
                        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                            if call.func.attr in ("sync", "syncFolder"):
                                asking.add((call.func.attr, function.name))
        named = " ".join(NEEDED).replace(".", " ").split()
        self.assertEqual({function for _, function in asking} - set(named), SHOWN_ELSEWHERE)

    @nightly
    def test_noOthers(self) -> None:
        """Loads of every kind ask for no sync that is not in the table."""
        report = Report()
        for seed in range(8):
            weights = (30, 30, 10, 6, 5, 6, 12, 12, 12)
            explore(seed, MODES[seed % len(MODES)], report, weights=weights, every=13, again=2)
        self.assertEqual(report.sites - NEEDED.keys(), set())
        self.assertEqual(report.broken, [])


class RecorderTests(SynchronousTestCase):
    """The disk that forgets."""

    def setUp(self) -> None:
        """A folder with a file of which one sector was synced, and another one was not."""
        self.disk = Recorder()
        self.disk.makeFolder("/d")
        self.disk.syncFolder("/")
        self.descriptor = self.disk.create("/d/file")
        self.disk.write(self.descriptor, [b"a" * 512], 0)

    def left(self, how: str) -> dict[str, bytes]:
        """Return the files that a power loss leaves now."""
        crash = Crash(self.disk)
        for _ in self.disk.changes:
            crash.step()
        state = crash.left(Load(0, steps=0).random, how)
        return {name: state.files[number] for name, number in state.names.items() if number >= 0}

    def test_nothingSynced(self) -> None:
        """What was not synced is not there: neither its name nor its content."""
        self.disk.syncFolder("")
        self.assertEqual(self.left("dropped"), {})
        self.assertEqual(self.left("names"), {"/d/file": b""})
        self.assertEqual(self.left("kept"), {"/d/file": b"a" * 512})

    def test_synced(self) -> None:
        """What was synced is there in any case."""
        self.disk.syncFolder("")
        self.disk.syncFolder("/d")
        self.disk.sync(self.descriptor)
        for how in ("dropped", "kept", "names", "contents", "torn"):
            self.assertEqual(self.left(how), {"/d/file": b"a" * 512})

    def test_failedSync(self) -> None:
        """What a failed sync left is not there for sure after another one, unless it was written again."""
        self.disk.syncFolder("")
        self.disk.syncFolder("/d")
        self.disk.failing = "sync"
        with self.assertRaises(OSError):
            self.disk.sync(self.descriptor)
        self.disk.sync(self.descriptor)
        self.assertEqual(self.left("dropped"), {"/d/file": b""})
        self.disk.write(self.descriptor, [b"a" * 512], 0)
        self.disk.sync(self.descriptor)
        self.assertEqual(self.left("dropped"), {"/d/file": b"a" * 512})
