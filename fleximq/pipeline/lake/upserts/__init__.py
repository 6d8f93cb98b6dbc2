"""Tables of the latest row for each key: later rows replace earlier ones, and tombstones remove them.

The files of such a table, its *buckets*, divide the keys of a journal into ranges, so a change rewrites only the buckets
with the keys that it changes. No index is needed beside them: docs/guides/pipeline-upserts.rst has the rules.
"""
