"""The FlexiMQ dialect; re-exports its factory."""

from fleximq.dialects.fleximq.session import FlexiFactory

__all__ = ["FlexiFactory"]
