"""Tests of fleximq/dialects/connection."""
