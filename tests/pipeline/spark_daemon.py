"""Starts Spark's Python workers for tests, with what they all need already imported: each worker is a fork of it.

Without it each of the hundreds of workers would import PyArrow, pandas and the source by itself, in about a second.
"""

import pandas  # type: ignore[import-untyped]  # noqa: F401
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
from pyspark import daemon

import fleximq.pipeline.reader.batch_reader
import fleximq.pipeline.reader.stream_reader
import fleximq.pipeline.source
import fleximq.pipeline.writer.sink  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
