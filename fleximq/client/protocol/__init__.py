"""Client state without I/O."""
