"""Tests of fleximq/dialects/websocket."""
