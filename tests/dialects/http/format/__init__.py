"""Tests of fleximq.dialects.http.format."""
