"""Conversations with a running broker, in all dialects, over loopback sockets."""
