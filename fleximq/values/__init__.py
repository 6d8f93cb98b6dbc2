"""Immutable values shared by several rooms."""
