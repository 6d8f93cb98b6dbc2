"""The data pipeline: journals as tables of Apache Spark. Needs the extra ``spark`` (pyspark, pyarrow, numpy). This room
does not import Twisted, and no other room imports Spark.
"""
