"""A lake: tables of messages as Parquet files in folders, readable by any reader of Parquet, each message once.

``table`` describes one table: file names, columns, ledger, staged files. ``batch_commit`` makes the files of a batch
visible exactly once; ``completeness`` compares the ledger with the files. docs/guides/pipeline-lake.rst has the layout.
Only ``ingest_stream`` imports Spark.
"""

from fleximq.pipeline.lake.completeness import audit, ranges
from fleximq.pipeline.lake.table.ledger import Covered, Gap, Ledger

__all__ = ["Covered", "Gap", "Ledger", "audit", "ranges"]
