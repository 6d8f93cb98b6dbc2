"""Decodes payloads into columns: MessagePack, JSON, text or bytes, by a schema, without Spark. ``decoder`` is the entry
point, ``ddl`` parses and writes schemas, ``schema_inference`` infers them.
"""
