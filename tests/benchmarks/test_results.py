"""Medians, ratios, goals and refusals."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from benchmarks import tables
from benchmarks.peers.fleximq import FlexiMQ
from benchmarks.peers.nats import Nats
from benchmarks.results import Results, Row, restore, store, unmet
from benchmarks.scenes import Goal, Scene
from benchmarks.work.fan import Fan


def results(*goals: Goal, ours: tuple[float, ...] = (10, 40, 20), theirs: tuple[float, ...] = (10, 10, 5)) -> Results:
    """Return the results of three runs of two brokers."""
    found = Results(Scene("s", "A scene", Fan(), (FlexiMQ, Nats), goals))
    for our, their in zip(ours, theirs, strict=True):
        found.ran("fleximq", {"x/s": our})
        found.ran("nats", {"x/s": their})
    return found


def row(found: Results, broker: str) -> Row:
    """Return the only row of a broker."""
    return next(row for row in found.rows() if row.broker == broker)


class RowsTests(SynchronousTestCase):
    """What is made of the runs."""

    def test_median(self) -> None:
        """Median, least and most."""
        self.assertEqual(row(results(), "fleximq")[4:7], (20, 10, 40))

    def test_ratios(self) -> None:
        """The ratio of the medians (20 to 10), and the median of the ratios of each pair (1, 4, 4)."""
        self.assertEqual(row(results(), "nats")[7:9], (2, 4))

    def test_oursHasNone(self) -> None:
        """Ours is not compared with itself."""
        self.assertEqual(row(results(), "fleximq")[7:9], (None, None))


class GoalTests(SynchronousTestCase):
    """When a goal is met."""

    def share(self, *goals: Goal, broker: str = "fleximq") -> object:
        """Return what the row of a broker says of these goals."""
        return row(results(*goals), broker).share

    def test_ratio(self) -> None:
        """A ratio of 2 meets 2 and not more."""
        self.assertEqual(self.share(Goal("x/s", 2.0, "nats")), 1)
        self.assertEqual(self.share(Goal("x/s", 2.5, "nats")), 0.8)

    def test_absolute(self) -> None:
        """A median of 20 is at most 20, and reaches half of at most 10."""
        self.assertEqual(self.share(Goal("x/s", 20, atMost=True)), 1)
        self.assertEqual(self.share(Goal("x/s", 10, atMost=True)), 0.5)

    def test_others(self) -> None:
        """A goal of ours is nothing to another broker or figure, and others can have goals."""
        self.assertIsNone(self.share(Goal("x/s", 2.0, "nats"), broker="nats"))
        self.assertIsNone(self.share(Goal("y/s", 2.0, "nats")))
        self.assertEqual(self.share(Goal("x/s", 5, of="nats"), broker="nats"), 2)

    def test_several(self) -> None:
        """Of several goals the one counts that is reached least; one that cannot be judged takes the others with it."""
        easy, hard, unknown = Goal("x/s", 10), Goal("x/s", 4.0, "nats"), Goal("x/s", 1.0, "redis")
        self.assertEqual(self.share(easy, hard), 0.5)
        self.assertIsNone(self.share(easy, unknown))
        self.assertEqual(row(results(easy, hard), "fleximq").goal, "at least 10, at least 4 x nats")

    def test_unmet(self) -> None:
        """The rows that miss theirs are found, by as much as is asked for, and those that cannot be judged."""
        missed = results(Goal("x/s", 2.1, "nats"))
        self.assertEqual([each.broker for each in unmet([missed])], ["fleximq"])
        self.assertEqual(unmet([missed], 0.9), [])
        self.assertEqual([f"{each}" for each in unmet([results(Goal("x/s", 3.0, "redis"))], 0.9)],
                         ["Goal not judged: A scene, x/s, fleximq: at least 3 x redis"])  # fmt: skip


class RefusalTests(SynchronousTestCase):
    """A broker that lost something has no numbers."""

    def test_noNumbers(self) -> None:
        """Not even those of its other runs, before or after."""
        found = results()
        found.refuse("nats", "one lost")
        found.ran("nats", {"x/s": 7})
        self.assertEqual([each.broker for each in found.rows()], ["fleximq"])
        self.assertEqual(found.asJson()["refused"], {"nats": "one lost"})
        self.assertNotIn("nats", found.asJson()["runs"])

    def test_oursRefused(self) -> None:
        """Without ours there are no ratios."""
        found = results(Goal("x/s", 1.0, "nats"))
        found.refuse("fleximq", "one lost")
        self.assertEqual(row(found, "nats")[7:11], (None, None, "", None))

    def test_anyError(self) -> None:
        """Any error refuses the broker and says what it was."""
        found = results()
        with found.refusing("nats"):
            raise ValueError("not a number")
        self.assertEqual(found.refused, {"nats": "ValueError: not a number"})

    def test_told(self) -> None:
        """Both kinds of table say why."""
        found = results()
        found.refuse("nats", "one lost")
        for text in (tables.plain([found], {}), tables.page([found], {})):
            self.assertIn("Refused, so without numbers: A scene, nats: one lost", text)


class StoreTests(SynchronousTestCase):
    """Results in a file."""

    def setUp(self) -> None:
        """Store two scenes, one of them without numbers of ours."""
        self.file, self.found = Path(self.mktemp()), results()
        lost = Results(Scene("t", "Another", Fan(), (FlexiMQ, Nats)), refused={"fleximq-pure": "one lost"})
        store(self.file, [self.found, lost], {"cores": "2", "time": "noon"})

    def test_restored(self) -> None:
        """What was measured comes back, without the scene in which ours was refused; the time may be another."""
        restored = restore(self.file, {"cores": "2", "time": "night"})
        self.assertEqual(list(restored), ["s"])
        self.assertEqual(restored["s"]["runs"], self.found.runs)

    def test_changed(self) -> None:
        """Measurements of different things are not mixed."""
        self.assertIn("cores", str(self.assertRaises(ValueError, restore, self.file, {"cores": "4"})))

    def test_none(self) -> None:
        """Without a file there is nothing to restore."""
        self.assertEqual(restore(Path(self.mktemp()), {"cores": "2"}), {})


class TablesTests(SynchronousTestCase):
    """How results are shown."""

    def test_plain(self) -> None:
        """The head stands above, and a line for each broker has its numbers."""
        text = tables.plain([results(Goal("x/s", 2.0, "nats"))], {"cores": "2"})
        lines = text.splitlines()
        self.assertEqual(lines[0], "cores: 2")
        self.assertTrue(lines[3].endswith(" at least 2 x nats  yes"), lines[3])
        self.assertEqual(lines[3].split()[:7], ["A", "scene", "x/s", "fleximq", "20.0", "10.0", "40.0"])
        self.assertEqual(lines[4].split(), ["x/s", "nats", "10.0", "5.00", "10.0", "2.00", "4.00"])

    def test_number(self) -> None:
        """Large numbers are grouped, small ones have decimals."""
        self.assertEqual([tables.number(each) for each in (2_770_000.4, 100, 99.96, 1.25)],
                         ["2,770,000", "100", "100.0", "1.25"])  # fmt: skip
