"""Tests of :mod:`fleximq.services.tracing`."""
