"""Tests of fleximq/pipeline/lake/iceberg."""
