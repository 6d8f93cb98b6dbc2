"""The MiniMQ dialect; re-exports its factory."""

from fleximq.dialects.minimq.protocol import MiniFactory

__all__ = ["MiniFactory"]
