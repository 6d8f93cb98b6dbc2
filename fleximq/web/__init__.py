"""What the broker answers to plain HTTP."""
