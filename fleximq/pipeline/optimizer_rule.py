"""Makes Spark read only the columns and rows of FlexiMQ tables that a query needs, by the rule in ``NarrowReads.java``.
Spark prunes no columns of data sources in Python, and its own push-down of conditions is wrong if a plan reads a table
twice. Spark compiles the rule with the compiler that it uses for its queries.
"""

from importlib.resources import files
from typing import Any

from pyspark.sql import SparkSession

from fleximq.pipeline.errors import PipelineError

_NAME = "NarrowReads"


def install(spark: SparkSession) -> None:
    """Make all queries of a session, also over views, read only the columns and rows that they need; idempotent. Has no
    effect while Spark's setting ``spark.sql.python.filterPushdown.enabled`` is on. Raises PipelineError if the session
    is one of Spark Connect, or its Spark is too different; one made with ``newSession`` needs an installation of its
    own.
    """
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        raise PipelineError("the optimizer's rule needs a session of Spark in this process, not Spark Connect")
    methods = session.experimental()
    rules = methods.extraOptimizations()
    if any(rules.apply(place).getClass().getName() == _NAME for place in range(rules.size())):
        return
    try:
        jvm: Any = spark._jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(files(__package__).joinpath(f"{_NAME}.java").read_text("utf-8"))
        rule = compiler.getClassLoader().loadClass(_NAME).newInstance()
    except Exception as error:
        raise PipelineError(
            f"Spark {spark.version} does not have all classes that the optimizer's rule uses: {error}"
        ) from error
    getattr(methods, "extraOptimizations_$eq")(rules.appended(rule))
