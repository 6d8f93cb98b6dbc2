"""Ports and accepted connections."""
