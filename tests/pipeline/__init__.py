"""Tests of the data pipeline; they are skipped where the extra ``spark`` is not installed."""
