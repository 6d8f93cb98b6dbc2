"""What a query reads of a table in a session with the rule."""

from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip
from tests.pipeline.test_batch import PUSHDOWN, BatchCase
from tests.pipeline.test_history import HistoryCase

if not skip:
    from fleximq.pipeline import history, optimizer_rule
    from fleximq.pipeline.errors import PipelineError
    from fleximq.pipeline.source import FlexiMQSource
    from tests.pipeline.session import sharedSession


def sessionWithRule() -> Any:
    """Return a new session."""
    spark = sharedSession().newSession()
    spark.dataSource.register(FlexiMQSource)
    optimizer_rule.install(spark)
    return spark


def reads(table: Any) -> list[tuple[str, str]]:
    """Return the columns, and the conditions on them, with which a query reads its tables; not those of subqueries."""
    leaves = table._jdf.queryExecution().optimizedPlan().collectLeaves()
    found = []
    for leaf in (leaves.apply(place) for place in range(leaves.size())):
        if leaf.getClass().getSimpleName() == "DataSourceV2ScanRelation":
            columns = ",".join(leaf.scan().readSchema().fieldNames())
            pushed = str(leaf.scan().getMetaData().apply("PushedFilters"))
            found.append((columns, ",".join(part for part in pushed[1:-1].split(", ") if not part.startswith("IsNot"))))
    return found


class RuleTests(BatchCase):
    """``messages`` is a view of a journal, whose records have several topics."""

    def setUp(self) -> None:
        super().setUp()
        self.spark = sessionWithRule()
        self.load().createOrReplaceTempView("messages")

    def test_queryOverAViewReadsItsColumnsOnly(self) -> None:
        for query, columns in (
            ("select count(*) from messages", "offset"),
            ("select topic, count(*) from messages group by topic", "topic"),
            ("select max(offset) from messages where cast(value as string) like 'l%'", "offset,value"),
            ("select headers['n'] from messages order by timestamp", "timestamp,headers"),
        ):
            self.assertEqual([read[0] for read in reads(self.spark.sql(query))], [columns], query)

    def test_dataFramesReadTheirColumnsOnly(self) -> None:
        """The same holds for DataFrames, with the columns that are decoded, or that an option names."""
        self.assertEqual(reads(self.load(decode="text").selectExpr("max(error)")), [("error", "")])
        self.assertEqual(reads(self.load(columns="value,topic").selectExpr("count(*)")), [("value", "")])
        self.assertEqual(self.load(columns="value,topic").count(), 30)
        self.assertEqual(self.load(decode="text").where("error is null and decoded.value like 'l%'").count(), 10)

    def test_conditionsAreAppliedWhileReading(self) -> None:
        """Conditions on topic, offset and time are applied while reading, however a column is spelled."""
        for condition, read, number in (
            ("TOPIC = 'news' and offset < 9", ("topic,offset", "EqualTo(topic,news),LessThan(offset,9)"), 3),
            ("topic like 'news.%' and key is not null", ("topic,key", "StringStartsWith(topic,news.)"), 10),
            ("offset < 5 or topic = 'sport'", ("topic,offset", ""), 13),
        ):
            table = self.spark.sql(f"select 1 from messages where {condition}")
            self.assertEqual((reads(table), table.count()), ([read], number), condition)

    def test_eachUseOfATableHasItsOwnConditions(self) -> None:
        union = "select offset from {0} where offset < 5 union all select offset from {0} where offset >= 25"
        for query, number in (
            (union.format("messages"), 10),
            (f"with c as (select * from messages) {union.format('c')}", 10),
            ("select a.offset from messages a join messages b on a.offset = b.offset + 5 "
             "where a.offset > 8 and b.offset < 12", 8),
        ):  # fmt: skip
            table = self.spark.sql(query)
            found = reads(table)
            self.assertEqual([read[0] for read in found], ["offset", "offset"], query)
            self.assertEqual(len({read[1] for read in found}), 2, query)
            self.assertEqual(table.count(), number, query)

    def test_conditionAfterALimitDoesNotChooseItsRows(self) -> None:
        self.assertEqual(
            self.spark.sql("select 1 from (select offset from messages limit 3) where offset > 2").count(), 1
        )

    def test_conditionsOfASubqueryStayInIt(self) -> None:
        inner = "select offset from messages where topic = 'news' and offset > (select avg(offset) from messages)"
        self.assertEqual(self.spark.sql(inner).count(), 5)
        counts = "select (select count(*) from messages), (select count(*) from messages where topic = 'news')"
        self.assertEqual(self.spark.sql(counts).collect(), [(30, 10)])

    def test_conditionThatPythonCannotRepresentIsLeftToSpark(self) -> None:
        table = self.spark.sql("select offset from messages where timestamp < timestamp'+12000-01-01 00:00:00Z'")
        self.assertEqual(reads(table), [("offset,timestamp", "")])
        self.assertEqual(table.count(), 30)

    def test_queryOverAViewHasTheRecordsOfItsTime(self) -> None:
        counts = [self.spark.table("messages").count()]
        self.written.kept("news", b"more")
        self.assertEqual([*counts, self.spark.table("messages").count()], [30, 31])

    def test_conditionsCanBeOffAndColumnsArePruned(self) -> None:
        self.assertEqual(reads(self.load(pushFilters="false").where("offset < 5").select("key")), [("offset,key", "")])

    def test_withSparksOwnPushDownTheRuleChangesNothing(self) -> None:
        self.spark.conf.set(PUSHDOWN, "true")
        [(columns, _)] = reads(self.spark.sql("select count(*) from messages"))
        self.assertIn("value", columns)

    def test_secondInstallationChangesNothing(self) -> None:
        optimizer_rule.install(self.spark)
        self.assertEqual(self.spark._jsparkSession.experimental().extraOptimizations().size(), 1)


class SealedTests(HistoryCase):
    """Sealed history and the journal as one table."""

    def test_journalBesideSealedFilesIsReadWithColumnsAndConditions(self) -> None:
        self.seal()
        self.fill(5)
        self.spark = sessionWithRule()
        table = history.read(self.spark, self.folder, self.sealed).where("topic = 'b'").groupBy("topic").count()
        self.assertEqual(reads(table), [("topic", "EqualTo(topic,b)")])
        self.assertEqual(table.collect(), [("b", 35)])


class RefusedTests(SynchronousTestCase):
    """Sessions that cannot have the rule."""

    def refused(self, session: Any) -> str:
        """Return the reason."""
        return str(self.assertRaises(PipelineError, optimizer_rule.install, session))

    def test_sparkConnectIsRefused(self) -> None:
        self.assertIn("not Spark Connect", self.refused(SimpleNamespace()))

    def test_sparkWithoutAClassIsRefused(self) -> None:
        rules = SimpleNamespace(size=lambda: 0)
        methods = SimpleNamespace(extraOptimizations=lambda: rules)
        session = SimpleNamespace(experimental=lambda: methods)
        self.assertIn(
            "Spark 9 does not have all classes", self.refused(SimpleNamespace(_jsparkSession=session, version="9"))
        )
