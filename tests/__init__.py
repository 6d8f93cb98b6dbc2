"""Tests that mirror the path of the file they test."""

from fleximq.values.transitions import Transitions

Transitions.strict = True
