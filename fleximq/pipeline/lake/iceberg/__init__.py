"""`__init__` re-exports catalogOf."""

from fleximq.pipeline.lake.iceberg.iceberg_log import catalogOf

__all__ = ["catalogOf"]
