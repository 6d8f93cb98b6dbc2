"""Tests of fleximq/pipeline/lake/table."""
