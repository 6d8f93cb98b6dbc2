"""Tests of what payloads become."""
