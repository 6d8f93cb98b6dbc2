"""Subscriptions that start in the past."""
