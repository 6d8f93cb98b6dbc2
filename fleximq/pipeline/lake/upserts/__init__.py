"""Tables of the latest row for each key: later rows replace earlier ones, and tombstones remove them.

The files of such a table, its *buckets*, divide the keys of a journal into ranges, so a change writes only the buckets
with its keys again. No index is needed beside them: docs/guides/pipeline-upserts.rst has the rules.
"""
