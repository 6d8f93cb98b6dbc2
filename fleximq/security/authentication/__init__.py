"""From credentials to a principal."""
