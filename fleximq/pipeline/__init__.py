"""The data pipeline: journals as tables of Apache Spark.

Needs the extra ``spark`` (pyspark, pyarrow, numpy). ``source`` is the data source ``fleximq`` that Spark finds;
``files`` reads a journal's folder and decodes its frames into columns. This room does not import Twisted, and no other
room imports Spark.
"""
