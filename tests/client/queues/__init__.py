"""The clients of the queueing dialects."""
