"""Tests of fleximq/client/protocol."""
