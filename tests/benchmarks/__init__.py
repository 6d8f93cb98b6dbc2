"""Tests that mirror the path of the file they test."""
