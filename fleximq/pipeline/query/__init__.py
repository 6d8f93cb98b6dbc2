"""What ``sql`` and ``describe`` look at, and how they show it."""
