"""Ports, and the connections that they accept."""
