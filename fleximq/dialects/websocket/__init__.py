"""Sessions on WebSockets."""
