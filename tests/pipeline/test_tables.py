"""Which topics a query reads, whatever they are called; no Spark is started for that."""

import os
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.errors import OptionRefused
    from fleximq.pipeline.query.journal_sample import topicsOf
    from fleximq.pipeline.query.tables import Tables
    from fleximq.pipeline.reader.source_options import SourceOptions
    from tests.pipeline.written import Written

NAMES = ("a,b", "a", " b ", 'say "x"', "it's", "tick`s", "line\nbreak", "d.*", "day", "*", "News", "NEWS")


class Asked:
    """Stands for a session; ``chosen`` are the options that a table was opened with."""

    def __init__(self) -> None:
        self.read = self
        self.chosen: dict[str, str] = {}

    def format(self, name: str) -> "Asked":
        """Take the name of the source."""
        return self

    def options(self, **chosen: str) -> "Asked":
        """Take its options."""
        self.chosen = chosen
        return self

    def load(self) -> "Asked":
        """Return what stands for the table."""
        return self


class NamesTests(SynchronousTestCase):
    """A journal with topics of odd names."""

    def setUp(self) -> None:
        self.folder = os.path.abspath(self.mktemp())
        written = Written(self.folder)
        for name in NAMES:
            written.kept(name, b"x")
        written.close()
        self.spark = Asked()
        spark: Any = self.spark
        self.tables = Tables(spark, {"path": self.folder})

    def test_tableOfATopicHasNoOtherTopic(self) -> None:
        for name in NAMES:
            self.tables._open(name)
            self.assertEqual(topicsOf(SourceOptions.of(self.spark.chosen)), [name])

    def test_queryOfTopicsThatDifferInCapitalsIsRefused(self) -> None:
        error = self.assertRaises(OptionRefused, self.tables._checkTwins, "News", "select * from NEWS, News")
        self.assertIn("the topics 'News' and 'NEWS' differ in capitals only", str(error))

    def test_unusedTwinsDoNotMatter(self) -> None:
        self.tables._checkTwins("News", "select nEWs from News")
        self.tables._checkTwins("day", "select DAY(timestamp) from day")
