"""Tests of fleximq/pipeline/replaying."""
