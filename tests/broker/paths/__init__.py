"""Tests of fleximq/broker/paths."""
