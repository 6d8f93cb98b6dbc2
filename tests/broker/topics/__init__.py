"""Tests of fleximq/broker/topics."""
