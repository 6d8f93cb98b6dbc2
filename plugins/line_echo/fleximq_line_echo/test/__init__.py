"""The tests of the dialect."""
