"""Tests of fleximq/client/blocking."""
