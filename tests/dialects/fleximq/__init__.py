"""Tests of fleximq/dialects/fleximq."""
