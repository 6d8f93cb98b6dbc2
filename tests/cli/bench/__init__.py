"""Tests of what stands behind ``fleximq bench``."""
