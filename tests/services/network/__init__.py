"""Tests of fleximq/services/network."""
