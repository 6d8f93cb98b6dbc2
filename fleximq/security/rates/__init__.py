"""Rates and reconnects."""
