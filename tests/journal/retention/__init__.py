"""Tests of fleximq/journal/retention."""
