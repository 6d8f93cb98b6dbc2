"""A lake: tables of messages as Parquet files in folders, readable by any reader of Parquet, each message once.

docs/guides/pipeline-lake.rst has the layout. Functions raise LakeRefused if a table is damaged, or cannot be read or
written. Only ``ingest_stream`` imports Spark; the names here are loaded when used, as job help needs no Arrow.
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
