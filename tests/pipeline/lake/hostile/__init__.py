"""Hostile messages for a lake, the values that each must have there, and the readers of its tables."""
