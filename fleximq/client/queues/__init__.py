"""Code shared by the BlipMQ and MiniMQ clients."""
