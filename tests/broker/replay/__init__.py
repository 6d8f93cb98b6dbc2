"""Tests of fleximq/broker/replay."""
