"""Tests of values by their keys."""
