"""The operating system process."""
