"""What clients need of an event loop, alone."""
