"""Lets Spark find the data source ``fleximq``: Spark imports modules named ``pyspark_*`` with a class
``DefaultSource``.
"""

from fleximq.pipeline.source import FlexiMQSource as DefaultSource

__all__ = ["DefaultSource"]
