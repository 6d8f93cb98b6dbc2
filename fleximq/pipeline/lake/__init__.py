"""A lake: tables of messages as Parquet files in folders, which any reader of Parquet sees each message in once.

``naming`` says where a file stands and ``writing`` fills it; ``publishing`` makes the files of a batch visible, whole
and once; ``ledger`` keeps what the table has of each journal, which ``ranges`` holds against the files themselves.
docs/pipeline-lake.rst has the layout. Nothing here knows Spark but ``feed``.
"""

from fleximq.pipeline.lake.completeness import audit, ranges
from fleximq.pipeline.lake.table.ledger import Covered, Gap, Ledger

__all__ = ["Covered", "Gap", "Ledger", "audit", "ranges"]
