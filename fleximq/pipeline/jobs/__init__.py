"""The jobs of ``fleximq-pipeline``, one in each file."""
