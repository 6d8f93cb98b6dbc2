"""Tests of fleximq/security/authentication."""
