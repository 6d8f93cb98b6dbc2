"""The options of the source."""

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.errors import OptionRefused
    from fleximq.pipeline.files.schema import COLUMNS
    from fleximq.pipeline.files.selection import SLICE_BYTES, Selection, Topics
    from fleximq.pipeline.reader.offsets import EARLIEST, LATEST, Point, Points, StartKind
    from fleximq.pipeline.reader.source_options import _KNOWN, SourceOptions


class SourceOptionsTests(SynchronousTestCase):
    """How they are read."""

    def refused(self, **options: str) -> str:
        """Return what is said of options."""
        return str(self.assertRaises(OptionRefused, SourceOptions.of, {"path": "/j", **options}))

    def test_pathIsEnough(self) -> None:
        self.assertEqual(SourceOptions.of({"path": "/j"}), SourceOptions(("/j",)))

    def test_namesMayHaveAnyCaseAndDottedOnesAreIgnored(self) -> None:
        options = SourceOptions.of({"PATH": "/j", "startingoffsets": "5", "spark.x": "1", "FAILONDATALOSS": "FALSE"})
        self.assertEqual((options.start, options.failOnDataLoss), (Points(Point(StartKind.OFFSET, 5)), False))

    def test_unknownNameIsRefused(self) -> None:
        self.assertEqual(self.refused(startingOfsets="1"), "the source has no option 'startingOfsets'")

    def test_severalPathsAreJsonAndMayHaveAScheme(self) -> None:
        self.assertEqual(SourceOptions.of({"path": '["/a", "file:///b"]'}).paths, ("/a", "/b"))
        self.assertEqual(SourceOptions.of({"paths": '["/a", "/b"]'}).paths, ("/a", "/b"))
        self.assertEqual(SourceOptions.of({"path": "file:/a*"}).paths, ("/a*",))
        for options in ({}, {"path": ""}, {"path": "[]"}, {"path": "[5]"}):
            self.assertRaisesRegex(OptionRefused, "must name the folder", SourceOptions.of, options)

    def test_groupIsToldToTheBrokersOrToLagUrl(self) -> None:
        options = SourceOptions.of({"url": "tcp://a:1,tcp://b:2", "consumerGroup": "g"})
        self.assertEqual((options.group, options.told), ("g", options.brokers))
        options = SourceOptions.of({"path": "/j", "consumergroup": "g", "lagurl": "tcp://a:1", "token": "secret"})
        self.assertEqual((options.group, options.paths, options.brokers), ("g", ("/j",), ()))
        self.assertEqual(
            [(place.url, place.credentials) for place in options.told],
            [("tcp://a:1", {"type": "token", "token": "secret"})],
        )
        self.assertEqual(SourceOptions.of({"url": "tcp://a:1"}).told, ())

    def test_groupNeedsANameAndABroker(self) -> None:
        self.assertIn("needs 'lagUrl'", self.refused(consumerGroup="g"))
        self.assertIn("belongs to 'consumerGroup'", self.refused(lagUrl="tcp://a:1"))
        self.assertIn("1 to 256 bytes", self.refused(consumerGroup="", lagUrl="tcp://a:1"))
        self.assertIn("'lagUrl' is empty", self.refused(consumerGroup="g", lagUrl=","))
        self.assertIn("cannot be used", self.refused(consumerGroup="g", lagUrl="nowhere"))
        options = {"url": "tcp://a:1", "lagUrl": "tcp://b:1", "consumerGroup": "g"}
        self.assertIn("exclude each other", str(self.assertRaises(OptionRefused, SourceOptions.of, options)))

    def test_brokersAreAskedInPlaceOfFolders(self) -> None:
        options = SourceOptions.of({"url": "tcp://a:1, tcp://b:2", "token": "secret", "brokerTimeout": "5"})
        self.assertEqual([place.url for place in options.brokers], ["tcp://a:1", "tcp://b:2"])
        self.assertEqual({place.timeout for place in options.brokers}, {5.0})
        self.assertNotIn("secret", repr(options))
        self.assertIn("exclude each other", self.refused(url="tcp://localhost:7890"))
        self.assertIn("'token' belongs to 'url'", self.refused(token="secret"))

    def test_topicsAreNamesOrARegularExpressionOrPatterns(self) -> None:
        for options, inside, outside in [
            ({"subscribe": "a, b"}, "ab", "c"),
            ({"subscribePattern": "a.+|b"}, ["ab", "b"], ["a", "bb"]),
            ({"topics": "news.*,$stats.#"}, ["news.x", "$stats", "$stats.a.b"], ["news", "news.x.y", "other"]),
            ({}, ["anything", "$stats"], []),
        ]:
            topics = SourceOptions.of({"path": "/j", **options}).topics
            self.assertEqual([name in topics for name in inside], [True] * len(inside))
            self.assertEqual([name in topics for name in outside], [False] * len(outside))
            self.assertEqual(topics.all, not options)
        self.assertIn("exclude each other", self.refused(subscribe="a", topics="b"))
        self.assertIn("no regular expression", self.refused(subscribePattern="("))
        self.assertIn("'subscribe' is empty", self.refused(subscribe=" , "))

    def test_columnsAreNamedOnceInTheirOrder(self) -> None:
        self.assertEqual(SourceOptions.of({"path": "/j", "columns": "value, offset"}).columns, ("value", "offset"))
        without = tuple(name for name in COLUMNS if name != "headers")
        self.assertEqual(SourceOptions.of({"path": "/j", "includeHeaders": "false"}).columns, without)
        self.assertIn("names 'size'", self.refused(columns="size"))
        self.assertIn("twice", self.refused(columns="key,key"))

    def test_timesComeBeforeOffsets(self) -> None:
        both = {"path": "/j", "startingOffsets": "latest", "endingOffsets": '{"a": 9}'}
        self.assertEqual(SourceOptions.of(both).start, Points(LATEST))
        self.assertEqual(SourceOptions.of(both).end, Points(LATEST, {"a": Point(StartKind.OFFSET, 9)}))
        times = {"startingOffsetsByTimestamp": '{"a": 1}', "endingTimestamp": "7"}
        self.assertEqual(SourceOptions.of(both | times).start, Points(EARLIEST, {"a": Point(StartKind.TIME, 1000)}))
        self.assertEqual(SourceOptions.of(both | times).end, Points(Point(StartKind.TIME, 7000)))
        for end in ("earliest", "-2", '{"a": "earliest"}'):
            self.assertIn("cannot be earliest", self.refused(endingOffsets=end))

    def test_limitsAreNumbersFrom1AndBytesMayHaveAUnit(self) -> None:
        options = SourceOptions.of(
            {"path": "/j", "maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "2MiB", "minPartitions": "1",
             "partitionBytes": "1"}
        )  # fmt: skip
        self.assertEqual(
            (options.maxRecords, options.maxBytes, options.minPartitions, options.partitionBytes), (5, 2 << 20, 1, 1)
        )
        names = (
            "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "minPartitions", "partitionBytes",
        )  # fmt: skip
        for name in names:
            for value in ("0", "-1", "many", ""):
                self.assertIn(name, self.refused(**{name: value}))
        self.assertIn("true or false", self.refused(failOnDataLoss="maybe"))

    def test_minimumWaitsForATimeAsSparkWritesIt(self) -> None:
        options = SourceOptions.of({"path": "/j", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "5"})
        self.assertEqual((options.minRecords, options.maxDelay), (5, 900))
        for written, seconds in (("2m", 120), ("90 s", 90), ("1500ms", 1.5), ("1500", 1.5), ("1H", 3600), ("0s", 0)):
            options = SourceOptions.of({"path": "/j", "minOffsetsPerTrigger": "5", "maxTriggerDelay": written})
            self.assertEqual(options.maxDelay, seconds)
        for written in ("", "soon", "5 years", "-1s", "1.5s"):
            refused = self.refused(minOffsetsPerTrigger="5", maxTriggerDelay=written)
            self.assertEqual(
                refused, f"the option 'maxTriggerDelay' is {written!r}, but must be a time, e.g. 15m, 30s or 500ms"
            )
        self.assertIn("belongs to 'minOffsetsPerTrigger'", self.refused(maxTriggerDelay="5s"))
        self.assertEqual(
            self.refused(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5"),
            "the option minOffsetsPerTrigger is 6, but must be at most maxOffsetsPerTrigger, which is 5",
        )


class DocumentedTests(SynchronousTestCase):
    """What docs/reference/pipeline.rst says of them."""

    def test_everyOptionAndColumnIsDocumented(self) -> None:
        page = (Path(__file__).parents[3] / "docs" / "reference" / "pipeline.rst").read_text()
        for name in [*(_KNOWN - {"paths"}), *COLUMNS]:
            self.assertIn(f"``{name}``", page)

    def test_everyPageHasTheSizeOfATask(self) -> None:
        pages = (Path(__file__).parents[3] / "docs").glob("*/*.rst")
        named = re.compile(r"partitionBytes``\s\(`*([0-9]+) ?MiB|default one per ([0-9]+) MiB")
        found = [number for page in pages for pair in named.findall(page.read_text()) for number in pair if number]
        self.assertEqual(found, [str(SLICE_BYTES >> 20)] * 3)


class SelectionTests(SynchronousTestCase):
    """What is wanted, narrowed."""

    def test_rangeOnlyNarrows(self) -> None:
        selection = Selection(start=5, end=10)
        self.assertEqual(selection.within(1, 20), selection)
        self.assertEqual(selection.within(6, 9), Selection(start=6, end=9))

    def test_namesOfBothRemain(self) -> None:
        self.assertEqual(Topics().only("ab").names, frozenset("ab"))
        self.assertEqual(Topics(frozenset("bc")).only("ab").names, frozenset("b"))
