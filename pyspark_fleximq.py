"""Lets Spark find the data source ``fleximq``: it looks for modules with such a name and a ``DefaultSource``."""

from fleximq.pipeline.source import FlexiMQSource as DefaultSource

__all__ = ["DefaultSource"]
