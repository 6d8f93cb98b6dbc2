"""Tests of the commands that talk to a broker."""
