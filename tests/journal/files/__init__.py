"""Tests of fleximq/journal/files."""
