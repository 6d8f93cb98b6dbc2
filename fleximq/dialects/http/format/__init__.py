"""The requests and responses of HTTP: heads, bodies by their length, and paths."""
