"""Tests of :mod:`fleximq.web.api`."""
