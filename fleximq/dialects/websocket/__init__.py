"""Sessions on WebSockets: parsing within limits, framing, and the protocol of a session."""
