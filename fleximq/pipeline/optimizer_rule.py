"""Lets Spark read only the columns and rows of FlexiMQ tables that a query needs, by the rule in ``NarrowReads.java``.
Spark prunes no columns of data sources in Python, and its own push-down of conditions is wrong if a plan reads a table
twice. Spark compiles the rule with the compiler that it uses for its queries.
"""

from importlib.resources import files
from typing import Any

from pyspark.sql import SparkSession

from fleximq.pipeline.errors import PipelineError

_NAME = "NarrowReads"


def install(spark: SparkSession) -> None:
    """Make all queries of a session, also over views, read only the columns and rows that they need; idempotent.

    Leave Spark's setting ``spark.sql.python.filterPushdown.enabled`` off: with it the rule does nothing.

    :param spark: a session in this process; sessions made of it with ``newSession`` need an installation of their own.
    :raises PipelineError: the session is one of Spark Connect, or its Spark is too different.
    """
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        raise PipelineError("the optimizer's rule needs a session of Spark in this process, not Spark Connect")
    methods = session.experimental()
    rules = methods.extraOptimizations()
    if any(rules.apply(place).getClass().getName() == _NAME for place in range(rules.size())):
        return
    try:
        rule = _compiled(spark)
    except Exception as error:
        raise PipelineError(
            f"Spark {spark.version} does not have all classes that the optimizer's rule uses: {error}"
        ) from error
    getattr(methods, "extraOptimizations_$eq")(rules.appended(rule))


def _compiled(spark: Any) -> Any:
    jvm = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(files(__package__).joinpath(f"{_NAME}.java").read_text("utf-8"))
    return compiler.getClassLoader().loadClass(_NAME).newInstance()
