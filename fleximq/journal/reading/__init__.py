"""Reads of committed records, for replay and queues."""
