"""`__init__` re-exports FlexiFactory."""

from fleximq.dialects.fleximq.session import FlexiFactory

__all__ = ["FlexiFactory"]
