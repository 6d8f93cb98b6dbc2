"""`__init__` re-exports MiniFactory."""

from fleximq.dialects.minimq.protocol import MiniFactory

__all__ = ["MiniFactory"]
