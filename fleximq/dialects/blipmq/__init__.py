"""`__init__` re-exports BlipFactory."""

from fleximq.dialects.blipmq.protocol import BlipFactory

__all__ = ["BlipFactory"]
