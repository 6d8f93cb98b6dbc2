"""Tests of fleximq/pipeline/asking."""
