"""Subscriptions by topic name."""
