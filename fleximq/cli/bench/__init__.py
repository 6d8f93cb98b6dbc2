"""What stands behind ``fleximq bench``: plan, the two roles, and what came of it."""
