"""Tests of fleximq/journal/format."""
