"""The BlipMQ dialect; re-exports its factory."""

from fleximq.dialects.blipmq.protocol import BlipFactory

__all__ = ["BlipFactory"]
