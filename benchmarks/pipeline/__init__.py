"""Measures the data pipeline on Spark: ``python -m benchmarks.pipeline --help``.

The peer is Spark itself with zstd Parquet files of the same rows, in the same session, in turns.
"""
