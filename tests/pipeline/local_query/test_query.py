"""Queries over a journal, without Spark."""

import csv
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleximq.errors import JournalError
from fleximq.values.message import Content
from tests.pipeline.local_query.journal_case import JournalCase
from tests.pipeline.local_query.needed import missing as skip
from tests.pipeline.written import TIME

if not skip:
    import duckdb
    import pyarrow as pa

    from fleximq.pipeline.errors import OptionRefused, PipelineError
    from fleximq.pipeline.files.journal_files import readSlice
    from fleximq.pipeline.files.selection import Topics
    from fleximq.pipeline.local_query import journal_dataset, local_journals
    from fleximq.pipeline.local_query.filter_scope import selectionOf
    from fleximq.pipeline.local_query.local_journals import LocalJournals
    from fleximq.reader import COLUMNS, read


def conditions() -> st.SearchStrategy[str]:
    """Return conditions on the columns of the source."""
    numbers = st.integers(-5, 320).map(str)
    moments = st.integers(-5, 320).map(
        lambda second: f"TIMESTAMPTZ '{datetime.fromtimestamp(TIME // 1_000_000 + second, UTC).isoformat()}'"
    )
    comparisons = st.sampled_from(("<", "<=", ">", ">=", "=", "<>"))
    simple = st.one_of(
        st.tuples(st.just('"offset"'), comparisons, numbers),
        st.tuples(st.just("timestamp"), comparisons, moments),
        st.tuples(st.just("topic"), comparisons, st.sampled_from(("'a.x'", "'b'", "'c'"))),
        st.tuples(st.just("topic"), st.just("in"), st.sampled_from(("('a.x')", "('b', 'c')", "('a.x', 'b')"))),
        st.tuples(st.just('"offset"'), st.just("in"), st.sampled_from(("(3, 7)", "(300)", "(1000)"))),
        st.tuples(st.just("topic"), st.just("like"), st.sampled_from(("'a.%'", "'%'"))),
        st.sampled_from((("key", "is", "null"), ("topic", "is", "null"), ("publisher", "=", "7"))),
    ).map(" ".join)
    joined = ("and", "or")
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(joined), inner).map(lambda each: f"({' '.join(each)})"),
            inner.map(lambda each: f"not ({each})"),
        ),
        max_leaves=5,
    )


class RowsTests(JournalCase):
    """What a query sees."""

    def test_limitMayBeAnyNumber(self) -> None:
        self.assertEqual(self.found("select 1", limit=1 << 80), [(1,)])
        self.assertIn("(1 row)", self.printed("select 1", limit=(1 << 63) - 1, format="table"))

    def test_eachTopicIsATableAndMessagesHasAllWithTheColumnsOfTheSource(self) -> None:
        self.assertEqual(self.found('select count(*), min("offset") from "a.x"'), [(150, 1)])
        self.assertEqual(self.found('select count(*), max("offset") from b'), [(150, 300)])
        self.assertEqual(self.found("select count(*) from messages"), [(300,)])
        line = self.printed('select * from messages where "offset" = 4')
        self.assertEqual(
            line,
            f'{{"journal":"{self.written.id}","topic":"b","offset":4,"timestamp":"2023-11-14T22:13:23.000Z",'
            '"publisher":7,"dialect":"fleximq","headers":null,"key":null,'
            '"value":"{\\"n\\": 3, \\"offset\\": \\"o\\", \\"half\\": 1.5}"}\n',
        )

    def test_tablesCanBeJoinedAndUsedTwice(self) -> None:
        found = self.found(
            'select count(*) from "a.x" x join messages m using ("offset") join messages o using ("offset")'
        )
        self.assertEqual(found, [(150,)])

    @settings(max_examples=60, deadline=None)
    @given(conditions())
    def test_anyConditionFindsTheRowsThatItFindsInMemory(self, condition: str) -> None:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("messages", read(self.folder).read_all())
            query = f'select "offset" from messages where {condition} order by 1'
            self.assertEqual(self.found(query), connection.execute(query).fetchall())

    def test_recordsOfTheBrokerItselfAreNoTables(self) -> None:
        self.written.kept("$sys/values", b"secret")
        self.assertEqual(self.found("select count(*) from messages where topic like '$sys%'"), [(0,)])
        error = self.assertRaises(OptionRefused, self.found, 'select * from "$sys/values"')
        self.assertEqual(
            str(error),
            "there is no topic '$sys/values', only a.x, b; "
            'a name with a dot or another special character must be in double quotes: "a.x"',
        )

    def test_anUnknownTopicNamesTheOthersQuotedOrNot(self) -> None:
        for query in ('select * from "a.y"', "select * from a.y", 'describe a."y"'):
            error = str(self.assertRaises(PipelineError, self.found, query))
            self.assertIn("there is no topic 'a.y', only a.x, b; ", error)
            self.assertIn('must be in double quotes: "a.x"', error)

    def test_topicsThatDifferInCapitalsOnlyAreRefused(self) -> None:
        self.written.kept("B", b"1")
        error = self.assertRaises(OptionRefused, self.found, "select * from b, B")
        self.assertIn("the topics 'b' and 'B' differ in capitals only", str(error))

    def test_aTopicWithTheNameOfAFileIsATable(self) -> None:
        self.written.kept("x.json", b"1")
        self.assertEqual(self.found('select count(*) from "x.json"'), [(1,)])

    def test_severalJournalsAreOneTableAndOfCopiesTheLongestIsRead(self) -> None:
        other = JournalCase()
        other.setUp()
        other.written.kept("c", b"1")
        both = (str(self.folder), str(other.folder), str(self.folder))
        self.assertEqual(self.found("select count(*) from messages", journals=both), [(601,)])
        self.assertEqual(self.found("select count(distinct journal) from b", journals=both), [(2,)])

    def test_allUsesOfATableSeeTheRecordsOfOneMoment(self) -> None:
        journals = LocalJournals([str(self.folder)])
        self.written.kept("b", b"later")
        everything = journals.slices(lambda bounds: selectionOf(None, Topics(), *bounds))
        self.assertEqual(sum(len(batch) for batch in journals.read(everything, ["offset"])), 300)


class PayloadsTests(JournalCase):
    """Columns of payloads."""

    def test_jsonBecomesColumnsAndAFieldWithATakenNameIsInDecoded(self) -> None:
        found = self.found(
            'select n, half, decoded."offset" as own, "offset", error from b order by 1 limit 1', decode="json"
        )
        self.assertEqual(found, [(1, 0.5, "o", 2, None)])
        described = self.found("describe messages", decode="json")
        self.assertEqual([row[0] for row in described], [*COLUMNS[:-1], "n", "half", "decoded", "error"])
        self.assertEqual(self.found("select count(*) from b where n > 100 and half < 100", decode="json"), [(50,)])
        both = "select count(*) from messages where (n > 290 or half < 1) and \"offset\" > 2 and topic = 'b'"
        self.assertEqual(self.found(both, decode="json"), [(5,)])

    def test_aSchemaOrAnotherFormatGivesOtherColumns(self) -> None:
        query = "select n, error from b where error is not null or n = 3"
        self.written.kept("b", b'{"n": "x"}', content=Content.TEXT)
        found = self.found(query, decode="json", schema="n INT")
        self.assertEqual([row[0] for row in found], [3, None])
        self.assertEqual(self.found("select count(value) from b where value like '%half%'", decode="text"), [(150,)])
        self.written.kept("c", b"\x81\xa1m\x05")
        self.assertEqual(self.found("select m from c", decode="messagepack"), [(5,)])
        error = self.assertRaises(OptionRefused, self.found, "select * from none", decode="json")
        self.assertIn("there is no topic 'none'", str(error))
        self.written.kept("d", b"no json", content=Content.TEXT)
        error = self.assertRaises(OptionRefused, self.found, "select * from d", decode="json")
        self.assertEqual(str(error), "no payload of 'd' is json; --schema can give the columns")
        error = self.assertRaises(OptionRefused, self.found, "select * from d", schema="n INT")
        self.assertIn("--schema belongs to --decode", str(error))


class OutputTests(JournalCase):
    """The forms of the result."""

    def test_aTableSaysHowManyRowsThereAreAndCsvAndJsonHaveAll(self) -> None:
        table = self.printed('select topic, "offset" from messages', format="table", limit=2)
        self.assertEqual(table.splitlines()[-2:], ["b           2", "(the first 2 rows; --limit shows more)"])
        self.assertTrue(self.printed("select 1 as one", format="table").endswith("(1 row)\n"))
        rows = list(csv.reader(StringIO(self.printed("select * from messages", format="csv"))))
        self.assertEqual((len(rows), rows[0]), (301, list(COLUMNS)))
        self.assertEqual(len(self.found("select 1 from messages", limit=7)), 7)

    def test_allTypesOfDuckdbCanBeShown(self) -> None:
        query = (
            "select sum(\"offset\"), interval '1 month 2 days 3 seconds', time '12:30', [1, 2], {'a': null}, "
            "map {'k': 1}, epoch_ms(5), 1::utinyint, 'x'::blob, 1.5::decimal(5, 2), date '2026-01-31', null, true, "
            "timestamp_ns '2026-01-01 00:00:00.123456789', 'infinity'::double from messages"
        )
        self.assertEqual(
            self.found(query),
            [(45150, "1 month 2 days 00:00:03", "12:30:00", [1, 2], {"a": None}, {"k": 1},
              "1970-01-01T00:00:00.005", 1, "x", 1.5, "2026-01-31", None, True, "2026-01-01 00:00:00.123456789", None)],
        )  # fmt: skip

    def test_valuesWithoutATypeOfArrowAreShownAsDuckdbShowsThem(self) -> None:
        for written in (
            "340282366920938463463374607431768211455::uhugeint",
            "170141183460469231731687303715884105728::uhugeint",
            "'-170141183460469231731687303715884105728'::hugeint",
            "170141183460469231731687303715884105727::hugeint",
            "'12345678901234567890123456789012345678901234567890'::bignum",
            "'101'::bit",
            "'12:00:00+02'::timetz",
            "time '24:00:00'",
            "interval '-1 month'",
            *(
                f"'{text}'::{kind}"
                for kind in ("date", "timestamp", "timestamptz", "timestamp_s", "timestamp_ms", "timestamp_ns")
                for text in ("infinity", "-infinity")
            ),
            *(
                f"'{text}'::{kind}"
                for kind in ("date", "timestamp", "timestamptz")
                for text in ("0044-03-15 (BC)", "0001-12-31 (BC)", "10000-02-29", "290309-12-22 (BC)", "294246-12-31")
            ),
            "'5877642-06-25 (BC)'::date",
            "'5881580-07-10'::date",
            "'0044-03-15 (BC) 01:02:03.5'::timestamptz",
            "'294247-01-10 04:00:54.775806'::timestamp",
        ):
            [(shown, text)] = self.found(f"select {written} as a, cast(a as varchar) as b")
            self.assertEqual(str(shown), text, written)
            nested = f"select [{written}] as a, {{'x y': {written}}} as b, map {{'k': {written}}} as c"
            self.assertEqual(self.found(nested), [([shown], {"x y": shown}, {"k": shown})], written)

    def test_columnsOfOneNameAndAnOrderStay(self) -> None:
        query = "select range::hugeint as a, -range as a from range(3) order by 1 desc -- the end"
        self.assertEqual(self.printed(query, format="csv"), "a,a\n2,-2\n1,-1\n0,0\n")


class PushDownTests(JournalCase):
    """What is read."""

    def spans(self, query: str, **more: Any) -> tuple[set[int], set[str]]:
        """Return the numbers of the segments that a query reads, and the columns."""
        bases = sorted(int(each.stem) for each in self.folder.glob("*.fxj"))
        read: set[int] = set()
        columns: set[str] = set()

        def looked(part: Any, names: Any, *others: Any) -> Any:
            read.update(bases.index(piece.base) for piece in part.pieces)
            columns.update(names)
            return readSlice(part, names, *others)

        self.patch(local_journals, "readSlice", looked)
        self.found(query, **more)
        return read, columns

    def test_onlyTheColumnsOfAQueryAreRead(self) -> None:
        self.assertEqual(self.spans("select count(*) from messages")[1], {"journal"})
        _, columns = self.spans("select publisher from messages where \"offset\" > 3 and topic = 'b'")
        self.assertEqual(columns, {"publisher", "offset", "topic"})
        self.assertEqual(self.spans("select topic from messages", decode="text")[1], {"topic"})

    def test_onlySegmentsWithinTheOffsetsTimesAndTopicsAreRead(self) -> None:
        every, _ = self.spans("select count(*) from messages")
        last = max(every)
        self.assertGreater(last, 10)
        self.assertEqual(self.spans('select 1 from messages where "offset" >= 299')[0], {last})
        self.assertEqual(self.spans('select 1 from messages where "offset" < 3')[0], {0})
        self.assertEqual(self.spans("select 1 from messages where timestamp > '2023-11-14 22:18:18Z'")[0], {last})
        self.written.kept("c", *[b"%04000d" % number for number in range(3)])
        self.assertLess(len(self.spans("select 1 from messages where topic = 'c'")[0]), 3)
        self.assertEqual(self.spans("select 1 from messages where topic in ('x', 'y')")[0] - {last, last + 1}, set())

    def test_aLimitEndsTheReading(self) -> None:
        self.patch(journal_dataset, "LARGE", 1)
        taken = []

        def counted(self: Any, slices: Any, columns: Any) -> Any:
            for number in range(10_000):
                taken.append(number)
                yield pa.record_batch([["x"] * 5_000], names=["topic"])

        self.patch(LocalJournals, "read", counted)
        self.patch(LocalJournals, "has", lambda journals, name: True)
        self.assertEqual(len(self.found("select topic from messages", limit=5)), 5)
        self.assertLess(len(taken), 1_000)

    def test_aLongQueryNamesSpark(self) -> None:
        self.found("select count(*) from messages")
        self.assertEqual(self.said, [])
        self.patch(journal_dataset, "LARGE", 1)
        self.found("select count(*) from messages")
        self.assertIn("fleximq-pipeline sql reads with all", self.said[0])


class ClosedTests(JournalCase):
    """A query reads nothing but the tables."""

    def test_filesExtensionsSettingsAndVariablesAreOutOfReach(self) -> None:
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        (folder / "x.csv").write_text("a\n1\n")
        secret = pa.table({"a": [1]})
        self.assertEqual(len(secret), 1)
        for query in (
            f"select * from read_csv('{folder}/x.csv')",
            f"select * from '{folder}/x.csv'",
            f"select * from read_text('{folder}/x.csv')",
            f"select * from glob('{folder}/*')",
            f"copy (select 1) to '{folder}/y.csv'",
            f"attach '{folder}/z.db'",
            f"export database '{folder}/z'",
            "install httpfs",
            "load httpfs",
            "select * from read_csv('http://127.0.0.1:9/x.csv')",
            "set enable_external_access = true",
            "set lock_configuration = false",
            "reset temp_directory",
            "select * from secret",
            "select 1; select 2",
            "",
        ):
            self.assertRaises(PipelineError, self.found, query)
        self.assertEqual([each.name for each in folder.iterdir()], ["x.csv"])

    def test_theQueryMayUseFilesIfAsked(self) -> None:
        path = Path(self.mktemp()).absolute()
        self.found(f"copy (select * from b) to '{path}' (format csv)", files=True)
        self.assertEqual(len(path.read_text().splitlines()), 151)
        error = self.assertRaises(PipelineError, self.found, f"copy b to '{path}'")
        self.assertEqual(
            str(error), f'Cannot access file "{path}" - a query may use no files; --allow-files permits it'
        )

    def test_errorsAreOneSentence(self) -> None:
        for query, sentence in (
            ("selec 1", 'syntax error at or near "selec"'),
            ("select offset from b", 'syntax error at or near "from"; the column "offset" must be in double quotes'),
            (
                "select * from a.x",
                'a name with a dot or another special character must be in double quotes: "a.x"',
            ),
            (
                "select nope from b",
                'Referenced column "nope" not found in FROM clause; Candidate bindings: "topic", "offset"',
            ),
            ("select 'x'::int", "Could not convert string 'x' to INT32"),
        ):
            error = str(self.assertRaises(PipelineError, self.found, query))
            self.assertEqual(error, sentence)


class DamageTests(JournalCase):
    """Journals that cannot be read, or not all of them."""

    def test_damageIsOneSentenceOrIsPassedOver(self) -> None:
        second = sorted(self.folder.glob("*.fxj"))[1]
        content = bytearray(second.read_bytes())
        content[len(content) // 2] ^= 0xFF
        second.write_bytes(content)
        error = str(self.assertRaises(JournalError, self.found, "select count(value) from messages"))
        self.assertRegex(error, r"^offsets \d+ to \d+: bytes are damaged: .*; --allow-data-loss reads on$")
        [(count,)] = self.found("select count(value) from messages", mayLose=True)
        self.assertTrue(200 < count < 300)
        self.assertIn("records are missing: offsets ", self.said[0])

    def test_missingFoldersAreOneSentence(self) -> None:
        error = str(self.assertRaises(JournalError, self.found, "select 1", journals=(str(self.folder / "none"),)))
        self.assertEqual(error, f"{self.folder}/none is no journal: it has no file identity")
        error = str(self.assertRaises(OptionRefused, self.found, "select 1", journals=(f"{self.folder}/none*",)))
        self.assertEqual(error, f"there is no journal in {self.folder}/none*")
