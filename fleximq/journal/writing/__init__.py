"""Group commit: the runs that arrive during one commit form the next."""
