"""Tests of fleximq/dialects/identity."""
