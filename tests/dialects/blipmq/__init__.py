"""Tests of fleximq/dialects/blipmq."""
