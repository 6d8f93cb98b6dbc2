"""Medians, ratios, goals and refusals."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks import tables
from benchmarks.peers.fleximq import FlexiMQ
from benchmarks.peers.nats import Nats
from benchmarks.results import Results, Row, unmet
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

    def met(self, goal: Goal, broker: str) -> object:
        """Return what the row of a broker says of this goal."""
        return row(results(goal), broker).met

    def test_ratio(self) -> None:
        """A ratio of 2 meets 2 and not more."""
        self.assertIs(self.met(Goal("x/s", 2.0, "nats"), "nats"), True)
        self.assertIs(self.met(Goal("x/s", 2.01, "nats"), "nats"), False)

    def test_absolute(self) -> None:
        """A median of 20 is at most 20."""
        self.assertIs(self.met(Goal("x/s", 20, atMost=True), "fleximq"), True)
        self.assertIs(self.met(Goal("x/s", 19, atMost=True), "fleximq"), False)

    def test_others(self) -> None:
        """A goal is nothing to another broker or figure."""
        self.assertIsNone(self.met(Goal("x/s", 2.0, "redis"), "nats"))
        self.assertIsNone(self.met(Goal("y/s", 2.0, "nats"), "nats"))

    def test_unmet(self) -> None:
        """The rows that miss theirs are found."""
        self.assertEqual([each.broker for each in unmet([results(Goal("x/s", 3.0, "nats"))])], ["nats"])
        self.assertEqual(unmet([results(Goal("x/s", 1.0, "nats"))]), [])


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
        """Without ours there are no ratios, and no goal is met."""
        found = results(Goal("x/s", 1.0, "nats"))
        found.refuse("fleximq", "one lost")
        self.assertEqual(row(found, "nats")[7:11], (None, None, "at least 1", None))

    def test_told(self) -> None:
        """Both kinds of table say why."""
        found = results()
        found.refuse("nats", "one lost")
        for text in (tables.plain([found], {}), tables.page([found], {})):
            self.assertIn("Refused, so without numbers: A scene, nats: one lost", text)


class TablesTests(SynchronousTestCase):
    """How results are shown."""

    def test_plain(self) -> None:
        """The head stands above, and a line for each broker has its numbers."""
        text = tables.plain([results(Goal("x/s", 2.0, "nats"))], {"cores": "2"})
        lines = text.splitlines()
        self.assertEqual(lines[0], "cores: 2")
        self.assertEqual(lines[3].split(), ["A", "scene", "x/s", "fleximq", "20.0", "10.0", "40.0"])
        self.assertEqual(
            lines[4].split(), ["x/s", "nats", "10.0", "5.00", "10.0", "2.00", "4.00", "at", "least", "2", "yes"]
        )

    def test_number(self) -> None:
        """Large numbers are grouped, small ones have decimals."""
        self.assertEqual([tables.number(each) for each in (2_770_000.4, 100, 99.96, 1.25)],
                         ["2,770,000", "100", "100.0", "1.25"])  # fmt: skip
