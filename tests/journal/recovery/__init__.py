"""Tests of fleximq/journal/recovery."""
