"""Payloads as columns: MessagePack, JSON, text or bytes become what a schema says. What does not is told, not raised.

``decoder`` is the entrance, ``ddl`` reads and writes schemas, ``inference`` finds one. Only ``spark_types`` knows
Spark.
"""
