"""Strings to endpoints: what may follow ``--listen``."""
