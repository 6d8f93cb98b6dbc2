"""Deletes expired records."""
