"""What the clients of the queueing dialects, BlipMQ and MiniMQ, have in common."""
