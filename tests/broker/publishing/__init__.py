"""Tests of fleximq/broker/publishing."""
