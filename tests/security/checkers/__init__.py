"""Tests of the checkers that the broker brings along."""
