"""Hostile input without end: mutated conversations of every dialect, for all scanners and for a whole broker in memory.

``python -m tests.fuzz --seconds 600`` runs it; :mod:`tests.fuzz.test_fuzz` does for a few seconds in the suite.
"""
