"""Polled subscriptions and work queues on top of queues."""
