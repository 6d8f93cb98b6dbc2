"""Tests of fleximq/dialects/minimq."""
