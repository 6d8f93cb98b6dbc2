"""Tests of fleximq.dialects.http.routing."""
