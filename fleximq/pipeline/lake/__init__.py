"""A lake: tables of messages as Parquet files in folders, readable by any reader of Parquet, each message once.

``table`` describes one table. ``batch_commit`` makes the files of a batch visible exactly once; ``completeness``
compares the ledger with the files. docs/guides/pipeline-lake.rst has the layout. Only ``ingest_stream`` imports Spark.
The names of this package are loaded when they are used: the help of the jobs needs no Arrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleximq.pipeline.lake.completeness import audit, ranges
    from fleximq.pipeline.lake.table.ledger import Covered, Gap, Ledger

__all__ = ["Covered", "Gap", "Ledger", "audit", "ranges"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "completeness" if name in ("audit", "ranges") else "table.ledger"
    return getattr(import_module(f"{__name__}.{module}"), name)
