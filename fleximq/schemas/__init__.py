"""Schemas of payloads in files: Apache Avro, Protocol Buffers and JSON Schema. The broker checks publications by them,
the pipeline reads payloads by them into columns. ``definition`` reads the files. Needs the extra ``schemas``.

Payloads may be hostile: a codec raises :class:`fleximq.schemas.misfit.Misfit` for any bytes that do not fit, in time
and memory proportional to their number. Nothing is fetched from a network.
"""
