"""Tests of fleximq.cluster.nats, on real servers."""
