"""Tests of fleximq/startup."""
