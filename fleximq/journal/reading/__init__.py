"""Reads for replay and queues."""
