"""Tests of fleximq/broker/queues."""
