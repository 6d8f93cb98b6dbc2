"""Tests of the commands for a cluster that runs."""
