"""The tests of the codes."""
