"""Machinery below every session."""
