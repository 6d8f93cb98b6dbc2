"""Tests of fleximq/config."""
