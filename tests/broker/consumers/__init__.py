"""Tests of fleximq/broker/consumers."""
