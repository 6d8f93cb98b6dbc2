"""Clients for Python programs: FlexiMQ in three forms, and BlipMQ and MiniMQ in two each."""
