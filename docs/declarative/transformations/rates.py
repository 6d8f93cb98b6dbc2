"""Topics as a table that grows, messages by minute as a view of it, and what came last back into a topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.table
def messages() -> DataFrame:
    """Every message that is kept, once."""
    source = spark.readStream.format("fleximq").option("startingOffsets", "earliest").option("topics", "#")
    return source.load(spark.conf.get("fleximq.journal"))


@dp.materialized_view
def rates() -> DataFrame:
    """How many messages each topic had in each minute."""
    minute = F.date_trunc("minute", "timestamp").alias("minute")
    return spark.read.table("messages").groupBy("topic", minute).agg(F.count("*").alias("messages"))


dp.create_sink("announced", "fleximq", {"url": spark.conf.get("fleximq.url"), "topic": "$stats/largest"})


@dp.append_flow(target="announced")
def largest() -> DataFrame:
    """Tell whoever subscribes about messages of a MiB and more."""
    size = F.octet_length("value")
    rows = spark.readStream.table("messages").where(size >= 1 << 20)
    return rows.select(F.struct("topic", "offset", size.alias("bytes")).alias("value"))
