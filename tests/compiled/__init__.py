"""Tests of the compiled core: the same as the reference, on any input."""
