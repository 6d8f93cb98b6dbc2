"""The jobs of ``fleximq-pipeline``: one in each file, and in ``upkeep`` those that maintain a lake."""
