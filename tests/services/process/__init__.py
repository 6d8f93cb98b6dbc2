"""Tests of fleximq/services/process."""
