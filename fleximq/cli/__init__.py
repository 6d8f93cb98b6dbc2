"""The command ``fleximq``: tools for operators and for testing a broker."""
