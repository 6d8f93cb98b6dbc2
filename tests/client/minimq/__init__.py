"""The MiniMQ client."""
