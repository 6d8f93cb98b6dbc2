"""Values that clients store by their keys, for a time or for good."""
