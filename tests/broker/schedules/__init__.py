"""Tests of the wing of schedules."""
