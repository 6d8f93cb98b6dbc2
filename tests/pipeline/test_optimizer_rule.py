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

    def test_columns(self) -> None:
        """A query over a view reads the columns that it uses, and one to count rows."""
        for query, columns in (
            ("select count(*) from messages", "offset"),
            ("select topic, count(*) from messages group by topic", "topic"),
            ("select max(offset) from messages where cast(value as string) like 'l%'", "offset,value"),
            ("select headers['n'] from messages order by timestamp", "timestamp,headers"),
        ):
            self.assertEqual([read[0] for read in reads(self.spark.sql(query))], [columns], query)

    def test_frames(self) -> None:
        """The same holds for DataFrames, with the columns that are decoded, or that an option names."""
        self.assertEqual(reads(self.load(decode="text").selectExpr("max(error)")), [("error", "")])
        self.assertEqual(reads(self.load(columns="value,topic").selectExpr("count(*)")), [("value", "")])
        self.assertEqual(self.load(columns="value,topic").count(), 30)
        self.assertEqual(self.load(decode="text").where("error is null and decoded.value like 'l%'").count(), 10)

    def test_conditions(self) -> None:
        """Conditions on topic, offset and time are applied while reading, however a column is spelled."""
        for condition, read, number in (
            ("TOPIC = 'news' and offset < 9", ("topic,offset", "EqualTo(topic,news),LessThan(offset,9)"), 3),
            ("topic like 'news.%' and key is not null", ("topic,key", "StringStartsWith(topic,news.)"), 10),
            ("offset < 5 or topic = 'sport'", ("topic,offset", ""), 13),
        ):
            table = self.spark.sql(f"select 1 from messages where {condition}")
            self.assertEqual((reads(table), table.count()), ([read], number), condition)

    def test_usedTwice(self) -> None:
        """Each use of a table has conditions of its own."""
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

    def test_limited(self) -> None:
        """A condition on some rows of a table does not choose these rows."""
        self.assertEqual(
            self.spark.sql("select 1 from (select offset from messages limit 3) where offset > 2").count(), 1
        )

    def test_subqueries(self) -> None:
        """Conditions of a subquery are none of the query, nor the other way round."""
        inner = "select offset from messages where topic = 'news' and offset > (select avg(offset) from messages)"
        self.assertEqual(self.spark.sql(inner).count(), 5)
        counts = "select (select count(*) from messages), (select count(*) from messages where topic = 'news')"
        self.assertEqual(self.spark.sql(counts).collect(), [(30, 10)])

    def test_beyondPython(self) -> None:
        """A condition that Python cannot represent is left to Spark."""
        table = self.spark.sql("select offset from messages where timestamp < timestamp'+12000-01-01 00:00:00Z'")
        self.assertEqual(reads(table), [("offset,timestamp", "")])
        self.assertEqual(table.count(), 30)

    def test_later(self) -> None:
        """Each query over a view has the records of its time."""
        counts = [self.spark.table("messages").count()]
        self.written.kept("news", b"more")
        self.assertEqual([*counts, self.spark.table("messages").count()], [30, 31])

    def test_option(self) -> None:
        """The option for conditions can be off; columns are pruned nevertheless."""
        self.assertEqual(reads(self.load(pushFilters="false").where("offset < 5").select("key")), [("offset,key", "")])

    def test_setting(self) -> None:
        """With Spark's own push-down on, the rule changes nothing."""
        self.spark.conf.set(PUSHDOWN, "true")
        [(columns, _)] = reads(self.spark.sql("select count(*) from messages"))
        self.assertIn("value", columns)

    def test_again(self) -> None:
        """A second installation changes nothing."""
        optimizer_rule.install(self.spark)
        self.assertEqual(self.spark._jsparkSession.experimental().extraOptimizations().size(), 1)


class SealedTests(HistoryCase):
    """Sealed history and the journal as one table."""

    def test_rest(self) -> None:
        """The records of the journal are read with the columns and conditions of the query."""
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

    def test_connect(self) -> None:
        """A session of Spark Connect, whose plans are made elsewhere."""
        self.assertIn("not Spark Connect", self.refused(SimpleNamespace()))

    def test_different(self) -> None:
        """A Spark without one of the classes."""
        rules = SimpleNamespace(size=lambda: 0)
        methods = SimpleNamespace(extraOptimizations=lambda: rules)
        session = SimpleNamespace(experimental=lambda: methods)
        self.assertIn(
            "Spark 9 does not have all classes", self.refused(SimpleNamespace(_jsparkSession=session, version="9"))
        )
