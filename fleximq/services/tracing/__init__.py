"""Traces of clients and topics for operators, frame by frame in words."""
