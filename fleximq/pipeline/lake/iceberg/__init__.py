"""Tables in the format of Apache Iceberg."""

from fleximq.pipeline.lake.iceberg.snapshots import catalogOf

__all__ = ["catalogOf"]
