"""The data pipeline: what the journal keeps, as tables of Apache Spark.

Needs the extra ``spark`` (pyspark, pyarrow, numpy). ``source`` is the data source ``fleximq`` that Spark finds; below
it, ``layout`` reads a journal's folder from outside and ``decode`` makes columns of its frames. Nothing here knows
Twisted, and nothing outside of here knows Spark.
"""
