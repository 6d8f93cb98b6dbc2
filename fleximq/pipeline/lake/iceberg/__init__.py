"""Tables in the format of Apache Iceberg."""

from fleximq.pipeline.lake.iceberg.catalogs import catalogOf

__all__ = ["catalogOf"]
