"""Clients inside the broker's process."""
