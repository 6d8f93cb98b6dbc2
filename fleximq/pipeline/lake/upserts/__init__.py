"""Tables of the latest row for each key: later rows replace earlier ones, and tombstones remove them.

The files of the table, its *buckets*, divide the keys of a journal into ranges, so a change rewrites only the buckets
that have its keys. No index is needed: docs/guides/pipeline-upserts.rst has the rules.
"""
