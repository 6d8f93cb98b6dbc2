"""What starts and stops; ``compose`` is the one place that knows every room."""
