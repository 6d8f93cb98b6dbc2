"""Services that start and stop; ``compose`` alone knows every room."""
