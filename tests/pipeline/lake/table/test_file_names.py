"""Paths of a table."""

import logging
from threading import Event
from urllib.parse import unquote

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.nightly import repetitions
from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.storage.lake_files import LakeFiles
    from fleximq.pipeline.lake.table import file_names
    from fleximq.pipeline.lake.table.file_names import (
        DATE,
        MAX_NAME_BYTES,
        NAMED,
        TOPIC,
        dateIn,
        escaped,
        fileOf,
        isFileName,
        partitionOf,
        pathIn,
    )


class EscapingTests(SynchronousTestCase):
    """Names of topics in paths."""

    def test_lettersStayAndSignsAndLooksOfNumbersAndNullAreEscaped(self) -> None:
        for name, path in (
            ("sensors.kitchen-2_a~dlq", "sensors.kitchen-2_a~dlq"),
            ("größe/ж", "größe%2Fж"),
            ("$stats/a b=%{*}", "$stats%2Fa%20b%3D%25%7B%2A%7D"),
            ("a\x00\x7f\n", "a%00%7F%0A"),
            ("007", "%3007"),
            ("-1", "%2D1"),
            ("+1", "%2B1"),
            (".5", "%2E5"),
            ("NaN", "%4EaN"),
            ("Infinity", "%49nfinity"),
            ("2024-01-01", "%32024-01-01"),
            ("__HIVE_DEFAULT_PARTITION__", "%5F_HIVE_DEFAULT_PARTITION__"),
        ):
            self.assertEqual(escaped(name), path)

    @settings(max_examples=repetitions(120, 1500), deadline=None)
    @given(st.text(min_size=1, max_size=60).filter(lambda name: len(name.encode("utf-8", "replace")) < 60))
    def test_escapingAnyNameCanBeUndone(self, name: str) -> None:
        if any(0xD800 <= ord(sign) < 0xE000 for sign in name):
            return
        self.assertEqual(unquote(escaped(name)), name)

    def test_nameOver200BytesIsCutAndStaysUnique(self) -> None:
        self.assertEqual(escaped("a" * MAX_NAME_BYTES), "a" * MAX_NAME_BYTES)
        one, two = escaped("a" * (MAX_NAME_BYTES + 1)), escaped("a" * (MAX_NAME_BYTES + 2))
        self.assertEqual({len(one), len(two)}, {MAX_NAME_BYTES})
        self.assertNotEqual(one, two)
        self.assertRegex(one, "^a{179}~[0-9a-f]{20}$")

    def test_escapesAndLettersAreNotCutInTwo(self) -> None:
        for lead in range(4):
            for sign in ("/", "ж", "\U0001f600"):
                path = escaped("a" * lead + sign * 200)
                self.assertLessEqual(len(path.encode()), MAX_NAME_BYTES)
                self.assertEqual(unquote(path).rsplit("~", 1)[0].strip("a").strip(sign), "")

    def test_asciiNamesStayUnique(self) -> None:
        names = ("größe", "gräße", "gr__e", "ж" * 300, "ж" * 301, "2é", "a/é", "plain.name", "x" * 201)
        found = [escaped(name, asciiOnly=True) for name in names]
        self.assertEqual(len(set(found)), len(names))
        for name, each in zip(names, found, strict=True):
            self.assertTrue(each.isascii() and len(each) <= MAX_NAME_BYTES and "/" not in each, each)
            if name.isascii():
                self.assertEqual(each, escaped(name))
        self.assertTrue(found[0].startswith("gr__e~"))


class PathTests(SynchronousTestCase):
    """Folders and files."""

    def test_pathIsMadeOfTopicDayJournalBatchAndPartByTheLayout(self) -> None:
        for layout, folder in (
            (DATE, "date=2026-01-31"),
            (TOPIC, "fleximq_topic=a%2Fb/date=2026-01-31"),
            (NAMED, "topic=a%2Fb/date=2026-01-31"),
        ):
            self.assertEqual(partitionOf("a/b", "2026-01-31", layout), folder)
            self.assertEqual(dateIn(folder), dateIn(f"{folder}/x.parquet"), "2026-01-31")
        self.assertIn("it is in no folder of a day", str(self.assertRaises(LakeRefused, dateIn, "topic=a/update=1/x")))
        self.assertEqual(fileOf("ab" * 16, 7, 12), f"{'ab' * 16}-0000000007-00012.parquet")

    def test_tableNameIsAFolderThatNoReaderHides(self) -> None:
        for name in ("messages", "a.b-c_2", "9"):
            self.assertTrue(isFileName(name), name)
        for name in ("", "_a", ".a", "a/b", "a b", "a" * 101, "a\n"):
            self.assertFalse(isFileName(name), name)

    def test_idOrPathThatLeadsElsewhereIsNoFile(self) -> None:
        for name in ("../../../OUT", "/OUT", "..", "", "a/b", "a\0", 5):
            self.assertRaises(LakeRefused, fileOf, name, 7, 12)
        self.assertEqual(pathIn("/lake/t", "topic=..a/date=2026-01-31/x"), "/lake/t/topic=..a/date=2026-01-31/x")
        for path in ("../u/x", "/etc/x", "a/../../x", "", "a//x", "a/./x", "a\0"):
            self.assertRaisesRegex(LakeRefused, "the table /lake/t is damaged", pathIn, "/lake/t", path)


class WaitTests(SynchronousTestCase):
    """A store that accepts connections, and does not answer for long."""

    if skip:
        skip = skip

    def test_checksSayWhatTheyWaitForAndGoOnWaiting(self) -> None:
        self.patch(file_names, "STORE_SILENCE", 0.0)
        said: list[str] = []
        answer = Event()

        class Log(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                said.append(record.getMessage())
                answer.set()

        class Silent(LakeFiles):
            def names(self, folder: str) -> list[str]:
                return ["t"] if answer.wait(60) else []

            tables = names

        handler, log = Log(), logging.getLogger("fleximq.pipeline")
        log.addHandler(handler)
        self.addCleanup(log.removeHandler, handler)
        for check in (file_names.checkLake, file_names.tableNames):
            answer.clear()
            self.assertIn(check("s3://bucket/lake", Silent()), (None, ["t"]))
        self.assertEqual(said, ["the lake s3://bucket/lake has not answered for 0 s, still waiting"] * 2)
