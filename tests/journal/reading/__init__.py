"""Tests of fleximq/journal/reading."""
