"""Tests of fleximq/dialects/http."""
