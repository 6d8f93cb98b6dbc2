"""Questions in SQL, asked in the shared session."""

import json
import os
from importlib.util import find_spec

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.argument_parser import CommandParser
from fleximq.pipeline.errors import OptionRefused, PipelineError
from fleximq.pipeline.jobs.sql import SQL
from tests.pipeline.installed import missing as skip

if not skip:
    import msgpack

    from fleximq.pipeline import optimizer_rule
    from fleximq.pipeline.jobs.ingest import INGEST
    from fleximq.pipeline.jobs.seal import SEAL
    from fleximq.pipeline.main import mergeSettings
    from tests.pipeline.jobs.fake_run import FakeRun, runJob
    from tests.pipeline.written import Written


def journal(folder: str) -> None:
    """Write a journal of a few topics."""
    written = Written(folder)
    written.kept("news", *(msgpack.packb({"n": number, "text": "x" * number}) for number in range(4)))
    written.kept("news.local", b"hello", b"\xff\xfe\x00", header=msgpack.packb({"key": "k1", "a": 1}))
    written.kept("Sport", *(msgpack.packb({"offset": number / 2, "name": None}) for number in range(3)))
    written.kept("messages", b"about messages")
    written.close()


class SqlTests(SynchronousTestCase):
    """One journal of some topics."""

    def setUp(self) -> None:
        """Write the journal."""
        self.folder = f"{os.path.abspath(self.mktemp())}-j"
        journal(self.folder)

    def ask(self, query: str, *words: str) -> str:
        """Return what is printed."""
        words = words if "--lake" in words else ("--journal", self.folder, *words)
        return runJob(SQL, query, *words).printed

    def rows(self, query: str, *words: str) -> list[dict[str, object]]:
        """Return the answer's rows."""
        return [json.loads(line) for line in self.ask(query, "--format", "json", *words).splitlines()]

    def test_messagesHasAllTopicsAndNumbersAreAligned(self) -> None:
        self.assertEqual(
            self.ask("select topic, count(*) as n, max(offset) as last from messages group by topic order by last"),
            "topic       n  last\n"
            "----------  -  ----\n"
            "news        4     4\n"
            "news.local  2     6\n"
            "Sport       3     9\n"
            "messages    1    10\n"
            "(4 rows)\n",
        )

    def test_anyNameOfATopicIsATable(self) -> None:
        names = ("a,b", "a", " b ", 'say "x"', "it's", "tick`s", "SPORT", "line\nbreak")
        written = Written(self.folder)
        for name in names:
            written.kept(name, name.encode())
        written.close()
        for name in names:
            quoted = name.replace('"', '""')
            self.assertEqual([row["value"] for row in self.rows(f'select value from "{quoted}"')], [name], name)

    def test_topicIsATableWithKeyHeadersAndBytes(self) -> None:
        found = self.rows('select offset, key, headers, value, timestamp from "news.local" order by offset')
        self.assertEqual([row["value"] for row in found], ["hello", "fffe00"])
        self.assertEqual([row["offset"] for row in found], [5, 6])
        self.assertEqual(found[0]["key"], "k1")
        self.assertEqual(found[0]["headers"], {"key": "k1", "a": "1"})
        self.assertEqual(found[0]["timestamp"], "2023-11-14T22:13:20.000Z")

    def test_severalTablesAndSubqueriesAreOneQuery(self) -> None:
        found = self.rows(
            "with some as (select offset from news where offset > 2) "
            'select count(*) as n, (select max(offset) from `news.local`) as m, (select count(*) from "Sport") as s '
            "from some"
        )
        self.assertEqual(found, [{"n": 2, "m": 6, "s": 3}])

    def test_starHasAllColumnsInOrder(self) -> None:
        first = self.ask("select * from news", "--format", "csv").splitlines()[0]
        self.assertEqual(first, "journal,topic,offset,timestamp,publisher,dialect,headers,key,value")

    def test_withoutTheOptimizerRuleTheQueryReadsMoreAndSaysSo(self) -> None:
        def refuse(spark: object) -> None:
            raise PipelineError("no rule")

        self.patch(optimizer_rule, "install", refuse)
        run = runJob(SQL, "select count(*) as n from news", "--journal", self.folder, "--format", "csv")
        self.assertEqual((run.printed, run.said), ("n\n4\n", ["no rule; the query reads all columns and rows"]))

    def test_payloadsBecomeColumns(self) -> None:
        found = self.rows("select n, text, offset from news where n > 1 order by n", "--decode", "messagepack")
        self.assertEqual(found, [{"n": 2, "text": "xx", "offset": 3}, {"n": 3, "text": "xxx", "offset": 4}])

    def test_fieldNamedAsAColumnStaysInDecoded(self) -> None:
        found = self.rows("select offset, decoded.offset as own from Sport order by 1", "--decode", "messagepack")
        self.assertEqual([row["own"] for row in found], [0.0, 0.5, 1.0])
        self.assertEqual([row["offset"] for row in found], [7, 8, 9])

    def test_givenSchemaCountsAndMisfitsHaveAnError(self) -> None:
        words = ("--decode", "messagepack", "--schema", "n STRING, more INT")
        found = self.rows("select n, more, error from news order by offset", *words)
        self.assertEqual(found[0], {"n": "0", "more": None, "error": None})
        found = self.rows('select n, error from "news.local"', *words)
        self.assertTrue(all(row["n"] is None and row["error"] for row in found))

    def test_limitIsToldInTheTable(self) -> None:
        self.assertEqual(
            self.ask("select offset from messages order by offset", "--limit", "2"),
            "offset\n------\n     1\n     2\n(the first 2 rows; --limit shows more)\n",
        )
        self.assertTrue(self.ask("select 1 as a", "--limit", "1").endswith("(1 row)\n"))
        self.assertEqual(len(self.rows("select offset from messages", "--limit", "3")), 3)

    def test_emptyAnswerIsNoError(self) -> None:
        self.assertEqual(self.ask("select offset from news where offset > 99"), "offset\n------\n(0 rows)\n")
        self.assertEqual(self.rows("select offset from news where offset > 99"), [])

    def refused(self, sentence: str, query: str, *words: str) -> None:
        """Check the sentence that a question leads to."""
        error = self.assertRaises(PipelineError, self.ask, query, *words)
        self.assertEqual(str(error).replace(self.folder, "J"), sentence)

    def test_missingTopicIsNamedWithTheOthers(self) -> None:
        self.refused(
            "there is no topic 'sport', only Sport, messages, news, news.local; "
            'a name with a dot or another special character must be in double quotes: "news.local"',
            "select * from sport",
        )
        self.refused(
            "there is no topic 'news.x', only Sport, messages, news, news.local; "
            'a name with a dot or another special character must be in double quotes: "news.local"',
            "select * from news.x",
        )
        self.refused(
            'a name with a dot or another special character must be in double quotes: "news.local"',
            "select * from news.local",
        )

    def test_missingColumnAndWrongSyntaxAreOneSentence(self) -> None:
        error = self.assertRaises(OptionRefused, self.ask, "select ofset from news")
        self.assertIn("with name `ofset` cannot be resolved. Did you mean one of the following? [`offset`", str(error))
        self.assertNotIn("\n", str(error))
        self.assertIn("Syntax error at or near 'selec'", str(self.assertRaises(PipelineError, self.ask, "selec 1")))

    def test_schemaNeedsDecodeAndPayloadsOfItsFormat(self) -> None:
        self.refused("--schema belongs to --decode, which is missing", "select 1", "--schema", "a INT")
        self.refused(
            "no payload of 'messages' is json; --schema can give the columns".replace("'messages'", "any topic"),
            "select * from messages", "--decode", "json", "--subscribe", "messages",
        )  # fmt: skip

    def test_missingLakeIsNamed(self) -> None:
        self.refused(
            "the lake J/none cannot be read: no such file or directory", "select 1", "--lake", f"{self.folder}/none"
        )

    def test_sealedHistoryAndJournalAreOneTable(self) -> None:
        folder, sealed = f"{self.folder}-segments", f"{self.folder}-sealed"
        written = Written(folder, segmentBytes=4000)
        self.addCleanup(written.close)
        for number in range(60):
            written.kept("a.b", b"%d" % number * 40)
        runJob(SEAL, "--journal", folder, "--sealed", sealed)
        self.assertTrue(os.listdir(sealed))
        query = 'select count(*) as n, count(distinct offset) as d, max(offset) as m from "a.b"'
        run = runJob(SQL, query, "--journal", folder, "--sealed", sealed, "--format", "csv")
        self.assertEqual(run.printed, "n,d,m\n60,60,60\n")

    def test_sealedPayloadsAreDecodedByTheSameSchemaEvenOfTopicsThatRetentionRemoved(self) -> None:
        folder, sealed = f"{self.folder}-segments", f"{self.folder}-sealed"
        written = Written(folder, segmentBytes=4000)
        self.addCleanup(written.close)
        written.kept("gone", *(msgpack.packb({"old": number}) for number in range(3)))
        for number in range(120):
            fields = {"n": number, "x": "x" * 90} | ({"late": True} if number >= 100 else {})
            written.kept("a.b", msgpack.packb(fields))
        runJob(SEAL, "--journal", folder, "--sealed", sealed)
        os.unlink(sorted(each.path for each in os.scandir(folder) if each.name.endswith(".fxj"))[0])
        self.folder = folder
        words = ("--sealed", sealed, "--decode", "messagepack")
        query = 'select count(n) as n, count(distinct n) as d, count(late) as l, count(error) as e from "a.b"'
        self.assertEqual(self.rows(query, *words), [{"n": 120, "d": 120, "l": 20, "e": 0}])
        self.assertEqual(self.rows("select old, offset from gone where old = 2", *words), [{"old": 2, "offset": 3}])

    def test_tablesOfEachFormatAreReadAsTheyAreNow(self) -> None:
        for outputFormat, package in (("parquet", "pyarrow"), ("delta", "deltalake"), ("iceberg", "pyiceberg")):
            if find_spec(package) is None:
                continue
            lake = f"{self.folder}-{outputFormat}"
            parser = CommandParser(prog="ingest")
            INGEST.prepare(parser)
            words = ["--journal", self.folder, "--lake", lake, "--once", "--format", outputFormat]
            run = FakeRun()
            INGEST.run(mergeSettings(parser, "ingest", ("ingest",), words), run)
            found = self.rows("select topic, count(*) as n from messages group by topic order by n", "--lake", lake)
            self.assertEqual(
                found,
                [
                    {"topic": "messages", "n": 1},
                    {"topic": "news.local", "n": 2},
                    {"topic": "Sport", "n": 3},
                    {"topic": "news", "n": 4},
                ],
                outputFormat,
            )

    def test_lakeTablesAreNamed(self) -> None:
        lake = os.path.abspath(self.mktemp())
        os.makedirs(f"{lake}/orders/_fleximq")
        FakeRun().session().range(3).write.mode("append").parquet(f"{lake}/orders")
        self.assertEqual(self.ask("select sum(id) as s from orders", "--lake", lake), "s\n-\n3\n(1 row)\n")
        self.refused(f"there is no table 'orderz' in {lake}, only orders", "select 1 from orderz", "--lake", lake)
