"""Tests of the room that makes spans."""
