"""Tests of fleximq/pipeline/reader."""
