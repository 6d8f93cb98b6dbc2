"""Tests of fleximq/pipeline/command."""
