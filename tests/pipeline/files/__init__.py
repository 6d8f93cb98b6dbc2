"""Tests of fleximq/pipeline/files."""
