"""Tests of fleximq.cluster."""
