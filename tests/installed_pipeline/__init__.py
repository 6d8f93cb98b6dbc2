"""Tests of what a user types: the tutorial of the pipeline, and its commands as a wheel brings them."""
