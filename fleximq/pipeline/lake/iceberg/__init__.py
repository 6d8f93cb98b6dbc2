"""Tables in the format of Apache Iceberg."""

from fleximq.pipeline.lake.iceberg.iceberg_catalog import catalogOf

__all__ = ["catalogOf"]
