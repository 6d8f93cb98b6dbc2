"""Subscriptions of clients, live or starting in the past."""
