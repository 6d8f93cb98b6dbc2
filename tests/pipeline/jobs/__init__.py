"""Tests of the jobs of ``fleximq-pipeline``."""
