"""Tests of fleximq/security/rates."""
