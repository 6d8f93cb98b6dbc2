"""Publishes runs: removes repeated messages, commits durable runs in order, and delivers runs to subscribers."""
