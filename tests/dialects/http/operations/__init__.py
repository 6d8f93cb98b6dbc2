"""Tests of fleximq.dialects.http.operations."""
