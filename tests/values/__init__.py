"""Tests of fleximq/values."""
