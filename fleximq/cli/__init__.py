"""The command ``fleximq``: what an operator does beside running the broker."""
