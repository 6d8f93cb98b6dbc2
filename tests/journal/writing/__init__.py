"""Tests of fleximq/journal/writing."""
