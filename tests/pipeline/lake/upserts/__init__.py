"""Tables of the latest row for each key."""
