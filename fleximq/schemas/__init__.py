"""Schemas of payloads in files: Apache Avro, Protocol Buffers and JSON Schema. The broker checks publications by them,
and the pipeline turns payloads into columns. ``definition`` reads the files. Needs the extra ``schemas``.

Payloads may be hostile: a codec raises :class:`fleximq.schemas.misfit.Misfit` for any bytes that do not fit, in time
and memory proportional to their number. No schema is fetched from a network.
"""
