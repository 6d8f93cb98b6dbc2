"""Tests of fleximq/pipeline/writer."""
