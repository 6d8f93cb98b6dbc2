"""Decodes payloads into columns: MessagePack, JSON, text or bytes, by a schema. A payload that does not fit gives an
error text instead of an exception.

``decoder`` is the entry point, ``ddl`` parses and writes schemas, ``schema_inference`` infers them. Independent of
Spark.
"""
