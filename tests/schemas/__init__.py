"""Schemas in files, and payloads that fit them or do not."""
