"""`__init__` re-exports BlipFactory."""

from fleximq.dialects.blipmq.session import BlipFactory

__all__ = ["BlipFactory"]
