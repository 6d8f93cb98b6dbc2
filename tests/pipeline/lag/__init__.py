"""Tests of fleximq/pipeline/lag."""
