"""Tests of fleximq.pipeline.local_query."""
